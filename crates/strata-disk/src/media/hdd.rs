//! A disk with an arm and a platter.
//!
//! Addresses run from the outer edge inwards in zones of constant rate. The angle of an address follows from the time
//! that reading everything before it takes, so that sequential transfers never wait for the platter: track and cylinder
//! skew are within the rates. A seek takes a + b sqrt(d) + c d over the share d of cylinders, with the coefficients that
//! give the stated track to track, average and full stroke times (the mean of sqrt(d) over random pairs is 8/15, that of
//! d is 1/3). Reads are served nearest in time first among as many as the queue holds. Writes complete in the cache
//! while it has room, and are drained in elevator order whenever the arm is free. A flush drains everything, and
//! later requests wait for it, as the command of ATA that is not queued makes them.

use super::parameters::{ModelError, ParameterError, Parameters};
use super::{Effort, Kind, Medium, Ns, Ready, Request, SECOND, ns};
use std::collections::{BTreeMap, VecDeque};

const MS: f64 = 1e-3;
const MIB: f64 = 1024.0 * 1024.0;

#[derive(Debug, Clone)]
pub(crate) struct HddParameters {
    capacity_bytes: f64,
    revolutions_s: f64,
    heads: f64,
    zones: usize,
    outer_rate: f64,
    inner_rate: f64,
    track_to_track_s: f64,
    average_seek_s: f64,
    full_seek_s: f64,
    write_settle_s: f64,
    overhead_s: f64,
    interface_rate: f64,
    cache_bytes: u64,
    read_ahead_bytes: u64,
    queue_depth: usize,
}

impl HddParameters {
    pub(super) fn read(from: &mut Parameters<'_>) -> Result<Self, ModelError> {
        let read = Self {
            capacity_bytes: from.take("capacity_bytes", 1e9..=1e14)?,
            revolutions_s: from.take("rotation_rpm", 1000.0..=30000.0)? / 60.0,
            heads: from.take("heads", 1.0..=40.0)?.round(),
            zones: from.take("zones", 1.0..=1000.0)? as usize,
            outer_rate: from.take("outer_rate_mb_s", 1.0..=2000.0)? * 1e6,
            inner_rate: from.take("inner_rate_mb_s", 1.0..=2000.0)? * 1e6,
            track_to_track_s: from.take("track_to_track_ms", 0.01..=100.0)? * MS,
            average_seek_s: from.take("average_seek_ms", 0.01..=200.0)? * MS,
            full_seek_s: from.take("full_seek_ms", 0.01..=400.0)? * MS,
            write_settle_s: from.take("write_settle_ms", 0.0..=10.0)? * MS,
            overhead_s: from.take("command_overhead_ms", 0.0..=10.0)? * MS,
            interface_rate: from.take("interface_rate_mb_s", 10.0..=10000.0)? * 1e6,
            cache_bytes: from.take("cache_bytes", MIB..=1e10)? as u64,
            read_ahead_bytes: from.take("read_ahead_bytes", 0.0..=1e9)? as u64,
            queue_depth: from.take("queue_depth", 1.0..=1024.0)? as usize,
        };
        if read.inner_rate > read.outer_rate {
            return Err(from.error(ParameterError::Unfit("the inner zone is faster than the outer one")));
        }
        if read.track_to_track_s > read.average_seek_s || read.average_seek_s > read.full_seek_s {
            return Err(from.error(ParameterError::Unfit(
                "seek times do not grow from track to track over average to full",
            )));
        }
        if Seek::new(&read).root < 0.0 || Seek::new(&read).at(0.25) > Seek::new(&read).at(1.0) {
            return Err(from.error(ParameterError::Unfit("no seek curve has these times")));
        }
        Ok(read)
    }
}

#[derive(Debug, Clone, Copy)]
struct Seek {
    base: f64,
    root: f64,
    slope: f64,
}

impl Seek {
    fn new(of: &HddParameters) -> Self {
        let (average, full) = (of.average_seek_s - of.track_to_track_s, of.full_seek_s - of.track_to_track_s);
        // average = 8/15 root + 1/3 slope; full = root + slope
        let root = (average - full / 3.0) / (8.0 / 15.0 - 1.0 / 3.0);
        Self { base: of.track_to_track_s, root, slope: full - root }
    }

    fn at(&self, share: f64) -> f64 {
        self.base + self.root * share.sqrt() + self.slope * share
    }
}

/// Where addresses lie: seconds of reading from the start of the disk.
#[derive(Debug, Clone)]
struct Layout {
    zone_bytes: f64,
    rates: Vec<f64>,
    starts_s: Vec<f64>,
    total_s: f64,
}

impl Layout {
    fn new(of: &HddParameters) -> Self {
        let zone_bytes = of.capacity_bytes / of.zones as f64;
        let step = (of.outer_rate - of.inner_rate) / (of.zones as f64 - 1.0).max(1.0);
        let rates: Vec<f64> = (0..of.zones).map(|zone| of.outer_rate - step * zone as f64).collect();
        let mut total_s = 0.0;
        let starts_s = rates
            .iter()
            .map(|rate| {
                total_s += zone_bytes / rate;
                total_s - zone_bytes / rate
            })
            .collect();
        Self { zone_bytes, rates, starts_s, total_s }
    }

    fn zone(&self, offset: u64) -> usize {
        ((offset as f64 / self.zone_bytes) as usize).min(self.rates.len() - 1)
    }

    fn time(&self, offset: u64) -> f64 {
        let zone = self.zone(offset);
        self.starts_s[zone] + (offset as f64 - zone as f64 * self.zone_bytes) / self.rates[zone]
    }

    fn rate(&self, offset: u64) -> f64 {
        self.rates[self.zone(offset)]
    }
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    id: u64,
    request: Request,
}

#[derive(Debug, Clone, Copy)]
enum Job {
    Read(Pending),
    Drain { bytes: u64 },
}

#[derive(Debug, Clone, Copy)]
struct Active {
    job: Job,
    end: u64,
    until: Ns,
}

/// What the platter has passed by since the last read: `from` up to what was read until the arm left.
#[derive(Debug, Clone, Copy, Default)]
struct TrackBuffer {
    start: u64,
    from: u64,
    since: Ns,
    limit: u64,
    left: Option<Ns>,
}

pub(crate) struct Hdd {
    of: HddParameters,
    seek: Seek,
    layout: Layout,
    head: u64,
    reads: Vec<Pending>,
    waiting_writes: VecDeque<Pending>,
    /// Extents in the cache that are not on the platter, by start.
    dirty: BTreeMap<u64, u64>,
    dirty_bytes: u64,
    flush: Option<Pending>,
    behind_flush: VecDeque<Pending>,
    active: Option<Active>,
    buffer: TrackBuffer,
    interface_free: Ns,
    drained_last: bool,
    ready: Ready,
    effort: Effort,
}

impl Hdd {
    pub(crate) fn new(of: HddParameters) -> Self {
        Self {
            seek: Seek::new(&of),
            layout: Layout::new(&of),
            of,
            head: 0,
            reads: Vec::new(),
            waiting_writes: VecDeque::new(),
            dirty: BTreeMap::new(),
            dirty_bytes: 0,
            flush: None,
            behind_flush: VecDeque::new(),
            active: None,
            buffer: TrackBuffer::default(),
            interface_free: 0,
            drained_last: false,
            ready: Ready::default(),
            effort: Effort::default(),
        }
    }

    /// Seconds of seeking and of waiting for the platter before an access at `offset` can begin.
    fn positioning(&self, now: Ns, offset: u64, write: bool) -> (f64, f64) {
        let (here, there) = (self.layout.time(self.head), self.layout.time(offset));
        let cylinder_s = self.of.heads / self.of.revolutions_s;
        let apart = (there - here).abs();
        let settle = if write { self.of.write_settle_s } else { 0.0 };
        let seek = if apart < cylinder_s { 0.0 } else { self.seek.at(apart / self.layout.total_s) + settle };
        let platter = (now as f64 / SECOND + seek) * self.of.revolutions_s;
        let turn = (there * self.of.revolutions_s - platter).rem_euclid(1.0);
        (seek, turn / self.of.revolutions_s)
    }

    fn admit(&mut self, now: Ns, pending: Pending) {
        if self.flush.is_some() {
            self.behind_flush.push_back(pending);
            return;
        }
        match pending.request.kind {
            Kind::Read => self.admit_read(now, pending),
            Kind::Write if self.waiting_writes.is_empty() => self.admit_write(now, pending),
            Kind::Write => self.waiting_writes.push_back(pending),
            Kind::Zero => self.ready.push(now + ns(self.of.overhead_s), pending.id),
            Kind::Flush => {
                self.flush = Some(pending);
                self.finish_flush(now);
            }
        }
    }

    fn admit_read(&mut self, now: Ns, pending: Pending) {
        let (start, end) = (pending.request.offset, pending.request.offset + pending.request.length);
        let cached = self.dirty.range(..=start).next_back().is_some_and(|(_, last)| *last >= end);
        if let Some(at) = if cached { Some(now) } else { self.passed(now, start, end) } {
            self.effort.cache_hits += 1;
            let at = self.transfer(at.max(now), pending.request.length);
            self.ready.push(at, pending.id);
        } else {
            self.reads.push(pending);
        }
    }

    /// When the track buffer holds the range: now, soon because the platter is just passing it, or not at all.
    fn passed(&mut self, now: Ns, start: u64, end: u64) -> Option<Ns> {
        let buffer = self.buffer;
        if start < buffer.start || end > buffer.limit || start > buffer.limit {
            return None;
        }
        let at = buffer.since + ns(end.saturating_sub(buffer.from) as f64 / self.layout.rate(buffer.from));
        if buffer.left.is_some_and(|left| at > left) {
            return None;
        }
        self.buffer.limit = buffer.limit.max(end + self.of.read_ahead_bytes);
        self.buffer.start = buffer.start.max(end.saturating_sub(self.of.read_ahead_bytes));
        Some(at.max(now))
    }

    fn admit_write(&mut self, now: Ns, pending: Pending) {
        let length = pending.request.length;
        if self.dirty_bytes > 0 && self.dirty_bytes + length > self.of.cache_bytes {
            self.waiting_writes.push_back(pending);
            return;
        }
        self.insert_dirty(pending.request.offset, pending.request.offset + length);
        let at = self.transfer(now, length);
        self.ready.push(at, pending.id);
    }

    fn transfer(&mut self, now: Ns, length: u64) -> Ns {
        let begin = self.interface_free.max(now + ns(self.of.overhead_s));
        self.interface_free = begin + ns(length as f64 / self.of.interface_rate);
        self.interface_free
    }

    /// Merges the range into the dirty extents.
    fn insert_dirty(&mut self, mut start: u64, mut end: u64) {
        while let Some((&first, &last)) = self.dirty.range(..=end).next_back() {
            if last < start {
                break;
            }
            self.dirty.remove(&first);
            self.dirty_bytes -= last - first;
            (start, end) = (start.min(first), end.max(last));
        }
        self.dirty.insert(start, end);
        self.dirty_bytes += end - start;
    }

    fn kick(&mut self, now: Ns) {
        if self.active.is_some() {
            return;
        }
        let full = !self.waiting_writes.is_empty();
        let drain = !self.dirty.is_empty() && (self.reads.is_empty() || full && !self.drained_last);
        if drain {
            self.start_drain(now);
        } else if !self.reads.is_empty() {
            self.start_read(now);
        }
    }

    fn start_read(&mut self, now: Ns) {
        let cost = |pending: &Pending| {
            let (seek, turn) = self.positioning(now, pending.request.offset, false);
            ns(seek + turn)
        };
        let nearest =
            self.reads.iter().take(self.of.queue_depth).enumerate().min_by_key(|(_, one)| cost(one));
        let Some((index, _)) = nearest else { return };
        let pending = self.reads.remove(index);
        let (start, length) = (pending.request.offset, pending.request.length);
        self.drained_last = false;
        self.move_arm(now, start, length, Job::Read(pending));
    }

    fn start_drain(&mut self, now: Ns) {
        let ahead = self.dirty.range(self.head..).chain(self.dirty.range(..self.head));
        let cost = |start: u64| {
            let (seek, turn) = self.positioning(now, start, true);
            ns(seek + turn)
        };
        let nearest = ahead.take(self.of.queue_depth).min_by_key(|(start, _)| cost(**start));
        let Some((&start, &end)) = nearest else { return };
        // At most a track's worth at once, so that a long extent does not keep reads waiting.
        let piece = (end - start).min(MIB as u64);
        self.dirty.remove(&start);
        if start + piece < end {
            self.dirty.insert(start + piece, end);
        }
        self.drained_last = true;
        self.effort.drained_bytes += piece;
        self.move_arm(now, start, piece, Job::Drain { bytes: piece });
    }

    fn move_arm(&mut self, now: Ns, start: u64, length: u64, job: Job) {
        self.buffer.left = self.buffer.left.or(Some(now));
        let (seek, turn) = self.positioning(now, start, matches!(job, Job::Drain { .. }));
        let transfer = self.layout.time(start + length) - self.layout.time(start);
        self.effort.seeks += u64::from(seek > 0.0);
        self.effort.seek_s += seek;
        self.effort.rotation_s += turn;
        self.effort.transfer_s += transfer;
        self.effort.busy_s += seek + turn + transfer;
        self.active = Some(Active { job, end: start + length, until: now + ns(seek + turn + transfer) });
    }

    fn finish(&mut self, active: Active) {
        let now = active.until;
        self.head = active.end;
        match active.job {
            Job::Read(pending) => {
                self.ready.push(now + ns(self.of.overhead_s), pending.id);
                self.buffer = TrackBuffer {
                    start: pending.request.offset,
                    from: active.end,
                    since: now,
                    limit: active.end + self.of.read_ahead_bytes,
                    left: None,
                };
            }
            Job::Drain { bytes } => {
                self.dirty_bytes -= bytes;
                self.admit_waiting(now);
            }
        }
        self.finish_flush(now);
    }

    fn admit_waiting(&mut self, now: Ns) {
        while let Some(next) = self.waiting_writes.front().copied() {
            if self.dirty_bytes > 0 && self.dirty_bytes + next.request.length > self.of.cache_bytes {
                return;
            }
            self.waiting_writes.pop_front();
            self.admit_write(now, next);
        }
    }

    /// The flush completes once nothing is under way; then what waited behind it comes in.
    fn finish_flush(&mut self, now: Ns) {
        let quiet = self.dirty_bytes == 0 && self.reads.is_empty() && self.waiting_writes.is_empty();
        let Some(flush) = self.flush.filter(|_| quiet) else { return };
        self.flush = None;
        self.ready.push(now + ns(self.of.overhead_s), flush.id);
        while self.flush.is_none() {
            let Some(next) = self.behind_flush.pop_front() else { return };
            self.admit(now, next);
        }
    }

    fn advance(&mut self, now: Ns) {
        while let Some(active) = self.active.filter(|active| active.until <= now) {
            self.active = None;
            self.finish(active);
            self.kick(active.until);
        }
    }
}

impl Medium for Hdd {
    fn submit(&mut self, now: Ns, id: u64, request: Request) {
        self.advance(now);
        self.admit(now, Pending { id, request });
        self.kick(now);
    }

    fn next_due(&self) -> Option<Ns> {
        let active = self.active.map(|active| active.until);
        [active, self.ready.next()].into_iter().flatten().min()
    }

    fn take_due(&mut self, now: Ns) -> Option<(u64, Ns)> {
        self.advance(now);
        self.ready.take(now)
    }

    fn effort(&self) -> Effort {
        self.effort
    }
}
