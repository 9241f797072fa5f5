//! All disks of a daemon and their one sequence of events. It is driven with the time and hands back what to answer;
//! `R` is whatever the front answers with.

mod disk;
mod op;
mod power;
mod requests;

pub use disk::{Disk, Power, Statistics, Timed, Timing};
pub use op::{Answer, Cut, Op, Refused};

use crate::durability::{Lie, Seq};
use crate::fault::{Fault, FaultError};
use crate::log::behind::Behind;
use crate::log::native::Writer;
use crate::log::{EVERY, Event, Record};
use crate::media::{Ns, Ready};
use crate::store::{Image, PIECE_BYTES};
use op::Pending;
use std::collections::{BTreeMap, HashMap};
use std::io;
use thiserror::Error;

/// Why the engine does not do what it is asked for.
#[derive(Debug, Error)]
pub enum EngineError {
    #[error("no disk {0:?}")]
    Unknown(String),
    #[error("disk {0:?} is there already")]
    There(String),
    #[error("disk {0:?} is open")]
    Open(String),
    #[error("disk {0:?} has no model")]
    Unmodelled(String),
    #[error(transparent)]
    Fault(#[from] FaultError),
    #[error("cut of {disk}: {source}")]
    Cut { disk: String, source: io::Error },
    /// In the words of the first failure: it is told to all who come later.
    #[error("event log cannot be written: {0}")]
    Log(String),
}

/// All disks, with what is under way on them.
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

impl<R> Engine<R> {
    /// An engine without disks; every event of it is written to the log.
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

    /// The number of the last event.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    pub(crate) fn id(&self, name: &str) -> Option<u32> {
        self.names.get(name).copied()
    }

    pub(crate) fn known(&self, name: &str) -> Result<u32, EngineError> {
        self.id(name).ok_or_else(|| EngineError::Unknown(name.into()))
    }

    pub(crate) fn disk(&mut self, id: u32) -> Option<&mut Disk> {
        self.disks.get_mut(&id)
    }

    /// The disk of this name.
    pub fn named(&mut self, name: &str) -> Result<&mut Disk, EngineError> {
        self.id(name).and_then(|id| self.disks.get_mut(&id)).ok_or_else(|| EngineError::Unknown(name.into()))
    }

    pub(crate) fn list(&self) -> Vec<(String, u32)> {
        let mut list: Vec<_> = self.names.iter().map(|(name, id)| (name.clone(), *id)).collect();
        list.sort();
        list
    }

    /// Adds a disk; its number.
    pub fn add(
        &mut self,
        now: Ns,
        name: &str,
        image: Image,
        timed: Option<Timed>,
    ) -> Result<u32, EngineError> {
        if self.names.contains_key(name) {
            return Err(EngineError::There(name.into()));
        }
        let id = self.next_disk;
        self.next_disk += 1;
        let event = Event::Added { name: name.into(), size: image.size(), nature: image.nature() };
        self.note(id, event);
        self.note_content(id, &image);
        self.names.insert(name.into(), id);
        self.disks.insert(id, Disk::new(now, image, timed));
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
    pub fn remove(&mut self, name: &str, force: bool) -> Result<Vec<Answer<R>>, EngineError> {
        let id = self.known(name)?;
        if self.disks.get(&id).is_some_and(|disk| disk.opened > 0) && !force {
            return Err(EngineError::Open(name.into()));
        }
        let failed = self.fail(|of| of == id);
        self.names.remove(name);
        self.disks.remove(&id);
        Ok(failed)
    }

    /// Puts a text into the log; its number.
    pub fn mark(&mut self, text: &str) -> Result<Seq, EngineError> {
        let seq = self.note(EVERY, Event::Mark { text: text.into() });
        self.unbroken().map(|()| seq)
    }

    pub(crate) fn set_lie(&mut self, name: &str, lie: Lie) -> Result<(), EngineError> {
        self.named(name)?.image.set_lie(lie);
        Ok(())
    }

    /// Switches the timing of these disks; all of them must have a model.
    pub fn set_timing(&mut self, names: &[String], timing: Timing) -> Result<(), EngineError> {
        for name in names {
            self.named(name)?.timed.as_ref().ok_or_else(|| EngineError::Unmodelled(name.clone()))?;
        }
        for name in names {
            if let Some(timed) = &mut self.named(name)?.timed {
                timed.timing = timing;
            }
        }
        Ok(())
    }

    /// Requests to the disk meet this fault from now on.
    pub fn add_fault(&mut self, name: &str, fault: Fault) -> Result<(), EngineError> {
        fault.check()?;
        self.named(name)?.faults.push(fault);
        Ok(())
    }

    /// The disk has no faults from now on and tells no lies.
    pub fn clear_faults(&mut self, name: &str) -> Result<(), EngineError> {
        let disk = self.named(name)?;
        disk.faults.clear();
        disk.image.set_lie(Lie::None);
        Ok(())
    }

    fn note(&mut self, disk: u32, event: Event) -> Seq {
        self.seq += 1;
        let record = Record { seq: self.seq, disk, event };
        let written = self.log.as_mut().map_or(Ok(()), |log| log.write(&record));
        self.noted(written);
        self.seq
    }

    fn noted(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.log_broken = Some(error.to_string());
        }
    }

    /// What each disk did, by name.
    pub fn statistics(&self, now: Ns) -> Vec<Statistics> {
        self.list()
            .into_iter()
            .filter_map(|(name, id)| Some(disk::describe(name, self.disks.get(&id)?, now)))
            .collect()
    }

    /// Returns once every event is in the file of the log.
    pub fn flush_log(&mut self) -> Result<(), EngineError> {
        let flushed = self.log.as_mut().map_or(Ok(()), Writer::flush);
        self.noted(flushed);
        self.unbroken()
    }

    fn unbroken(&self) -> Result<(), EngineError> {
        self.log_broken.clone().map_or(Ok(()), |why| Err(EngineError::Log(why)))
    }
}
