//! A model proposed from measurements of a disk: a report of fio in JSON.
//!
//! Of each job the first options say what it measured: `rw` and `iodepth`. Random 4 KiB reads at depth 1 decide whether
//! it is a disk that turns (more than 2 ms each) or flash. What was not measured keeps the value of the supplied model
//! that the proposal starts from, and its source.

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

/// The model that the report of fio suggests, checked as a model file is.
pub fn fit(text: &str, name: &str) -> Result<Model, ModelError> {
    let report: Report =
        serde_json::from_str(text).map_err(|error| ModelError(format!("report of fio: {error}")))?;
    let job = |rw: &str, depth: Option<&str>| report.jobs.iter().find(|job| report.is(job, rw, depth));
    let Some(random) = job("randread", Some("1")) else {
        return Err(ModelError("report of fio has no job with rw=randread and iodepth=1".into()));
    };
    let random_ms = random.read.clat_ns.mean / 1e6;
    let turning = random_ms > TURNING_MS;
    let mut model = find_model(if turning { "hdd-7200" } else { "sata-ssd" })?;
    model.name = name.into();
    model.about =
        format!("fitted to measurements with fio, from {}", if turning { "hdd-7200" } else { "sata-ssd" });
    let sequential = job("read", None).map(|job| job.read.bw_bytes / 1e6);
    if turning {
        let value = |of: &str| model.parameters[of].value;
        let seek_ms = random_ms - 30_000.0 / value("rotation_rpm") - value("command_overhead_ms");
        let full_ms = seek_ms * value("full_seek_ms") / value("average_seek_ms");
        set(&mut model, "average_seek_ms", Some(seek_ms));
        set(&mut model, "full_seek_ms", Some(full_ms));
        set(&mut model, "outer_rate_mb_s", sequential);
        set(&mut model, "inner_rate_mb_s", sequential.map(|rate| rate / 2.0));
    } else {
        set(&mut model, "read_us", Some(random_ms * 1e3));
        set(&mut model, "interface_rate_mb_s", sequential);
        set(&mut model, "write_us", job("randwrite", Some("1")).map(|job| job.write.clat_ns.mean / 1e3));
        set(&mut model, "program_rate_mb_s", job("write", None).map(|job| job.write.bw_bytes / 1e6));
        let flushed = report.jobs.iter().map(|job| job.sync.lat_ns.mean / 1e3).find(|flush| *flush > 0.0);
        set(&mut model, "flush_us", flushed);
    }
    model.medium(0)?;
    Ok(model)
}

impl Report {
    fn is(&self, job: &Job, rw: &str, depth: Option<&str>) -> bool {
        let option = |name: &str| job.options.get(name).or_else(|| self.global.get(name)).map(String::as_str);
        option("rw") == Some(rw) && depth.is_none_or(|depth| option("iodepth").unwrap_or("1") == depth)
    }
}

fn set(model: &mut Model, name: &str, value: Option<f64>) {
    if let Some(value) = value {
        let source = "measured with fio".to_string();
        model.parameters.insert(name.into(), Parameter { value, source });
    }
}
