//! The figures of a replay.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;

/// Times in microseconds, in two significant digits, of any length.
#[derive(Clone)]
pub(super) struct Times(Histogram<u32>);

impl Default for Times {
    fn default() -> Times {
        Times(Histogram::new(2).expect("two digits are possible"))
    }
}

impl Times {
    pub(super) fn add(&mut self, ns: u64) {
        // a histogram that resizes by itself takes every value
        let _ = self.0.record(ns / 1000);
    }

    fn merge(&mut self, other: &Times) {
        let _ = self.0.add(&other.0);
    }

    fn figures(&self) -> Figures {
        let ms = |us: u64| us as f64 / 1000.0;
        let at = |quantile| ms(self.0.value_at_quantile(quantile));
        let (mean_ms, max_ms) = (self.0.mean() / 1000.0, ms(self.0.max()));
        Figures { mean_ms, p50_ms: at(0.5), p95_ms: at(0.95), p99_ms: at(0.99), max_ms }
    }
}

/// Times in milliseconds; percentiles to two significant digits.
#[derive(Debug, Serialize)]
pub struct Figures {
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

/// Counts of one thread.
#[derive(Default)]
pub(super) struct Counts {
    pub statements: u64,
    pub transactions: u64,
    pub errors: BTreeMap<String, u64>,
    pub latency: Times,
    pub response: Times,
    pub driver: Times,
    pub server: Times,
    pub digests: Vec<(u64, u64, Times)>,
    pub lost: u64,
    pub lost_because: Option<String>,
    pub end_ns: u64,
    pub gave_up: bool,
}

impl Counts {
    pub(super) fn merge(mut self, other: Counts) -> Counts {
        self.statements += other.statements;
        self.transactions += other.transactions;
        for (state, count) in other.errors {
            *self.errors.entry(state).or_default() += count;
        }
        self.latency.merge(&other.latency);
        self.response.merge(&other.response);
        self.driver.merge(&other.driver);
        self.server.merge(&other.server);
        self.digests.resize_with(self.digests.len().max(other.digests.len()), Default::default);
        for (mine, theirs) in self.digests.iter_mut().zip(&other.digests) {
            mine.0 += theirs.0;
            mine.1 += theirs.1;
            mine.2.merge(&theirs.2);
        }
        self.lost += other.lost;
        self.lost_because = self.lost_because.or(other.lost_because);
        self.end_ns = self.end_ns.max(other.end_ns);
        self.gave_up |= other.gave_up;
        self
    }
}

/// One second of a replay.
#[derive(Debug, Serialize)]
pub struct Second {
    pub second: u64,
    pub statements: u64,
    pub transactions: u64,
}

/// The result of a replay.
#[derive(Debug, Serialize)]
pub struct Outcome {
    pub seconds: f64,
    pub statements: u64,
    /// Statements after which no transaction was open, and that did not fail.
    pub transactions: u64,
    pub tps: f64,
    pub statements_per_s: f64,
    /// Statements that were not sent, or had no answer.
    pub unfinished: u64,
    /// Failed statements by SQLSTATE.
    pub errors: BTreeMap<String, u64>,
    pub sessions: usize,
    pub connections: usize,
    pub threads: usize,
    pub lost_connections: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_because: Option<String>,
    /// No answer came for the given patience.
    pub gave_up: bool,
    /// From sending to the answer.
    pub latency: Figures,
    /// From the time at which a statement was due to the answer.
    pub response: Figures,
    /// From the time at which a statement could be sent until it was.
    pub lateness_driver: Figures,
    /// From the time at which a statement was due until the server had answered the one before it.
    pub lateness_server: Figures,
    pub digests: Vec<DigestFigures>,
}

#[derive(Debug, Serialize)]
pub struct DigestFigures {
    pub digest: String,
    pub statement: String,
    pub count: u64,
    pub errors: u64,
    /// Of the latency of all statements.
    pub share: f64,
    #[serde(flatten)]
    pub latency: Figures,
}

pub(super) struct Setting {
    pub sessions: usize,
    pub connections: usize,
    pub threads: usize,
    pub total: u64,
}

/// The result of what all threads counted.
pub(super) fn outcome(counts: &Counts, names: &[(String, String)], setting: &Setting) -> Outcome {
    let seconds = counts.end_ns as f64 / 1e9;
    let total = |times: &Times| times.0.mean() * times.0.len() as f64;
    let whole = total(&counts.latency).max(f64::MIN_POSITIVE);
    let mut digests: Vec<DigestFigures> = counts
        .digests
        .iter()
        .zip(names)
        .filter(|((count, _, _), _)| *count > 0)
        .map(|((count, errors, times), (digest, statement))| DigestFigures {
            digest: digest.clone(),
            statement: statement.clone(),
            count: *count,
            errors: *errors,
            share: total(times) / whole,
            latency: times.figures(),
        })
        .collect();
    digests.sort_by(|a, b| b.share.total_cmp(&a.share));
    let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    Outcome {
        seconds,
        statements: counts.statements,
        transactions: counts.transactions,
        tps: rate(counts.transactions),
        statements_per_s: rate(counts.statements),
        unfinished: setting.total.saturating_sub(counts.statements),
        errors: counts.errors.clone(),
        sessions: setting.sessions,
        connections: setting.connections,
        threads: setting.threads,
        lost_connections: counts.lost,
        lost_because: counts.lost_because.clone(),
        gave_up: counts.gave_up,
        latency: counts.latency.figures(),
        response: counts.response.figures(),
        lateness_driver: counts.driver.figures(),
        lateness_server: counts.server.figures(),
        digests,
    }
}
