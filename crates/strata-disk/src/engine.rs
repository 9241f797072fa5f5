//! All disks of a daemon and their one sequence of events. It is driven with the time and hands back what to answer;
//! `R` is whatever the front answers with.

use crate::durability::{Keep, Lie, Seq};
use crate::fault::{Effect, Fault, On};
use crate::log::behind::Behind;
use crate::log::native::Writer;
use crate::log::{EVERY, Event, Record};
use crate::media::{Effort, Kind, Medium, Ns, Ready, Request};
use crate::rng::Rng;
use crate::store::{Image, PIECE_BYTES};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

#[derive(Debug, Clone, Copy)]
pub enum Op<'a> {
    Read { offset: u64, length: u64 },
    Write { offset: u64, data: &'a [u8], fua: bool },
    Zero { offset: u64, length: u64, discard: bool },
    Flush,
}

impl Op<'_> {
    fn request(&self) -> Request {
        match *self {
            Op::Read { offset, length } => Request { kind: Kind::Read, offset, length },
            Op::Write { offset, data, .. } => {
                Request { kind: Kind::Write, offset, length: data.len() as u64 }
            }
            Op::Zero { offset, length, .. } => Request { kind: Kind::Zero, offset, length },
            Op::Flush => Request { kind: Kind::Flush, offset: 0, length: 0 },
        }
    }

    fn on(&self) -> On {
        match self {
            Op::Read { .. } => On::Read,
            Op::Flush => On::Flush,
            Op::Write { .. } | Op::Zero { .. } => On::Write,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The disk does not exist, has no power or met a fault.
    Io,
    OutOfRange,
    /// This disk has no such command.
    Unsupported,
}

pub struct Answer<R> {
    pub reply: R,
    /// The data of a read; empty otherwise.
    pub result: Result<Vec<u8>, Refused>,
}

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

pub struct Disk {
    pub image: Image,
    pub timed: Option<Timed>,
    pub power: Power,
    pub counters: Counters,
    pub opened: u32,
    faults: Vec<Fault>,
    under_way: usize,
    lateness: Lateness,
    added: Ns,
}

impl Disk {
    fn takes_time(&self) -> bool {
        self.timed.as_ref().is_some_and(|timed| timed.timing == Timing::On)
    }

    /// Whether a request that was admitted can have one answer alone.
    fn cannot_fail(&self, kind: Kind) -> bool {
        kind != Kind::Read && self.image.is_in_memory()
    }
}

/// How late answers of a modelled medium were, in percent of the time they were to take.
struct Lateness([u64; 101]);

impl Lateness {
    fn note(&mut self, due: Ns, submitted: Ns, now: Ns) {
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

#[derive(Debug, Serialize)]
pub struct Statistics {
    pub name: String,
    pub size_bytes: u64,
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

/// A request under way.
struct Pending {
    disk: u32,
    request: Request,
    submitted: Ns,
    due: Ns,
    delay: Ns,
    /// Whether the medium says when it completes.
    timed: bool,
}

pub struct Engine<R> {
    seq: Seq,
    next_disk: u32,
    disks: BTreeMap<u32, Disk>,
    names: HashMap<String, u32>,
    pending: HashMap<Seq, (Pending, R)>,
    delayed: Ready,
    log: Option<Writer<Behind>>,
    log_broken: Option<String>,
    cut_at: Option<(Seq, Cut)>,
}

#[derive(Debug, Clone)]
pub struct Cut {
    pub disks: Option<Vec<String>>,
    pub keep: Keep,
    pub torn: bool,
    pub seed: u64,
}

impl<R> Engine<R> {
    pub fn new(log: Option<Writer<Behind>>) -> Self {
        Self {
            seq: 0,
            next_disk: 0,
            disks: BTreeMap::new(),
            names: HashMap::new(),
            pending: HashMap::new(),
            delayed: Ready::default(),
            log,
            log_broken: None,
            cut_at: None,
        }
    }

    pub fn seq(&self) -> Seq {
        self.seq
    }

    pub fn id(&self, name: &str) -> Option<u32> {
        self.names.get(name).copied()
    }

    pub fn disk(&mut self, id: u32) -> Option<&mut Disk> {
        self.disks.get_mut(&id)
    }

    pub fn named(&mut self, name: &str) -> Result<&mut Disk, String> {
        let id = self.id(name).ok_or_else(|| format!("no disk {name:?}"))?;
        self.disk(id).ok_or_else(|| format!("no disk {name:?}"))
    }

    pub fn list(&self) -> Vec<(String, u32)> {
        let mut list: Vec<_> = self.names.iter().map(|(name, id)| (name.clone(), *id)).collect();
        list.sort();
        list
    }

    pub fn add(&mut self, now: Ns, name: &str, image: Image, timed: Option<Timed>) -> Result<u32, String> {
        if self.names.contains_key(name) {
            return Err(format!("disk {name:?} is there already"));
        }
        let id = self.next_disk;
        self.next_disk += 1;
        let event = Event::Added { name: name.into(), size: image.size() };
        self.note(id, event);
        self.note_content(id, &image);
        self.names.insert(name.into(), id);
        let disk = Disk {
            image,
            timed,
            power: Power::On,
            counters: Counters::default(),
            opened: 0,
            faults: Vec::new(),
            under_way: 0,
            lateness: Lateness([0; 101]),
            added: now,
        };
        self.disks.insert(id, disk);
        Ok(id)
    }

    /// What a new disk has already, as writes that are durable at once: a log begins with blank disks.
    fn note_content(&mut self, disk: u32, image: &Image) {
        let Some(snapshot) = image.snapshot().filter(|_| self.log.is_some()) else { return };
        for (offset, data) in snapshot.written(PIECE_BYTES) {
            let of = self.note(disk, Event::Write { offset, fua: true, data });
            self.note(disk, Event::Completed { of, failed: false });
        }
    }

    /// Takes a disk away; what it had under way fails.
    pub fn remove(&mut self, name: &str, force: bool) -> Result<Vec<Answer<R>>, String> {
        let id = self.id(name).ok_or_else(|| format!("no disk {name:?}"))?;
        if self.disks.get(&id).is_some_and(|disk| disk.opened > 0) && !force {
            return Err(format!("disk {name:?} is open"));
        }
        let failed = self.fail(|of| of == id);
        self.names.remove(name);
        self.disks.remove(&id);
        Ok(failed)
    }

    pub fn mark(&mut self, text: &str) -> Result<Seq, String> {
        let seq = self.note(EVERY, Event::Mark { text: text.into() });
        self.log_broken.clone().map_or(Ok(seq), Err)
    }

    pub fn set_lie(&mut self, name: &str, lie: Lie) -> Result<(), String> {
        self.named(name)?.image.set_lie(lie);
        Ok(())
    }

    /// Switches the timing of these disks; all of them must have a model.
    pub fn set_timing(&mut self, names: &[String], timing: Timing) -> Result<(), String> {
        for name in names {
            self.named(name)?.timed.as_ref().ok_or_else(|| format!("disk {name:?} has no model"))?;
        }
        for name in names {
            if let Some(timed) = &mut self.named(name)?.timed {
                timed.timing = timing;
            }
        }
        Ok(())
    }

    pub fn add_fault(&mut self, name: &str, fault: Fault) -> Result<(), String> {
        fault.check()?;
        self.named(name)?.faults.push(fault);
        Ok(())
    }

    pub fn clear_faults(&mut self, name: &str) -> Result<(), String> {
        let disk = self.named(name)?;
        disk.faults.clear();
        disk.image.set_lie(Lie::None);
        Ok(())
    }

    /// The disk is pulled: what it has under way and all that comes fails until it is given power.
    pub fn pull(&mut self, name: &str) -> Result<Vec<Answer<R>>, String> {
        self.named(name)?.power = Power::Gone;
        let id = self.id(name);
        Ok(self.fail(|of| Some(of) == id))
    }

    pub fn power_on(&mut self, name: &str) -> Result<(), String> {
        self.named(name)?.power = Power::On;
        Ok(())
    }

    /// Power is cut at once, or as soon as the sequence reaches a number.
    pub fn cut(&mut self, cut: Cut, at: Option<Seq>) -> Result<(Vec<Answer<R>>, serde_json::Value), String> {
        for name in cut.disks.iter().flatten() {
            self.named(name)?;
        }
        match at.filter(|at| *at > self.seq) {
            Some(at) => {
                self.cut_at = Some((at, cut));
                Ok((Vec::new(), serde_json::json!({ "at": at })))
            }
            None => self.cut_now(&cut),
        }
    }

    fn cut_now(&mut self, cut: &Cut) -> Result<(Vec<Answer<R>>, serde_json::Value), String> {
        let seq = self.note(EVERY, Event::Cut);
        let mut rng = Rng::new(cut.seed);
        let mut left = serde_json::Map::new();
        let mut hit = Vec::new();
        for (name, id) in self.list() {
            if cut.disks.as_ref().is_some_and(|names| !names.contains(&name)) {
                continue;
            }
            let Some(disk) = self.disks.get_mut(&id) else { continue };
            let (volatile, kept) = disk
                .image
                .cut(&cut.keep, cut.torn, &mut rng)
                .map_err(|error| format!("cut of {name}: {error}"))?;
            disk.power = Power::Cut;
            left.insert(name, serde_json::json!({ "volatile": volatile, "kept": kept }));
            hit.push(id);
        }
        Ok((self.fail(|of| hit.contains(&of)), serde_json::json!({ "seq": seq, "disks": left })))
    }

    /// Everything under way on the chosen disks fails.
    pub fn fail(&mut self, chosen: impl Fn(u32) -> bool) -> Vec<Answer<R>> {
        let ids: Vec<Seq> =
            self.pending.iter().filter(|(_, (pending, _))| chosen(pending.disk)).map(|(id, _)| *id).collect();
        let pending: Vec<_> = ids.into_iter().filter_map(|id| self.pending.remove(&id)).collect();
        pending.into_iter().map(|(pending, reply)| self.failed(&pending, reply)).collect()
    }

    fn failed(&mut self, pending: &Pending, reply: R) -> Answer<R> {
        if let Some(disk) = self.disks.get_mut(&pending.disk) {
            disk.under_way -= 1;
            disk.counters.errors += 1;
        }
        Answer { reply, result: Err(Refused::Io) }
    }

    fn note(&mut self, disk: u32, event: Event) -> Seq {
        self.seq += 1;
        let record = Record { seq: self.seq, disk, event };
        let written = self.log.as_mut().map_or(Ok(()), |log| log.write(&record));
        self.noted(written);
        self.seq
    }

    fn noted(&mut self, written: std::io::Result<()>) {
        if let Err(error) = written {
            self.log_broken = Some(format!("event log cannot be written: {error}"));
        }
    }

    /// A request arrives. What else it ended is handed back, and then its own answer if that is known. While nothing is
    /// under way, a change that takes no time and cannot fail is told `certain` before it is made, so that whoever asked
    /// goes on meanwhile: nobody sees the engine before it has been made, and no answer waits for it.
    pub fn submit(
        &mut self,
        now: Ns,
        disk: u32,
        op: Op<'_>,
        reply: R,
        certain: impl FnOnce(R),
        out: &mut Vec<Answer<R>>,
    ) {
        if let Some((_, cut)) = self.cut_at.take_if(|(at, _)| *at <= self.seq) {
            if let Ok((failed, _)) = self.cut_now(&cut) {
                out.extend(failed);
            }
        }
        let request = op.request();
        let delay = match self.admit(disk, &op, request) {
            Ok(delay) => delay,
            Err(refused) => {
                if let Some(disk) = self.disks.get_mut(&disk) {
                    disk.counters.errors += 1;
                }
                out.push(Answer { reply, result: Err(refused) });
                return;
            }
        };
        let (timed, cannot_fail) = self
            .disks
            .get(&disk)
            .map_or((false, false), |disk| (disk.takes_time(), disk.cannot_fail(request.kind)));
        let pending = Pending { disk, request, submitted: now, due: now, delay, timed };
        let at_once = !timed && delay == 0;
        if at_once && cannot_fail && self.pending.is_empty() {
            certain(reply);
            let made = self.begin(disk, op).map(|seq| self.complete(now, seq, &pending));
            assert!(matches!(made, Ok(Ok(_))), "a change in memory does not fail");
            return;
        }
        let Ok(seq) = self.begin(disk, op) else {
            out.push(Answer { reply, result: Err(Refused::Io) });
            return;
        };
        if at_once {
            out.push(Answer { reply, result: self.complete(now, seq, &pending) });
            return;
        }
        match self.disks.get_mut(&disk).and_then(|disk| disk.timed.as_mut()).filter(|_| timed) {
            Some(timed) => timed.medium.submit(now, seq, request),
            None => self.delayed.push(now + delay, seq),
        }
        self.pending.insert(seq, (pending, reply));
    }

    /// From here on the request is under way.
    fn begin(&mut self, disk: u32, op: Op<'_>) -> std::io::Result<Seq> {
        let seq = self.apply(disk, op)?;
        if let Some(disk) = self.disks.get_mut(&disk) {
            disk.under_way += 1;
            disk.counters.largest_queue = disk.counters.largest_queue.max(disk.under_way);
        }
        Ok(seq)
    }

    /// Nanoseconds by which faults delay the request, unless it is refused.
    fn admit(&mut self, disk: u32, op: &Op<'_>, request: Request) -> Result<Ns, Refused> {
        if self.log_broken.is_some() {
            return Err(Refused::Io);
        }
        let disk = self.disks.get_mut(&disk).filter(|disk| disk.power == Power::On).ok_or(Refused::Io)?;
        let end = request.offset.checked_add(request.length).ok_or(Refused::OutOfRange)?;
        let block = disk.image.block_bytes();
        if end > disk.image.size() {
            return Err(Refused::OutOfRange);
        }
        if request.kind != Kind::Read && (request.offset % block != 0 || request.length % block != 0) {
            return Err(Refused::OutOfRange);
        }
        if request.kind == Kind::Zero && !disk.image.zeroes_cheaply() {
            return Err(Refused::Unsupported);
        }
        let mut delay = 0;
        for fault in &mut disk.faults {
            match fault.meet(op.on(), request.offset, request.length) {
                Some(Effect::Error) => return Err(Refused::Io),
                Some(Effect::DelayMs(ms)) => delay += (ms * 1e6) as Ns,
                None => {}
            }
        }
        Ok(delay)
    }

    /// Logs the submission and changes the content.
    fn apply(&mut self, id: u32, op: Op<'_>) -> std::io::Result<Seq> {
        let seq = match op {
            Op::Read { .. } => {
                self.seq += 1;
                self.seq
            }
            Op::Write { offset, data, fua } => {
                self.seq += 1;
                let seq = self.seq;
                let written =
                    self.log.as_mut().map_or(Ok(()), |log| log.put_write(seq, id, offset, fua, data));
                self.noted(written);
                seq
            }
            Op::Zero { offset, length, discard: true } => self.note(id, Event::Discard { offset, length }),
            Op::Zero { offset, length, discard: false } => {
                self.note(id, Event::WriteZeroes { offset, length })
            }
            Op::Flush => self.note(id, Event::Flush),
        };
        let Some(disk) = self.disks.get_mut(&id) else { return Ok(seq) };
        match op {
            Op::Read { .. } => {}
            Op::Write { offset, data, fua } => disk.image.write(seq, offset, data, fua)?,
            Op::Zero { offset, length, .. } => disk.image.zero(seq, offset, length)?,
            Op::Flush => disk.image.submit_flush(seq),
        }
        Ok(seq)
    }

    fn complete(&mut self, now: Ns, id: Seq, pending: &Pending) -> Result<Vec<u8>, Refused> {
        let result = self.completed(id, pending);
        if let Some(disk) = self.disks.get_mut(&pending.disk) {
            disk.under_way -= 1;
            disk.counters.queued_s += now.saturating_sub(pending.submitted) as f64 / 1e9;
            disk.counters.errors += u64::from(result.is_err());
            if pending.timed {
                disk.lateness.note(pending.due, pending.submitted, now);
            } else {
                disk.counters.untimed += u64::from(disk.timed.is_some());
            }
        }
        result.map_err(|_| Refused::Io)
    }

    fn completed(&mut self, id: Seq, pending: &Pending) -> std::io::Result<Vec<u8>> {
        let request = pending.request;
        let at = if request.kind == Kind::Read {
            self.seq
        } else {
            self.note(pending.disk, Event::Completed { of: id, failed: false })
        };
        let Some(disk) = self.disks.get_mut(&pending.disk) else { return Ok(Vec::new()) };
        let counters = &mut disk.counters;
        match request.kind {
            Kind::Read => {
                counters.reads += 1;
                counters.read_bytes += request.length;
                return disk.image.read(request.offset, request.length as usize);
            }
            Kind::Write => {
                counters.writes += 1;
                counters.written_bytes += request.length;
                disk.image.complete_change(id, at)?;
            }
            Kind::Zero => {
                counters.zeroes += 1;
                disk.image.complete_change(id, at)?;
            }
            Kind::Flush => {
                counters.flushes += 1;
                disk.image.complete_flush(id)?;
            }
        }
        Ok(Vec::new())
    }

    pub fn next_due(&self) -> Option<Ns> {
        let media = self.disks.values().filter_map(|disk| disk.timed.as_ref()?.medium.next_due());
        media.chain(self.delayed.next()).min()
    }

    /// Everything that is due by now.
    pub fn advance(&mut self, now: Ns, out: &mut Vec<Answer<R>>) {
        let mut due = Vec::new();
        for disk in self.disks.values_mut() {
            let Some(timed) = &mut disk.timed else { continue };
            due.extend(std::iter::from_fn(|| timed.medium.take_due(now)));
        }
        for (id, at) in due {
            let Some((pending, _)) = self.pending.get_mut(&id) else { continue };
            pending.due = at + pending.delay;
            let delay = std::mem::take(&mut pending.delay);
            self.delayed.push(at + delay, id);
        }
        while let Some((id, at)) = self.delayed.take(now) {
            let Some((mut pending, reply)) = self.pending.remove(&id) else { continue };
            pending.due = at;
            out.push(Answer { reply, result: self.complete(now, id, &pending) });
        }
    }

    pub fn statistics(&self, now: Ns) -> Vec<Statistics> {
        self.list()
            .into_iter()
            .filter_map(|(name, id)| Some(describe(name, self.disks.get(&id)?, now)))
            .collect()
    }

    pub fn flush_log(&mut self) -> Result<(), String> {
        let flushed = self.log.as_mut().map_or(Ok(()), Writer::flush);
        self.noted(flushed);
        self.log_broken.clone().map_or(Ok(()), Err)
    }
}

fn describe(name: String, disk: &Disk, now: Ns) -> Statistics {
    let timed = disk.timed.as_ref();
    Statistics {
        name,
        model: timed.map(|timed| timed.model.clone()),
        parameters: timed.map(|timed| timed.parameters.clone()),
        stretch: timed.map(|timed| timed.stretch),
        timing: timed.map(|timed| timed.timing),
        size_bytes: disk.image.size(),
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
