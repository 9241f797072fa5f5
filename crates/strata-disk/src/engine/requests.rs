//! The way of a request through the engine: submitted, under way, completed.

use super::op::Pending;
use super::{Answer, Engine, Op, Power, Refused};
use crate::durability::Seq;
use crate::fault::Effect;
use crate::log::Event;
use crate::media::{Kind, Ns, Request};

impl<R> Engine<R> {
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
        let block = disk.image.nature().block;
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

    /// When `advance` has something to do.
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
}
