//! The disks of an event log at any number of its sequence: what is durable by then, and what may be lost.

use super::choice::{Chosen, Volatile, Whole};
use super::{Changed, Lying, State};
use crate::durability::{Change, Seq};
use crate::log::native::{LogError, Reader};
use crate::log::{Event, Record};
use crate::nature::Nature;
use crate::rng::Rng;
use crate::store::{Image, Keeping, LARGEST_DISK, Snapshot};
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read};
use std::ops::Range;
use thiserror::Error;

/// Why no state can be made of a log.
#[derive(Debug, Error)]
pub enum ReplayError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("content of a disk: {0}")]
    Content(#[from] io::Error),
    /// The log has what no states can be made of.
    #[error("no states of this log: {0}")]
    Unfit(String),
    /// A state is not of this log, or was changed since its digest was taken.
    #[error("the state at event {cut} is not of this log: its digest is {here} here, not {asked}")]
    Foreign { cut: Seq, here: String, asked: String },
    /// A state has disks of another kind than the log.
    #[error("the state at event {cut} is not of this log: its disks have other caches or sectors")]
    OtherDisks { cut: Seq },
}

/// Goes through a log, forwards only. Disks are those of memory that began blank. A cache that is lost has no limit here:
/// which of its writes a full one puts on the medium is not known, so all that was not flushed may be lost.
pub struct Replay<R: Read> {
    reader: Reader<R>,
    next: Option<Record>,
    at: Seq,
    disks: BTreeMap<u32, (String, Image)>,
    flushes: HashSet<Seq>,
    epoch: u64,
    lying: Lying,
    /// What was durable when a digest was last taken.
    durable: Vec<(Snapshot, u64)>,
}

impl<R: Read> Replay<R> {
    /// A log of which nothing has happened yet.
    pub fn new(input: R, lying: Lying) -> Result<Self, ReplayError> {
        let mut reader = Reader::new(input)?;
        let next = reader.read()?;
        let (disks, flushes, durable) = (BTreeMap::new(), HashSet::new(), Vec::new());
        Ok(Self { reader, next, at: 0, disks, flushes, epoch: 0, lying, durable })
    }

    /// The number of the last event that has happened.
    pub(crate) fn at(&self) -> Seq {
        self.at
    }

    /// Whether nothing may be lost now and no flush is under way.
    pub fn is_quiet(&self) -> bool {
        self.flushes.is_empty() && self.disks().all(|image| image.volatile().len() == 0)
    }

    /// The number of flushes, of all disks, that have completed.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Of the disks, in their order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.disks.keys().copied()
    }

    /// The event that happens next; None at the end of the log.
    pub(crate) fn next(&self) -> Option<&Record> {
        self.next.as_ref()
    }

    pub(crate) fn disks(&self) -> impl Iterator<Item = &Image> {
        self.disks.values().map(|(_, image)| image)
    }

    /// Lets the next event happen.
    pub fn step(&mut self) -> Result<(), ReplayError> {
        let Some(record) = self.next.take() else { return Ok(()) };
        self.at = record.seq;
        self.happen(record)?;
        if self.at >= self.lying.from {
            for (_, image) in self.disks.values_mut() {
                image.set_lie(self.lying.flushes);
            }
        }
        self.next = self.reader.read()?;
        Ok(())
    }

    /// Lets everything happen up to a number.
    pub fn advance(&mut self, to: Seq) -> Result<(), ReplayError> {
        while self.next.as_ref().is_some_and(|next| next.seq <= to) {
            self.step()?;
        }
        if self.at != to {
            return Err(ReplayError::Unfit(format!("no event has the number {to}")));
        }
        Ok(())
    }

    fn happen(&mut self, record: Record) -> Result<(), ReplayError> {
        let Record { seq, disk, event } = record;
        if let Event::Added { name, size, nature } = event {
            if size == 0 || size > LARGEST_DISK {
                return Err(ReplayError::Unfit(format!("at {seq} a disk of {size} bytes is added")));
            }
            let keeping = Keeping { nature, cache_bytes: u64::MAX };
            self.disks.insert(disk, (name, Image::over(&Snapshot::blank(size), keeping)));
            return Ok(());
        }
        if event == Event::Cut {
            return Err(ReplayError::Unfit(format!("power was cut in it already, at {seq}")));
        }
        let Some((_, image)) = self.disks.get_mut(&disk) else { return Ok(()) };
        let end = match &event {
            Event::Write { offset, data, .. } => offset.checked_add(data.len() as u64),
            Event::WriteZeroes { offset, length } | Event::Discard { offset, length } => {
                offset.checked_add(*length)
            }
            _ => Some(0),
        };
        if end.is_none_or(|end| end > image.size()) {
            return Err(ReplayError::Unfit(format!("the write at {seq} reaches beyond the end of its disk")));
        }
        match event {
            Event::Write { offset, fua, data } => image.write(seq, offset, &data, fua)?,
            Event::WriteZeroes { offset, length } | Event::Discard { offset, length } => {
                image.zero(seq, offset, length)?;
            }
            Event::Flush => {
                image.submit_flush(seq);
                self.flushes.insert(seq);
            }
            Event::Completed { of, failed: false } if self.flushes.remove(&of) => {
                image.complete_flush(of)?;
                self.epoch += 1;
            }
            Event::Completed { of, failed: false } => image.complete_change(of, seq)?,
            _ => {}
        }
        Ok(())
    }

    /// Whether the next event makes writes durable: the completion of a flush, or of a write that waits for none.
    pub(crate) fn settles(&self) -> bool {
        let Some(Record { disk, event: Event::Completed { of, failed: false }, .. }) = &self.next else {
            return false;
        };
        let image = self.disks.get(disk).map(|(_, image)| image);
        self.flushes.contains(of) || image.is_some_and(|image| image.settles(*of))
    }

    /// What each disk of the log is, by name.
    pub(crate) fn natures(&self) -> BTreeMap<String, Nature> {
        self.disks.values().map(|(name, image)| (name.clone(), image.nature())).collect()
    }

    /// What may be lost now, of all disks in the order of submission.
    pub fn volatile(&self) -> Vec<Volatile> {
        let volatile = |image: &Image| {
            let unit = image.nature().unit_blocks();
            let of = |change: &Change<_>| Volatile { seq: change.seq, blocks: change.effective(), unit };
            image.volatile().map(of).collect::<Vec<_>>()
        };
        let mut found: Vec<Volatile> =
            self.disks().flat_map(volatile).filter(|volatile| !volatile.blocks.is_empty()).collect();
        found.sort_by_key(|volatile| volatile.seq);
        found
    }

    /// What a power cut now leaves of every disk.
    pub fn left(&self, chosen: &Chosen) -> Result<Vec<Snapshot>, ReplayError> {
        let left = self
            .disks()
            .map(|image| image.left(|change| chosen.left(change.seq, change.effective())))
            .collect::<io::Result<_>>();
        Ok(left?)
    }

    /// Whether a state of this log still lies ahead.
    pub fn reaches(&self, state: &State) -> bool {
        self.at <= state.cut && self.lying == state.lying
    }

    /// The state with what it has of this log: what was volatile, what of that is kept, and the digest of its content. It
    /// must not lie behind.
    pub fn measured(&mut self, state: State) -> Result<State, ReplayError> {
        self.advance(state.cut)?;
        let volatile = self.volatile();
        let kept =
            volatile.iter().filter(|one| !state.chosen.left(one.seq, one.blocks.clone()).is_empty()).count();
        let digest = self.digest(&state.chosen)?;
        Ok(State { volatile: volatile.len(), kept, digest, disks: self.natures(), ..state })
    }

    /// Of what a power cut now leaves, in hexadecimal digits. What has not changed since the last one is not read again.
    pub(crate) fn digest(&mut self, chosen: &Chosen) -> Result<String, ReplayError> {
        let nothing = Chosen { whole: Whole::Nothing, torn: Vec::new() };
        self.durable = digested(&self.durable, self.left(&nothing)?);
        let disks = digested(&self.durable, self.left(chosen)?);
        Ok(format!("{:016x}", disks.iter().fold(0, |all, (_, digest)| Rng::new(all ^ digest).draw())))
    }

    /// Everything that may be lost at the cut of a state, in the order of submission, with what of it the state has. It
    /// must not lie behind.
    pub fn changes(&mut self, state: &State) -> Result<Vec<Changed>, ReplayError> {
        self.advance(state.cut)?;
        let each = self.disks.values().flat_map(|(name, image)| image.volatile().map(move |one| (name, one)));
        let mut found: Vec<Changed> = each
            .map(|(name, change)| Changed {
                seq: change.seq,
                disk: name.clone(),
                kept: pairs(&state.chosen.left(change.seq, change.effective())),
                blocks: pairs(&change.effective()),
            })
            .filter(|changed| !changed.blocks.is_empty())
            .collect();
        found.sort_by_key(|changed| changed.seq);
        Ok(found)
    }

    /// The content of one disk in a state, which must not lie behind, and what the disk is. Its digest must be the one that
    /// the state has here; a state that was never measured has none.
    pub fn state(&mut self, state: &State, disk: &str) -> Result<(Snapshot, Nature), ReplayError> {
        self.advance(state.cut)?;
        if !state.disks.is_empty() && state.disks != self.natures() {
            return Err(ReplayError::OtherDisks { cut: state.cut });
        }
        let here = self.digest(&state.chosen)?;
        if !state.digest.is_empty() && state.digest != here {
            return Err(ReplayError::Foreign { cut: state.cut, here, asked: state.digest.clone() });
        }
        let image = self.disks.values().find(|(name, _)| name == disk).map(|(_, image)| image);
        let image = image.ok_or_else(|| ReplayError::Unfit(format!("no disk {disk:?} in it")))?;
        let left = image.left(|change| state.chosen.left(change.seq, change.effective()))?;
        Ok((left, image.nature()))
    }
}

fn pairs(ranges: &[Range<u64>]) -> Vec<(u64, u64)> {
    ranges.iter().map(|range| (range.start, range.end)).collect()
}

/// Contents with their digests, from those that were there before.
fn digested(before: &[(Snapshot, u64)], now: Vec<Snapshot>) -> Vec<(Snapshot, u64)> {
    let digest = |(index, snapshot): (usize, Snapshot)| {
        let blank = (Snapshot::blank(snapshot.size()), 0);
        let (old, digest) = before.get(index).unwrap_or(&blank);
        let digest = snapshot.digest_after(old, *digest);
        (snapshot, digest)
    };
    now.into_iter().enumerate().map(digest).collect()
}
