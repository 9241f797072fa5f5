//! How long a thread asks for its next request before it sleeps. Pure.

use std::time::Duration;

/// How long the next request is asked for before its thread sleeps. After asking in vain it sleeps at once, for one request,
/// then for three, and so on: where requests are far apart, hardly anything is spent on asking.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Patience {
    /// For how many requests it slept at once after the last vain wait.
    slept: u8,
    left: u8,
}

impl Patience {
    pub(crate) const SPUN: Duration = Duration::from_micros(70);
    const MOST: u8 = 63;

    /// How long the next request is asked for.
    pub fn spun(self) -> Duration {
        if self.left > 0 { Duration::ZERO } else { Self::SPUN }
    }

    /// A request came, while it was asked for or after sleep.
    pub fn learn(&mut self, in_sleep: bool) {
        *self = match (self.left, in_sleep) {
            (0, false) => Self::default(),
            (0, true) => {
                let slept = (2 * self.slept + 1).min(Self::MOST);
                Self { slept, left: slept }
            }
            (left, _) => Self { left: left - 1, ..*self },
        };
    }
}
