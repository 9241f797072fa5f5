//! A model proposed from measurements of a disk: a report of fio in JSON.
//!
//! Random 4 KiB reads at depth 1 decide whether it is a disk that turns (half a turn and an overhead at least) or flash
//! (2 ms at most), and flushes of less than 100 us that flash has a protected cache; what lies between is told with
//! `Kind`. What was not measured keeps the value of the supplied model that the proposal starts from; every source says
//! which of these it is: measured, an assumption, or the supplied model's. Of a disk that turns reads alone are used: its
//! writes and flushes follow from where they lie.

mod report;

pub use report::ReportError;

use crate::media::model::{Model, find_model};
use crate::media::parameters::{ModelError, Parameter};
use report::{Report, parse_report};
use thiserror::Error;

/// What a disk is said to be, where its reads alone do not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Hdd,
    Flash,
    Volume,
}

/// What is known of a disk beside its report.
#[derive(Debug, Default, Clone, Copy)]
pub struct Known {
    pub capacity_bytes: Option<u64>,
    pub kind: Option<Kind>,
    /// Turns a minute.
    pub rpm: Option<f64>,
}

/// Why a report gives no model.
#[derive(Debug, Error)]
pub enum FitError {
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// Random reads of flash take no longer.
const FLASH_MS: f64 = 2.0;
const LEAST_SEEK_MS: f64 = 0.01;
/// A flush that takes no longer leaves the data in a cache that keeps it.
const PROTECTED_US: f64 = 100.0;
/// Reads at once from which on the disk is the limit.
const DEEP: u32 = 16;
const AT_DEPTH_1: &str = "measured with fio: random reads at depth 1";
const SEQUENTIAL: &str = "measured with fio: sequential reads";

/// The model that the report of fio suggests, checked as a model file is.
pub fn fit(text: &str, name: &str, known: Known) -> Result<Model, FitError> {
    let report = parse_report(text)?;
    let random = report.random("randread", |at_once| at_once == 1)?.ok_or(ReportError::NoRandomReads)?;
    let random_ms = random.read.latency_ns / 1e6;
    let kind = known.kind.unwrap_or(if known.rpm.is_none() && random_ms <= FLASH_MS {
        Kind::Flash
    } else {
        Kind::Hdd
    });
    let mut model = match kind {
        Kind::Hdd => turning(&report, random_ms, known)?,
        Kind::Flash => flash(&report, random_ms)?,
        Kind::Volume => volume(&report, random_ms)?,
    };
    model.name = name.into();
    let capacity = known.capacity_bytes.map(|bytes| bytes as f64);
    set(&mut model, "capacity_bytes", capacity, "as given with --capacity");
    model.medium(0)?;
    Ok(model)
}

fn turning(report: &Report, random_ms: f64, known: Known) -> Result<Model, FitError> {
    let mut model = beginning("hdd-7200")?;
    set(&mut model, "rotation_rpm", known.rpm, "as given with --rpm");
    let sequential = report.sequential("read").map(|job| job.read.bytes_per_s / 1e6);
    let value = |of: &str| model.parameters[of].value;
    let (rpm, overhead_ms) = (value("rotation_rpm"), value("command_overhead_ms"));
    let seek_ms = random_ms - 30_000.0 / rpm - overhead_ms;
    if seek_ms < LEAST_SEEK_MS {
        let told = known.kind.is_some() || known.rpm.is_some() || random_ms <= FLASH_MS;
        let slow = if told { "" } else { " and too slow for flash (at most 2 ms)" };
        let least_ms = 30_000.0 / rpm + overhead_ms + LEAST_SEEK_MS;
        return Err(ReportError::Between { taken_ms: random_ms, rpm, least_ms, slow }.into());
    }
    let full_ms = seek_ms * value("full_seek_ms") / value("average_seek_ms");
    let less = "a random read as measured with fio, less half a turn and the overhead of a command, which were not measured";
    set(&mut model, "average_seek_ms", Some(seek_ms), less);
    let ratio = "assumption: longer than the average seek by as much as on hdd-7200";
    set(&mut model, "full_seek_ms", Some(full_ms), ratio);
    set(&mut model, "outer_rate_mb_s", sequential, SEQUENTIAL);
    let half = "assumption: half of the measured outer rate";
    set(&mut model, "inner_rate_mb_s", sequential.map(|rate| rate / 2.0), half);
    Ok(model)
}

/// A network volume: its rate at depth is its limit, with no burst beyond it.
fn volume(report: &Report, random_ms: f64) -> Result<Model, FitError> {
    let mut model = beginning("cloud-volume")?;
    set(&mut model, "latency_us", Some(random_ms * 1e3), AT_DEPTH_1);
    if let Some(deep) = report.random("randread", |at_once| at_once >= DEEP)? {
        set(&mut model, "base_iops", Some(deep.read.iops), "measured with fio: random reads at depth");
        set(&mut model, "burst_iops", Some(deep.read.iops), "assumption: no burst beyond the measured rate");
    }
    let sequential = report.sequential("read").map(|job| job.read.bytes_per_s / 1e6);
    set(&mut model, "rate_mb_s", sequential, SEQUENTIAL);
    Ok(model)
}

fn flash(report: &Report, random_ms: f64) -> Result<Model, FitError> {
    let flushed = report.jobs.iter().map(|job| job.flush_ns / 1e3).find(|flush| *flush > 0.0);
    let protected = flushed.is_some_and(|flush| flush < PROTECTED_US);
    let mut model = beginning(if protected { "sata-ssd-plp" } else { "sata-ssd" })?;
    let read_us = random_ms * 1e3;
    set(&mut model, "read_us", Some(read_us), AT_DEPTH_1);
    let deep = report.random("randread", |at_once| at_once >= DEEP)?;
    if let Some(iops) = deep.map(|job| job.read.iops).filter(|iops| *iops > 0.0) {
        set(&mut model, "interface_iops", Some(iops), "measured with fio: random reads at depth");
        let at_once = (iops * read_us / 1e6).ceil().max(1.0);
        set(
            &mut model,
            "channels",
            Some(at_once),
            "as many reads at once as give the measured rate at depth",
        );
    }
    let sequential = report.sequential("read").map(|job| job.read.bytes_per_s / 1e6);
    set(&mut model, "interface_rate_mb_s", sequential, SEQUENTIAL);
    let command_us = 1e6 / model.parameters["interface_iops"].value;
    let written = report.random("randwrite", |at_once| at_once == 1)?.map(|job| job.write.latency_ns / 1e3);
    let less = "measured with fio: random writes at depth 1, less a command of the interface";
    set(&mut model, "write_us", written.map(|taken| (taken - command_us).max(1.0)), less);
    let programmed = report.sequential("write").map(|job| job.write.bytes_per_s / 1e6);
    set(&mut model, "program_rate_mb_s", programmed, "measured with fio: sequential writes");
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

fn set(model: &mut Model, name: &str, value: Option<f64>, source: &str) {
    if let Some(value) = value {
        model.parameters.insert(name.into(), Parameter { value, source: source.into() });
    }
}
