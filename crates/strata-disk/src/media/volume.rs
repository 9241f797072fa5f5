//! A network volume: a latency that varies, and buckets for requests, bandwidth and burst.
//!
//! Requests beyond `io_bytes` count as several. While the burst bucket holds credits the burst rate applies, and it is
//! filled by what the base rate leaves. What has completed is durable, as providers state; a flush is one round trip.
//! Busy are the buckets: the time for which a request uses up what its rate allows. The latency, all that a flush takes, is
//! that of a network, where any number are under way.

use super::parameters::{ModelError, ParameterError, Parameters};
use super::{Effort, Kind, Medium, Ns, Ready, Request, SECOND, ns};
use crate::rng::Rng;

const US: f64 = 1e-6;

#[derive(Debug, Clone)]
pub(crate) struct VolumeParameters {
    base_iops: f64,
    burst_iops: f64,
    burst_credits: f64,
    io_bytes: f64,
    rate: f64,
    latency_s: f64,
    spread: f64,
}

impl VolumeParameters {
    pub(super) fn read(from: &mut Parameters<'_>) -> Result<Self, ModelError> {
        from.take("capacity_bytes", 1e9..=1e15)?;
        let read = Self {
            base_iops: from.take("base_iops", 1.0..=1e6)?,
            burst_iops: from.take("burst_iops", 1.0..=1e6)?,
            burst_credits: from.take("burst_credits", 0.0..=1e9)?,
            io_bytes: from.take("io_bytes", 512.0..=1e7)?,
            rate: from.take("rate_mb_s", 1.0..=1e5)? * 1e6,
            latency_s: from.take("latency_us", 1.0..=1e6)? * US,
            spread: from.take("latency_spread", 0.0..=2.0)?,
        };
        if read.burst_iops < read.base_iops {
            return Err(from.error(ParameterError::Unfit("the burst rate is below the base rate")));
        }
        Ok(read)
    }
}

pub(crate) struct Volume {
    of: VolumeParameters,
    credits: f64,
    refilled: Ns,
    requests_free: Ns,
    bandwidth_free: Ns,
    rng: Rng,
    ready: Ready,
    effort: Effort,
}

impl Volume {
    pub(crate) fn new(of: VolumeParameters, seed: u64) -> Self {
        Self {
            credits: of.burst_credits,
            of,
            refilled: 0,
            requests_free: 0,
            bandwidth_free: 0,
            rng: Rng::new(seed),
            ready: Ready::default(),
            effort: Effort::default(),
        }
    }

    /// When the buckets let this request through.
    fn admitted(&mut self, now: Ns, length: u64) -> Ns {
        let requests = (length as f64 / self.of.io_bytes).ceil().max(1.0);
        let earned = self.of.base_iops * now.saturating_sub(self.refilled) as f64 / SECOND;
        self.credits = (self.credits + earned).min(self.of.burst_credits);
        self.refilled = self.refilled.max(now);
        let rate = if self.credits >= requests { self.of.burst_iops } else { self.of.base_iops };
        // A request at the base rate takes what is earned meanwhile.
        self.credits = (self.credits - requests).max(-requests);
        let begin = self.requests_free.max(now);
        self.requests_free = begin + ns(requests / rate);
        self.bandwidth_free = self.bandwidth_free.max(now) + ns(length as f64 / self.of.rate);
        self.effort.transfer_s += length as f64 / self.of.rate;
        self.effort.busy_s += (requests / rate).max(length as f64 / self.of.rate);
        begin.max(self.bandwidth_free)
    }

    /// Log-normal about the stated median.
    fn latency(&mut self) -> Ns {
        let (u, v) = (1.0 - self.rng.unit(), self.rng.unit());
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        ns(self.of.latency_s * (self.of.spread * normal).exp())
    }
}

impl Medium for Volume {
    fn submit(&mut self, now: Ns, id: u64, request: Request) {
        let begin = match request.kind {
            Kind::Read | Kind::Write => self.admitted(now, request.length),
            Kind::Zero => self.admitted(now, 0),
            Kind::Flush => now,
        };
        let latency = self.latency();
        self.ready.push(begin + latency, id);
    }

    fn next_due(&self) -> Option<Ns> {
        self.ready.next()
    }

    fn take_due(&mut self, now: Ns) -> Option<(u64, Ns)> {
        self.ready.take(now)
    }

    fn effort(&self) -> Effort {
        self.effort
    }
}
