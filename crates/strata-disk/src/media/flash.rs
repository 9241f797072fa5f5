//! A disk of flash: channels that read and program independently, a cache, and cleaning under sustained random writes.
//!
//! A read takes the channel of its stripe for one read; a write completes in the cache while that has room. The cache
//! drains at the rate at which the channels program. Random writes use up the reserve of erased blocks; without it every
//! write costs its amplification. Idle time and sequential writes restore the reserve. A flush of a volatile cache takes
//! its own time and that of draining; a protected cache answers after the former.

use super::parameters::{ModelError, Parameters};
use super::{Effort, Kind, Medium, Ns, Ready, Request, SECOND, ns};

const US: f64 = 1e-6;

#[derive(Debug, Clone)]
pub(crate) struct FlashParameters {
    channels: usize,
    stripe_bytes: f64,
    read_s: f64,
    write_s: f64,
    flush_s: f64,
    command_s: f64,
    interface_rate: f64,
    program_rate: f64,
    cache_bytes: f64,
    reserve_bytes: f64,
    amplification: f64,
}

impl FlashParameters {
    pub(super) fn read(from: &mut Parameters<'_>) -> Result<Self, ModelError> {
        from.take("capacity_bytes", 1e9..=1e15)?;
        Ok(Self {
            channels: from.take("channels", 1.0..=1024.0)? as usize,
            stripe_bytes: from.take("stripe_bytes", 512.0..=1e7)?,
            read_s: from.take("read_us", 0.1..=1e5)? * US,
            write_s: from.take("write_us", 0.1..=1e5)? * US,
            flush_s: from.take("flush_us", 0.1..=1e6)? * US,
            command_s: 1.0 / from.take("interface_iops", 100.0..=1e8)?,
            interface_rate: from.take("interface_rate_mb_s", 10.0..=1e5)? * 1e6,
            program_rate: from.take("program_rate_mb_s", 1.0..=1e5)? * 1e6,
            cache_bytes: from.take("cache_bytes", 1e6..=1e11)?,
            reserve_bytes: from.take("reserve_bytes", 0.0..=1e14)?,
            amplification: from.take("write_amplification", 1.0..=100.0)?,
        })
    }
}

pub(crate) struct Flash {
    of: FlashParameters,
    volatile_cache: bool,
    channels: Vec<Ns>,
    interface_free: Ns,
    /// Bytes in the cache that are not programmed, and erased bytes in reserve, as of `drained`.
    level: f64,
    reserve: f64,
    drained: Ns,
    /// Until when a flush takes its own time.
    flushing: Ns,
    /// Where a sequential write would go on.
    sequence: u64,
    ready: Ready,
    effort: Effort,
}

impl Flash {
    pub(crate) fn new(of: FlashParameters, volatile_cache: bool) -> Self {
        Self {
            channels: vec![0; of.channels],
            volatile_cache,
            interface_free: 0,
            level: 0.0,
            reserve: of.reserve_bytes,
            drained: 0,
            flushing: 0,
            sequence: 0,
            ready: Ready::default(),
            effort: Effort::default(),
            of,
        }
    }

    fn rate(&self) -> f64 {
        self.of.program_rate / if self.reserve > 0.0 { 1.0 } else { self.of.amplification }
    }

    /// The cache drains; what the channels do not need for that cleans blocks.
    fn drain(&mut self, now: Ns) {
        let able = self.rate() * now.saturating_sub(self.drained) as f64 / SECOND;
        let drained = able.min(self.level);
        self.level -= drained;
        self.effort.drained_bytes += drained as u64;
        self.reserve = (self.reserve + (able - drained) / self.of.amplification).min(self.of.reserve_bytes);
        self.drained = self.drained.max(now);
    }

    /// Commands and data share the interface.
    fn transfer(&mut self, now: Ns, length: u64) -> Ns {
        let taken = ns(self.of.command_s.max(length as f64 / self.of.interface_rate));
        self.interface_free = self.interface_free.max(now) + taken;
        self.effort.transfer_s += taken as f64 / SECOND;
        self.interface_free
    }

    fn read(&mut self, now: Ns, request: Request) -> Ns {
        let sent = self.transfer(now, request.length);
        let first = (request.offset as f64 / self.of.stripe_bytes) as u64;
        let last = ((request.offset + request.length.max(1) - 1) as f64 / self.of.stripe_bytes) as u64;
        let taken = ns(self.of.read_s);
        let mut done = sent;
        for stripe in first..=last {
            let channel = &mut self.channels[scattered(stripe) as usize % self.of.channels];
            *channel = (*channel).max(now) + taken;
            done = done.max(*channel);
            self.effort.busy_s += self.of.read_s / self.of.channels as f64;
        }
        done
    }

    fn write(&mut self, now: Ns, request: Request) -> Ns {
        self.drain(now);
        let length = request.length as f64;
        if request.offset != self.sequence {
            self.reserve = (self.reserve - length).max(0.0);
        }
        self.sequence = request.offset + request.length;
        self.level += length;
        self.effort.busy_s += length / self.rate();
        let room = ns((self.level - self.of.cache_bytes).max(0.0) / self.rate());
        (self.transfer(now, request.length) + ns(self.of.write_s)).max(now + room)
    }

    /// Its own time is work, of which flushes at once share what they have in common; draining counted with the writes.
    fn flush(&mut self, now: Ns) -> Ns {
        self.drain(now);
        let draining = if self.volatile_cache { self.level / self.rate() } else { 0.0 };
        let begin = self.interface_free.max(now);
        let own = begin + ns(self.of.flush_s);
        self.effort.busy_s += own.saturating_sub(self.flushing.max(begin)) as f64 / SECOND;
        self.flushing = self.flushing.max(own);
        own + ns(draining)
    }
}

impl Medium for Flash {
    fn submit(&mut self, now: Ns, id: u64, request: Request) {
        let at = match request.kind {
            Kind::Read => self.read(now, request),
            Kind::Write => self.write(now, request),
            Kind::Zero => self.transfer(now, 0) + ns(self.of.write_s),
            Kind::Flush => self.flush(now),
        };
        self.ready.push(at, id);
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

/// A stripe's place by a hash, as a translation layer scatters addresses.
fn scattered(stripe: u64) -> u64 {
    stripe.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}
