//! What a model gives on a virtual clock, beside what its parameters imply: the figures that data sheets state.

use super::model::{Family, Model};
use super::parameters::ModelError;
use super::{Kind, Medium, Ns, Request, SECOND};
use crate::rng::Rng;
use serde::Serialize;

/// One way of loading a disk, as fio names it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Load {
    pub rw: &'static str,
    pub bytes: u64,
    pub depth: usize,
    /// Each write is followed by a flush.
    pub flush: bool,
    /// Only after so much was written at random without a pause: reserves of erased blocks and credits are used up.
    pub after_bytes: u64,
}

/// Loads a second: what the parameters imply, and what the model gives.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    #[serde(flatten)]
    pub load: Load,
    pub implied_per_s: f64,
    pub modelled_per_s: f64,
}

const SPAN: f64 = 1e10;
const REQUESTS: u64 = 4000;

/// A medium under load, and the time there.
pub struct Driver {
    pub medium: Box<dyn Medium>,
    now: Ns,
    sent: u64,
}

impl Driver {
    /// A medium that nothing was asked of yet.
    pub fn new(medium: Box<dyn Medium>) -> Self {
        Self { medium, now: 0, sent: 0 }
    }

    /// Keeps `depth` requests under way until `count` have completed; mean seconds between completions.
    pub fn run(&mut self, depth: usize, count: u64, mut next: impl FnMut(u64) -> Request) -> f64 {
        let (began, first) = (self.now, self.sent);
        let mut submit = |driver: &mut Self| {
            if driver.sent < first + count {
                driver.medium.submit(driver.now, driver.sent, next(driver.sent - first));
                driver.sent += 1;
            }
        };
        (0..depth).for_each(|_| submit(self));
        let mut done = 0;
        while done < count {
            self.now = self.medium.next_due().expect("a request is under way").max(self.now);
            while self.medium.take_due(self.now).is_some() {
                done += 1;
                submit(self);
            }
        }
        (self.now - began) as f64 / SECOND / count as f64
    }
}

/// Requests at random pages of the first `span` bytes.
pub fn random(kind: Kind, span: f64, length: u64) -> impl FnMut(u64) -> Request {
    let mut rng = Rng::new(1);
    move |_| Request { kind, offset: (rng.unit() * span) as u64 / 4096 * 4096, length }
}

/// Requests one behind the other.
pub fn sequential(kind: Kind, length: u64) -> impl FnMut(u64) -> Request {
    move |number| Request { kind, offset: number * length, length }
}

/// A write and a flush, one after the other.
pub fn flushed(mut write: impl FnMut(u64) -> Request) -> impl FnMut(u64) -> Request {
    move |number| match number % 2 {
        0 => write(number / 2),
        _ => Request { kind: Kind::Flush, offset: 0, length: 0 },
    }
}

/// The figures of a model, each on a medium that nothing was done with before.
pub fn figures(model: &Model) -> Result<Vec<Figure>, ModelError> {
    let span = SPAN.max(model.capacity_bytes().unwrap_or(0) as f64 * 0.999);
    loads(model)
        .into_iter()
        .map(|(load, implied_per_s)| {
            let mut driver = Driver::new(model.medium(0)?);
            Ok(Figure { load, implied_per_s, modelled_per_s: 1.0 / seconds(&mut driver, load, span) })
        })
        .collect()
}

fn seconds(driver: &mut Driver, load: Load, span: f64) -> f64 {
    let kind = if load.rw.contains("read") { Kind::Read } else { Kind::Write };
    let bytes = if kind == Kind::Write { 1 << 20 } else { 4096 };
    driver.run(64, load.after_bytes / bytes, random(kind, span, bytes));
    // So many that what a cache takes up at first is no matter.
    let large = if load.rw.starts_with("rand") { 1 } else { 5 };
    let count = large * REQUESTS.max(200 * load.depth as u64);
    match (load.rw.starts_with("rand"), load.flush) {
        (true, false) => driver.run(load.depth, count, random(kind, span, load.bytes)),
        (false, false) => driver.run(load.depth, count, sequential(kind, load.bytes)),
        (true, true) => 2.0 * driver.run(1, count, flushed(random(kind, span, load.bytes))),
        (false, true) => 2.0 * driver.run(1, count, flushed(sequential(kind, load.bytes))),
    }
}

fn load(rw: &'static str, bytes: u64, depth: usize) -> Load {
    Load { rw, bytes, depth, flush: false, after_bytes: 0 }
}

/// How a model can be loaded, and what its parameters imply of each load a second.
pub(crate) fn loads(model: &Model) -> Vec<(Load, f64)> {
    let value = |name: &str| model.parameters[name].value;
    match model.kind {
        Family::Hdd => {
            let turns = value("rotation_rpm") / 60.0;
            let random_ms = value("average_seek_ms") + value("command_overhead_ms") + 500.0 / turns;
            let large = 128 << 10;
            let rate = value("outer_rate_mb_s") * 1e6 / large as f64;
            vec![
                (load("randread", 4096, 1), 1e3 / random_ms),
                (load("read", large, 1), rate),
                (load("write", large, 1), rate),
                (Load { flush: true, ..load("write", 8192, 1) }, turns),
            ]
        }
        Family::Flash => {
            let command_us = 1e6 / value("interface_iops");
            let parallel = value("channels") / value("read_us") * 1e6;
            let write_us = value("write_us") + command_us;
            let large = 1 << 20;
            let cleaned = value("program_rate_mb_s") * 1e6 / value("write_amplification") / 4096.0;
            let used_up = 2 * (value("reserve_bytes") + value("cache_bytes")) as u64;
            vec![
                (load("randread", 4096, 1), 1e6 / value("read_us")),
                (load("randread", 4096, 256), parallel.min(value("interface_iops"))),
                (load("read", large, 8), value("interface_rate_mb_s") * 1e6 / large as f64),
                (load("randwrite", 4096, 1), 1e6 / write_us),
                (load("write", large, 8), (value("program_rate_mb_s") * 1e6) / large as f64),
                (Load { flush: true, ..load("randwrite", 8192, 1) }, 1e6 / (write_us + value("flush_us"))),
                (Load { after_bytes: used_up, ..load("randwrite", 4096, 32) }, cleaned),
            ]
        }
        Family::Volume => {
            let latency_s = value("latency_us") / 1e6 * (value("latency_spread").powi(2) / 2.0).exp();
            let (burst, base) = (value("burst_iops"), value("base_iops"));
            let spent = 4096 * (1.1 * value("burst_credits") / (1.0 - base / burst)) as u64;
            let large = 256 << 10;
            vec![
                (load("randread", 4096, 1), 1.0 / latency_s),
                (load("randread", 4096, 64), burst),
                (Load { after_bytes: spent, ..load("randread", 4096, 64) }, base),
                (load("read", large, 16), (value("rate_mb_s") * 1e6 / large as f64).min(burst)),
                (Load { flush: true, ..load("randwrite", 8192, 1) }, 0.5 / latency_s),
            ]
        }
    }
}
