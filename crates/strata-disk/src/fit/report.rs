//! Reports of fio in JSON, by the jobs that tell something of a disk.
//!
//! A job counts by what it did and not by what was asked: the depth is the one that fio reached (`iodepth_level`, and 1
//! with an engine that waits for each request), and jobs of one group add up. Jobs that measured something else than the
//! disk are refused by their name.

use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use thiserror::Error;

/// Why a report tells nothing of a disk.
#[derive(Debug, Error)]
pub enum ReportError {
    #[error("report of fio: no JSON in it: run fio with --output-format=json")]
    NoJson,
    #[error("report of fio: {0}")]
    Json(#[from] serde_json::Error),
    #[error("report of fio: {0} does not say rw and iodepth of its jobs: use fio 3.2 or later")]
    Old(String),
    #[error("report of fio: it is of clients (--client): run fio on the host that has the disk")]
    Clients,
    #[error("report of fio: it has no jobs")]
    NoJobs,
    #[error("report of fio: job {0} ended with error {1}")]
    Failed(String, i64),
    #[error(
        "report of fio: job {0} has reads and writes in one figure (unified_rw_reporting): leave that out"
    )]
    Mixed(String),
    #[error("report of fio: job {0} went through the page cache: run it with direct=1")]
    Buffered(String),
    #[error("report of fio: job {0} has no latencies (gtod_reduce, disable_clat): leave these out")]
    NoLatencies(String),
    #[error("report of fio: job {0} has bs={1}: random requests of 4k are needed")]
    BlockSize(String, String),
    #[error("report of fio has no job with rw=randread and iodepth=1")]
    NoRandomReads,
    #[error(
        "random reads of {taken_ms:.1} ms are too fast for a disk of {rpm:.0} rpm (at least {least_ms:.1} ms){slow}: \
         give --kind volume, or --kind hdd and --rpm"
    )]
    Between { taken_ms: f64, rpm: f64, least_ms: f64, slow: &'static str },
}

const ENGINES_THAT_WAIT: [&str; 7] = ["psync", "sync", "vsync", "pvsync", "pvsync2", "mmap", "cpuio"];
const PAGE_BYTES: u64 = 4096;

#[derive(Debug, Deserialize)]
struct Text {
    #[serde(default, rename = "fio version")]
    version: String,
    #[serde(default, rename = "global options")]
    global: HashMap<String, String>,
    jobs: Option<Vec<Entry>>,
    client_stats: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(default)]
    jobname: String,
    #[serde(default)]
    groupid: i64,
    #[serde(default)]
    error: i64,
    #[serde(rename = "job options")]
    options: Option<HashMap<String, String>>,
    read: Option<Side>,
    write: Option<Side>,
    mixed: Option<Value>,
    #[serde(default)]
    sync: Sync,
    #[serde(default)]
    iodepth_level: HashMap<String, f64>,
}

#[derive(Debug, Default, Deserialize)]
struct Side {
    /// Bytes a second; fio 3.0 and 3.1 have `bw` alone, in KiB.
    bw_bytes: Option<f64>,
    #[serde(default)]
    bw: f64,
    #[serde(default)]
    iops: f64,
    clat_ns: Option<Latency>,
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

/// Requests of one kind, of all jobs of a group.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Requests {
    pub bytes_per_s: f64,
    pub iops: f64,
    /// Of a request, in nanoseconds.
    pub latency_ns: f64,
}

/// The jobs of one name and group.
#[derive(Debug)]
pub(super) struct Job {
    name: String,
    rw: String,
    block: String,
    /// Requests at once, of all of them.
    pub at_once: u32,
    pub read: Requests,
    pub write: Requests,
    pub flush_ns: f64,
}

/// The jobs of a report, in their order.
#[derive(Debug)]
pub(super) struct Report {
    pub jobs: Vec<Job>,
}

/// Reads a report that may have text of fio around the JSON.
pub(super) fn parse_report(text: &str) -> Result<Report, ReportError> {
    let begins = |line: &str| line.trim_start().starts_with('{');
    let skipped = text.split_inclusive('\n').take_while(|line| !begins(line)).map(str::len).sum();
    let mut values = serde_json::Deserializer::from_str(&text[skipped..]).into_iter::<Text>();
    let report = values.next().ok_or(ReportError::NoJson)??;
    if report.version.starts_with("fio-2") || report.version.starts_with("fio-1") {
        return Err(ReportError::Old(report.version.replace('-', " ")));
    }
    if report.client_stats.is_some() {
        return Err(ReportError::Clients);
    }
    let entries = report.jobs.filter(|jobs| !jobs.is_empty()).ok_or(ReportError::NoJobs)?;
    let mut jobs: Vec<(i64, usize, Job)> = Vec::new();
    for entry in entries {
        let (group, asked, job) = (entry.groupid, entry.asked(&report.global), entry.job(&report.global)?);
        match jobs.iter_mut().find(|(known, _, one)| *known == group && one.is_of(&job)) {
            Some((_, entries, known)) => {
                *entries += 1;
                known.add(&job, *entries, asked.at_once);
            }
            None => jobs.push((group, 1, job)),
        }
    }
    Ok(Report { jobs: jobs.into_iter().map(|(_, _, job)| job).collect() })
}

/// What was asked of a job.
struct Asked {
    rw: String,
    block: String,
    at_once: u32,
    jobs: u32,
    direct: bool,
}

impl Entry {
    fn asked(&self, global: &HashMap<String, String>) -> Asked {
        let own = self.options.as_ref();
        let option =
            |name: &str| own.and_then(|all| all.get(name)).or_else(|| global.get(name)).map(String::as_str);
        let number = |name: &str| option(name).and_then(|text| text.parse().ok()).unwrap_or(1).max(1);
        let waits = option("ioengine").is_some_and(|engine| ENGINES_THAT_WAIT.contains(&engine));
        let shallow = self.iodepth_level.get("1").is_some_and(|share| *share > 99.0);
        Asked {
            rw: option("rw").or_else(|| option("readwrite")).unwrap_or_default().into(),
            block: option("bs").or_else(|| option("blocksize")).unwrap_or("4k").into(),
            at_once: if waits || shallow { 1 } else { number("iodepth") },
            jobs: number("numjobs"),
            direct: option("direct") == Some("1") || option("buffered") == Some("0"),
        }
    }

    fn job(self, global: &HashMap<String, String>) -> Result<Job, ReportError> {
        let asked = self.asked(global);
        if self.error != 0 {
            return Err(ReportError::Failed(self.jobname, self.error));
        }
        if self.mixed.is_some() {
            return Err(ReportError::Mixed(self.jobname));
        }
        if !asked.direct {
            return Err(ReportError::Buffered(self.jobname));
        }
        let requests = |side: Option<Side>| side.unwrap_or_default().requests();
        Ok(Job {
            name: self.jobname,
            rw: asked.rw,
            block: asked.block,
            at_once: asked.at_once.saturating_mul(asked.jobs),
            read: requests(self.read),
            write: requests(self.write),
            flush_ns: self.sync.lat_ns.mean,
        })
    }
}

impl Side {
    fn requests(self) -> Requests {
        Requests {
            bytes_per_s: self.bw_bytes.unwrap_or(self.bw * 1024.0),
            iops: self.iops,
            latency_ns: self.clat_ns.unwrap_or_default().mean,
        }
    }
}

impl Job {
    /// Jobs without a name are of no group.
    fn is_of(&self, other: &Job) -> bool {
        !self.name.is_empty() && (&self.name, &self.rw, &self.block) == (&other.name, &other.rw, &other.block)
    }

    /// Adds one more job of the same name and group: `entries` is how many there are now. Where each has an entry of its
    /// own, `numjobs` is not counted once more.
    fn add(&mut self, other: &Job, entries: usize, each: u32) {
        self.read.add(other.read);
        self.write.add(other.write);
        self.flush_ns = self.flush_ns.max(other.flush_ns);
        self.at_once = each.saturating_mul(u32::try_from(entries).unwrap_or(u32::MAX));
    }

    fn is_random_page(&self) -> bool {
        let text = self.block.split(',').next().unwrap_or_default().trim().to_lowercase();
        let digits = text.trim_end_matches(['k', 'i', 'b']);
        let unit = if text.len() > digits.len() && text[digits.len()..].starts_with('k') { 1024 } else { 1 };
        digits.parse::<u64>().is_ok_and(|number| number.saturating_mul(unit) == PAGE_BYTES)
    }
}

impl Requests {
    fn add(&mut self, other: Requests) {
        let all = self.iops + other.iops;
        if all > 0.0 {
            self.latency_ns = (self.latency_ns * self.iops + other.latency_ns * other.iops) / all;
        }
        self.iops = all;
        self.bytes_per_s += other.bytes_per_s;
    }
}

impl Report {
    /// The first job that reads or writes sequentially.
    pub(super) fn sequential(&self, rw: &str) -> Option<&Job> {
        self.jobs.iter().find(|job| job.rw == rw)
    }

    /// The first job of random pages with so many requests at once.
    pub(super) fn random(&self, rw: &str, wanted: impl Fn(u32) -> bool) -> Result<Option<&Job>, ReportError> {
        let Some(job) = self.jobs.iter().find(|job| job.rw == rw && wanted(job.at_once)) else {
            return Ok(None);
        };
        if !job.is_random_page() {
            return Err(ReportError::BlockSize(job.name.clone(), job.block.clone()));
        }
        let requests = if rw == "randread" { job.read } else { job.write };
        // A job that has rates and no latencies was told not to look at the clock.
        if requests.iops > 0.0 && requests.latency_ns <= 0.0 {
            return Err(ReportError::NoLatencies(job.name.clone()));
        }
        Ok(Some(job))
    }
}
