//! The timing of real media, as functions of a virtual clock: when does a request that arrives now complete.
//!
//! A medium has no thread and no clock. Times are nanoseconds since it began.

pub(crate) mod flash;
pub(crate) mod hdd;
pub mod model;
pub mod page;
pub(crate) mod parameters;
pub mod validation;
pub(crate) mod volume;

use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds.
pub(crate) type Ns = u64;

pub(crate) const SECOND: f64 = 1e9;

fn ns(seconds: f64) -> Ns {
    (seconds * SECOND) as Ns
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    /// A discard or a write of zeroes: a command without data.
    Zero,
    Flush,
}

/// A request, as a medium sees it: without data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub kind: Kind,
    pub offset: u64,
    pub length: u64,
}

/// What a medium did, by its own account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Effort {
    pub busy_s: f64,
    /// Movements of an arm to another cylinder.
    pub seeks: u64,
    pub seek_s: f64,
    pub rotation_s: f64,
    pub transfer_s: f64,
    pub cache_hits: u64,
    pub drained_bytes: u64,
}

/// The timing of one disk.
pub trait Medium: Send {
    /// A request arrives; times never go back.
    fn submit(&mut self, now: Ns, id: u64, request: Request);

    /// When the next request completes or something inside needs attention, whichever is first.
    fn next_due(&self) -> Option<Ns>;

    /// The next request that has completed by now, and when it did.
    fn take_due(&mut self, now: Ns) -> Option<(u64, Ns)>;

    /// What the medium did so far.
    fn effort(&self) -> Effort;
}

/// Requests whose completion is known, soonest first.
#[derive(Debug, Default)]
pub(crate) struct Ready(BinaryHeap<Reverse<(Ns, u64)>>);

impl Ready {
    pub(crate) fn push(&mut self, at: Ns, id: u64) {
        self.0.push(Reverse((at, id)));
    }

    pub(crate) fn next(&self) -> Option<Ns> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    pub(crate) fn take(&mut self, now: Ns) -> Option<(u64, Ns)> {
        if self.next()? > now {
            return None;
        }
        self.0.pop().map(|Reverse((at, id))| (id, at))
    }
}

/// All times of a medium multiplied, which keeps proportions on a machine whose processor is slower.
pub struct Stretched {
    inner: Box<dyn Medium>,
    factor: f64,
}

impl Stretched {
    /// The medium with its times multiplied by the factor.
    pub fn new(inner: Box<dyn Medium>, factor: f64) -> Self {
        Self { inner, factor }
    }

    fn inside(&self, now: Ns) -> Ns {
        (now as f64 / self.factor) as Ns
    }

    /// Rounded up, so that what is due outside is due inside.
    fn outside(&self, at: Ns) -> Ns {
        ((at + 1) as f64 * self.factor) as Ns
    }
}

impl Medium for Stretched {
    fn submit(&mut self, now: Ns, id: u64, request: Request) {
        self.inner.submit(self.inside(now), id, request);
    }

    fn next_due(&self) -> Option<Ns> {
        self.inner.next_due().map(|at| self.outside(at))
    }

    fn take_due(&mut self, now: Ns) -> Option<(u64, Ns)> {
        self.inner.take_due(self.inside(now)).map(|(id, at)| (id, self.outside(at)))
    }

    fn effort(&self) -> Effort {
        let effort = self.inner.effort();
        Effort {
            busy_s: effort.busy_s * self.factor,
            seek_s: effort.seek_s * self.factor,
            rotation_s: effort.rotation_s * self.factor,
            transfer_s: effort.transfer_s * self.factor,
            ..effort
        }
    }
}
