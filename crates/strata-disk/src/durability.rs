//! Which writes survive a power cut: a disk with a volatile cache as a state machine.
//!
//! It has no thread, clock or I/O: whoever drives it gives every submission and completion its number from one
//! sequence, which all disks share. At a cut, durable is what completed before a flush was submitted that
//! completed itself, and every completed write that asked for FUA. All else that was submitted is volatile: a legal
//! state has any subset of it, torn at logical blocks. Where two writes cover a block, the one submitted later wins.
//!
//! `tests/reference` says the same from the list of events, slowly; the property tests hold the two against each other.

use crate::rng::Rng;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::Range;

/// A place in the one sequence of events.
pub type Seq = u64;

/// A write, discard or write of zeroes that is not durable yet. `T` is what the driver keeps with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change<T> {
    pub seq: Seq,
    pub blocks: Range<u64>,
    /// Blocks on which a later change is durable already: this one is never seen there again.
    pub superseded: Vec<Range<u64>>,
    pub payload: T,
    fua: bool,
    completed: Option<Seq>,
}

impl<T> Change<T> {
    /// The blocks on which this change still counts.
    pub fn effective(&self) -> Vec<Range<u64>> {
        self.superseded.iter().fold(vec![self.blocks.clone()], |left, hidden| {
            left.into_iter()
                .flat_map(|range| subtract(&range, hidden))
                .filter(|range| !range.is_empty())
                .collect()
        })
    }
}

fn subtract(range: &Range<u64>, hidden: &Range<u64>) -> [Range<u64>; 2] {
    let before = range.start..range.end.min(hidden.start.max(range.start));
    let after = range.start.max(hidden.end.min(range.end))..range.end;
    [before, after]
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> Option<Range<u64>> {
    let both = a.start.max(b.start)..a.end.min(b.end);
    (!both.is_empty()).then_some(both)
}

/// Which flushes the disk lies about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lie {
    #[default]
    None,
    /// A flush takes effect only once so many others completed after it.
    Last(usize),
    All,
}

/// What of the volatile changes a cut leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keep {
    Nothing,
    Everything,
    /// Each change by the toss of a coin.
    Random,
    /// These and no other.
    Only(Vec<Seq>),
}

/// A volatile change, and the blocks of it that a cut left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survivor<T> {
    pub change: Change<T>,
    pub blocks: Vec<Range<u64>>,
}

/// The changes and flushes of one disk that are not durable yet.
#[derive(Debug, Clone)]
pub struct Machine<T> {
    volatile: VecDeque<Change<T>>,
    open_flushes: Vec<Seq>,
    /// Submissions of completed flushes that have no effect yet, because the disk lies about them.
    held: VecDeque<Seq>,
    cache: bool,
    lie: Lie,
}

impl<T> Machine<T> {
    /// A disk whose cache is volatile, or one that keeps its cache at a power cut.
    pub fn new(volatile_cache: bool) -> Self {
        Self {
            volatile: VecDeque::new(),
            open_flushes: Vec::new(),
            held: VecDeque::new(),
            cache: volatile_cache,
            lie: Lie::None,
        }
    }

    /// What flushes that complete from now on do.
    pub fn set_lie(&mut self, lie: Lie) {
        self.lie = lie;
    }

    /// What a power cut now may lose, by submission.
    pub fn volatile(&self) -> impl ExactSizeIterator<Item = &Change<T>> {
        self.volatile.iter()
    }

    /// Whether the change numbered `seq` is durable once it completes, without a flush.
    pub(crate) fn settles(&self, seq: Seq) -> bool {
        let index = self.volatile.binary_search_by_key(&seq, |change| change.seq);
        index.is_ok_and(|index| self.volatile[index].fua || !self.cache)
    }

    /// A change is under way, of these blocks.
    pub fn submit_change(&mut self, seq: Seq, blocks: Range<u64>, fua: bool, payload: T) {
        debug_assert!(self.volatile.back().is_none_or(|last| last.seq < seq));
        self.volatile.push_back(Change {
            seq,
            blocks,
            superseded: Vec::new(),
            payload,
            fua,
            completed: None,
        });
    }

    /// A flush is under way.
    pub fn submit_flush(&mut self, seq: Seq) {
        self.open_flushes.push(seq);
    }

    /// The change numbered `seq` completes; what becomes durable by it is handed back.
    pub fn complete_change(&mut self, seq: Seq, at: Seq) -> Option<Change<T>> {
        let last = self.volatile.len().checked_sub(1)?;
        let index = match self.volatile[last].seq == seq {
            true => last,
            false => self.volatile.binary_search_by_key(&seq, |change| change.seq).ok()?,
        };
        self.volatile[index].completed = Some(at);
        if self.volatile[index].fua || !self.cache { self.settle(index) } else { None }
    }

    /// The flush numbered `seq` completes; what becomes durable by it is handed back, in order.
    pub fn complete_flush(&mut self, seq: Seq) -> Vec<Change<T>> {
        let Some(index) = self.open_flushes.iter().position(|open| *open == seq) else { return Vec::new() };
        self.open_flushes.swap_remove(index);
        let patience = match self.lie {
            Lie::All => return Vec::new(),
            Lie::None => 0,
            Lie::Last(count) => count,
        };
        self.held.push_back(seq);
        let mut settled = Vec::new();
        while self.held.len() > patience {
            let flush = self.held.pop_front().unwrap_or(seq);
            self.settle_before(flush, &mut settled);
        }
        settled
    }

    /// The oldest completed change reaches the medium on its own, as a cache of limited size makes it.
    pub fn write_back(&mut self) -> Option<Change<T>> {
        let index = self.volatile.iter().position(|change| change.completed.is_some())?;
        self.settle(index)
    }

    /// Power is cut now: the changes that are left, by submission. Nothing is volatile or under way afterwards.
    /// `torn` is the number of blocks in a unit, where changes are torn between units.
    pub fn cut(&mut self, keep: &Keep, torn: Option<u64>, rng: &mut Rng) -> Vec<Survivor<T>> {
        self.open_flushes.clear();
        self.held.clear();
        let volatile = std::mem::take(&mut self.volatile);
        volatile.into_iter().filter_map(|change| survive(change, keep, torn, rng)).collect()
    }

    fn settle(&mut self, index: usize) -> Option<Change<T>> {
        let settled = self.volatile.remove(index)?;
        for older in self.volatile.range_mut(..index) {
            older.superseded.extend(overlap(&older.blocks, &settled.blocks));
        }
        Some(settled)
    }

    fn settle_before(&mut self, flush: Seq, settled: &mut Vec<Change<T>>) {
        let due = |change: &Change<T>| change.completed.is_some_and(|at| at < flush);
        // The common case: everything older than the flush completed before it, and goes in one piece.
        let prefix = self.volatile.iter().take_while(|change| due(change)).count();
        settled.extend(self.volatile.drain(..prefix));
        let mut index = 0;
        while index < self.volatile.len() && self.volatile[index].seq < flush {
            if due(&self.volatile[index]) {
                settled.extend(self.settle(index));
            } else {
                index += 1;
            }
        }
    }
}

fn survive<T>(change: Change<T>, keep: &Keep, torn: Option<u64>, rng: &mut Rng) -> Option<Survivor<T>> {
    let kept = match keep {
        Keep::Nothing => false,
        Keep::Everything => true,
        Keep::Random => rng.coin(),
        Keep::Only(chosen) => chosen.contains(&change.seq),
    };
    if !kept {
        return None;
    }
    let whole = change.effective();
    let blocks = match torn {
        Some(unit) => tear(whole, unit, rng),
        None => whole,
    };
    Some(Survivor { change, blocks })
}

/// Each unit by the toss of a coin. Changes beyond a million units, which only discards are, are torn at one place.
fn tear(whole: Vec<Range<u64>>, unit: u64, rng: &mut Rng) -> Vec<Range<u64>> {
    let count = count_units(&whole, unit);
    if count == 1 {
        return whole;
    }
    if count > 1 << 20 {
        let most = rng.draw() % count;
        return units(&whole, unit).take_while(|(place, _)| *place < most).map(|(_, range)| range).collect();
    }
    let kept: Vec<bool> = (0..count).map(|_| rng.coin()).collect();
    units(&whole, unit).filter(|(place, _)| kept[*place as usize]).map(|(_, range)| range).collect()
}

/// The parts of sorted ranges in each aligned unit of so many blocks, with the unit's place among those touched.
pub(crate) fn units(ranges: &[Range<u64>], unit: u64) -> impl Iterator<Item = (u64, Range<u64>)> {
    let parts = ranges.iter().flat_map(move |range| {
        let touched = range.start / unit..range.end.div_ceil(unit);
        touched.map(move |one| (one, range.start.max(one * unit)..range.end.min((one + 1) * unit)))
    });
    parts.scan((0, None), |(place, last), (one, range)| {
        *place += u64::from(last.is_some_and(|last| last != one));
        *last = Some(one);
        Some((*place, range))
    })
}

/// The number of units that sorted ranges touch.
pub(crate) fn count_units(ranges: &[Range<u64>], unit: u64) -> u64 {
    let mut last = None;
    let fresh = |range: &Range<u64>| {
        let (first, end) = (range.start / unit, range.end.div_ceil(unit));
        let known = last == Some(first);
        last = Some(end - 1);
        end - first - u64::from(known)
    };
    ranges.iter().map(fresh).sum()
}
