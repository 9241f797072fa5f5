//! Faults of a disk: errors and delays by kind of request, range and count.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a fault cannot be.
#[derive(Debug, Error)]
pub enum FaultError {
    #[error("fault covers no byte: {from} to {to}")]
    Nowhere { from: u64, to: u64 },
    #[error("delay of {0} ms is not within 0 and an hour")]
    Delay(f64),
}

/// The kind of request that meets a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    Read,
    Write,
    Flush,
}

/// What a request meets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The request fails with EIO.
    Error,
    DelayMs(f64),
}

/// A fault of a disk: what, and the requests that meet it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    pub on: On,
    pub effect: Effect,
    /// Bytes that a request must touch; a flush touches none and is met by any.
    #[serde(default)]
    pub from: u64,
    #[serde(default = "everything")]
    pub to: u64,
    /// Requests that pass before the first is met.
    #[serde(default)]
    pub after: u64,
    /// Requests that are met; all, where none is given.
    #[serde(default)]
    pub count: Option<u64>,
}

fn everything() -> u64 {
    u64::MAX
}

impl Fault {
    pub(crate) fn check(&self) -> Result<(), FaultError> {
        if self.from >= self.to {
            return Err(FaultError::Nowhere { from: self.from, to: self.to });
        }
        match self.effect {
            Effect::DelayMs(delay) if !(0.0..=3_600_000.0).contains(&delay) => Err(FaultError::Delay(delay)),
            _ => Ok(()),
        }
    }

    /// What this fault does to a request, and one less of it left.
    pub(crate) fn meet(&mut self, on: On, offset: u64, length: u64) -> Option<Effect> {
        let touched = on == On::Flush || offset < self.to && offset + length > self.from;
        if self.on != on || !touched || self.count == Some(0) {
            return None;
        }
        if self.after > 0 {
            self.after -= 1;
            return None;
        }
        self.count = self.count.map(|count| count - 1);
        Some(self.effect)
    }
}
