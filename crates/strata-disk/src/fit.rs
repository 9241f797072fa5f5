//! A model proposed from measurements of a disk: a report of fio in JSON.
//!
//! Of each job the first options say what it measured: `rw` and `iodepth`. Random 4 KiB reads at depth 1 decide whether
//! it is a disk that turns (more than 2 ms each) or flash, and flushes of less than 100 us that flash has a protected
//! cache. What was not measured keeps the value of the supplied model that the proposal starts from; every source says
//! which of these it is: measured, an assumption, or the supplied model's. Of a disk that turns reads alone are used: its
//! writes and flushes follow from where they lie.

use crate::media::model::{Model, ModelError, Parameter, find_model};
use serde::Deserialize;
use std::collections::HashMap;

#[derive(Debug, Deserialize)]
struct Report {
    #[serde(default, rename = "global options")]
    global: HashMap<String, String>,
    jobs: Vec<Job>,
}

#[derive(Debug, Deserialize)]
struct Job {
    #[serde(default, rename = "job options")]
    options: HashMap<String, String>,
    read: Side,
    write: Side,
    #[serde(default)]
    sync: Sync,
}

#[derive(Debug, Deserialize)]
struct Side {
    bw_bytes: f64,
    #[serde(default)]
    iops: f64,
    clat_ns: Latency,
}

#[derive(Debug, Default, Deserialize)]
struct Sync {
    #[serde(default)]
    lat_ns: Latency,
}

#[derive(Debug, Default, Deserialize)]
struct Latency {
    #[serde(default)]
    mean: f64,
}

const TURNING_MS: f64 = 2.0;
/// A flush that takes no longer leaves the data in a cache that keeps it.
const PROTECTED_US: f64 = 100.0;
/// Reads at once from which on the disk is the limit.
const DEEP: u32 = 16;

/// The model that the report of fio suggests, checked as a model file is.
pub fn fit(text: &str, name: &str, capacity_bytes: Option<u64>) -> Result<Model, ModelError> {
    let report: Report =
        serde_json::from_str(text).map_err(|error| ModelError(format!("report of fio: {error}")))?;
    let Some(random) = report.job("randread", |depth| depth == 1) else {
        return Err(ModelError("report of fio has no job with rw=randread and iodepth=1".into()));
    };
    let random_ms = random.read.clat_ns.mean / 1e6;
    let mut model =
        if random_ms > TURNING_MS { turning(&report, random_ms)? } else { flash(&report, random_ms)? };
    model.name = name.into();
    set(&mut model, "capacity_bytes", capacity_bytes.map(|bytes| bytes as f64), "as given with --capacity");
    model.medium(0)?;
    Ok(model)
}

fn turning(report: &Report, random_ms: f64) -> Result<Model, ModelError> {
    let mut model = beginning("hdd-7200")?;
    let sequential = report.job("read", |_| true).map(|job| job.read.bw_bytes / 1e6);
    let value = |of: &str| model.parameters[of].value;
    let seek_ms = random_ms - 30_000.0 / value("rotation_rpm") - value("command_overhead_ms");
    let full_ms = seek_ms * value("full_seek_ms") / value("average_seek_ms");
    let less = "a random read as measured with fio, less half a turn and the overhead of a command, which were not measured";
    set(&mut model, "average_seek_ms", Some(seek_ms), less);
    let ratio = "assumption: longer than the average seek by as much as on hdd-7200";
    set(&mut model, "full_seek_ms", Some(full_ms), ratio);
    set(&mut model, "outer_rate_mb_s", sequential, "measured with fio: sequential reads");
    let half = "assumption: half of the measured outer rate";
    set(&mut model, "inner_rate_mb_s", sequential.map(|rate| rate / 2.0), half);
    Ok(model)
}

fn flash(report: &Report, random_ms: f64) -> Result<Model, ModelError> {
    let flushed = report.jobs.iter().map(|job| job.sync.lat_ns.mean / 1e3).find(|flush| *flush > 0.0);
    let protected = flushed.is_some_and(|flush| flush < PROTECTED_US);
    let mut model = beginning(if protected { "sata-ssd-plp" } else { "sata-ssd" })?;
    let read_us = random_ms * 1e3;
    set(&mut model, "read_us", Some(read_us), "measured with fio: random reads at depth 1");
    if let Some(deep) = report.job("randread", |depth| depth >= DEEP).filter(|job| job.read.iops > 0.0) {
        let iops = deep.read.iops;
        set(&mut model, "interface_iops", Some(iops), "measured with fio: random reads at depth");
        let at_once = (iops * read_us / 1e6).ceil().max(1.0);
        set(
            &mut model,
            "channels",
            Some(at_once),
            "as many reads at once as give the measured rate at depth",
        );
    }
    let sequential = report.job("read", |_| true).map(|job| job.read.bw_bytes / 1e6);
    set(&mut model, "interface_rate_mb_s", sequential, "measured with fio: sequential reads");
    let command_us = 1e6 / model.parameters["interface_iops"].value;
    let write_us = report.job("randwrite", |depth| depth == 1).map(|job| job.write.clat_ns.mean / 1e3);
    let less = "measured with fio: random writes at depth 1, less a command of the interface";
    set(&mut model, "write_us", write_us.map(|taken| (taken - command_us).max(1.0)), less);
    let written = report.job("write", |_| true).map(|job| job.write.bw_bytes / 1e6);
    set(&mut model, "program_rate_mb_s", written, "measured with fio: sequential writes");
    set(&mut model, "flush_us", flushed, "measured with fio: flushes");
    Ok(model)
}

/// The supplied model that a proposal starts from; what is kept of it says so.
fn beginning(from: &str) -> Result<Model, ModelError> {
    let mut model = find_model(from)?;
    for parameter in model.parameters.values_mut() {
        parameter.source = format!("supplied model {from}: {}", parameter.source);
    }
    let cache = if model.volatile_cache { "lost" } else { "kept" };
    model.about =
        format!("fitted to measurements with fio, from {from}; its cache is {cache} at a power cut as there");
    Ok(model)
}

impl Report {
    /// The first job that does this at a depth that is asked for.
    fn job(&self, rw: &str, asked: impl Fn(u32) -> bool) -> Option<&Job> {
        self.jobs.iter().find(|job| {
            let option =
                |name: &str| job.options.get(name).or_else(|| self.global.get(name)).map(String::as_str);
            option("rw") == Some(rw)
                && asked(option("iodepth").and_then(|depth| depth.parse().ok()).unwrap_or(1))
        })
    }
}

fn set(model: &mut Model, name: &str, value: Option<f64>, source: &str) {
    if let Some(value) = value {
        model.parameters.insert(name.into(), Parameter { value, source: source.into() });
    }
}
