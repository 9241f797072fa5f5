//! When answers are due: a thread that wakes in time for each.

use crate::media::Ns;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Most of a wait that is spun: more would take the processor from whoever waits for the answers.
const MOST_SPUN_NS: Ns = 40_000;

/// The clock of a daemon, and when on it the next answer is due.
pub(crate) struct Due {
    began: Instant,
    /// When the thread of due answers is to wake; notified when that becomes earlier.
    planned: Mutex<Option<Ns>>,
    earlier: Condvar,
}

impl Due {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), planned: Mutex::new(None), earlier: Condvar::new() }
    }

    pub(crate) fn now(&self) -> Ns {
        self.began.elapsed().as_nanos() as Ns
    }

    fn planned(&self) -> MutexGuard<'_, Option<Ns>> {
        self.planned.lock().expect("nothing panics while planning")
    }

    /// The thread of due answers wakes no later than `due`.
    pub(crate) fn plan(&self, due: Option<Ns>) {
        let Some(due) = due else { return };
        let mut planned = self.planned();
        if planned.is_none_or(|at| due < at) {
            *planned = Some(due);
            self.earlier.notify_one();
        }
    }

    /// What was planned before is done.
    pub(crate) fn plan_anew(&self, due: Option<Ns>) {
        *self.planned() = due;
    }

    /// Returns when the next answer is due.
    pub(crate) fn wait(&self, margin: &mut Margin) {
        let mut planned = self.planned();
        loop {
            let Some(due) = *planned else {
                planned = self.earlier.wait(planned).expect("nothing panics while planning");
                continue;
            };
            let slept_until = due.saturating_sub(margin.0);
            let left = slept_until.saturating_sub(self.now());
            if left == 0 {
                drop(planned);
                while self.now() < due {
                    std::hint::spin_loop();
                }
                return;
            }
            let sleep = Duration::from_nanos(left);
            let woken = self.earlier.wait_timeout(planned, sleep).expect("nothing panics while planning");
            if woken.1.timed_out() {
                margin.learn(self.now().saturating_sub(slept_until));
            }
            planned = woken.0;
        }
    }
}

/// How long before an answer is due its thread wakes, to spin for the rest: no less than how late it wakes in nineteen of
/// twenty times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Margin(pub Ns);

impl Default for Margin {
    fn default() -> Self {
        Self(MOST_SPUN_NS / 2)
    }
}

impl Margin {
    const STEP_NS: Ns = 100;

    /// Nineteen steps up for one of twenty, one step down for the others: it rests where one in twenty is later.
    pub fn learn(&mut self, late: Ns) {
        self.0 = match late > self.0 {
            true => (self.0 + 19 * Self::STEP_NS).min(MOST_SPUN_NS),
            false => self.0.saturating_sub(Self::STEP_NS),
        };
    }
}

/// This thread runs as soon as it wakes, however busy its host is: it sleeps but for the moments around an answer.
/// Without the privilege it wakes as others do.
pub(crate) fn wake_before_others() {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the call reads these numbers and changes this thread alone.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_RR, &raw const lowest);
    }
}
