//! One disk of an engine, and the account of what it did.

use crate::fault::Fault;
use crate::media::{Effort, Kind, Medium, Ns};
use crate::nature::Nature;
use crate::store::Image;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Whether a disk answers, and if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    On,
    Cut,
    Gone,
}

/// What one disk did since it was added.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Counters {
    pub reads: u64,
    pub writes: u64,
    pub zeroes: u64,
    pub flushes: u64,
    pub errors: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Requests that a disk with a model answered while its timing was off.
    pub untimed: u64,
    pub largest_queue: usize,
    /// Seconds that requests spent under way, summed: over elapsed seconds it is the mean queue.
    pub queued_s: f64,
}

/// A medium, and what it is called.
pub struct Timed {
    pub model: String,
    pub parameters: BTreeMap<String, f64>,
    pub stretch: f64,
    pub timing: Timing,
    pub medium: Box<dyn Medium>,
}

/// Whether requests take the time of the medium. While it is off they are answered at once and the medium does not see
/// them: its cache empties, its arm stays where it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Timing {
    #[default]
    On,
    Off,
}

/// A disk as the engine has it.
pub struct Disk {
    pub image: Image,
    pub timed: Option<Timed>,
    pub power: Power,
    pub counters: Counters,
    pub opened: u32,
    pub(super) faults: Vec<Fault>,
    pub(super) under_way: usize,
    pub(super) lateness: Lateness,
    added: Ns,
}

impl Disk {
    pub(super) fn new(now: Ns, image: Image, timed: Option<Timed>) -> Self {
        Self {
            image,
            timed,
            power: Power::On,
            counters: Counters::default(),
            opened: 0,
            faults: Vec::new(),
            under_way: 0,
            lateness: Lateness([0; 101]),
            added: now,
        }
    }

    pub(super) fn takes_time(&self) -> bool {
        self.timed.as_ref().is_some_and(|timed| timed.timing == Timing::On)
    }

    /// Whether a request that was admitted can have one answer alone.
    pub(super) fn cannot_fail(&self, kind: Kind) -> bool {
        kind != Kind::Read && self.image.is_in_memory()
    }
}

/// How late answers of a modelled medium were, in percent of the time they were to take.
pub(super) struct Lateness([u64; 101]);

impl Lateness {
    pub(super) fn note(&mut self, due: Ns, submitted: Ns, now: Ns) {
        let share = 100 * now.saturating_sub(due) / due.saturating_sub(submitted).max(1);
        self.0[share.min(100) as usize] += 1;
    }

    /// The percent below which this share of answers was late.
    fn quantile(&self, share: f64) -> Option<usize> {
        let total: u64 = self.0.iter().sum();
        let wanted = (total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.0.iter().position(|count| {
            seen += count;
            seen >= wanted
        })
    }
}

/// What a disk is and did, as `stats` shows it.
#[derive(Debug, Serialize)]
pub struct Statistics {
    pub name: String,
    pub size_bytes: u64,
    pub nature: Nature,
    pub model: Option<String>,
    pub parameters: Option<BTreeMap<String, f64>>,
    pub stretch: Option<f64>,
    pub timing: Option<Timing>,
    pub power: Power,
    pub elapsed_s: f64,
    pub volatile_bytes: u64,
    #[serde(flatten)]
    pub counters: Counters,
    pub effort: Option<Effort>,
    /// How many answers were late by 0, 1, ... and by 100 or more percent of the time they were to take.
    pub late_percent_counts: Option<Vec<u64>>,
    pub late_median_percent: Option<usize>,
    pub late_p99_percent: Option<usize>,
}

pub(super) fn describe(name: String, disk: &Disk, now: Ns) -> Statistics {
    let timed = disk.timed.as_ref();
    Statistics {
        name,
        model: timed.map(|timed| timed.model.clone()),
        parameters: timed.map(|timed| timed.parameters.clone()),
        stretch: timed.map(|timed| timed.stretch),
        timing: timed.map(|timed| timed.timing),
        size_bytes: disk.image.size(),
        nature: disk.image.nature(),
        power: disk.power,
        elapsed_s: now.saturating_sub(disk.added) as f64 / 1e9,
        volatile_bytes: disk.image.volatile_bytes(),
        counters: disk.counters.clone(),
        effort: timed.map(|timed| timed.medium.effort()),
        late_percent_counts: timed.map(|_| disk.lateness.0.to_vec()),
        late_median_percent: disk.lateness.quantile(0.5).filter(|_| timed.is_some()),
        late_p99_percent: disk.lateness.quantile(0.99).filter(|_| timed.is_some()),
    }
}
