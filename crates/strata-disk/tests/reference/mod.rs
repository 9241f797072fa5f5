//! The rules of `durability` read off the whole list of events. Slow and plain: it exists to be compared with.

use std::collections::BTreeSet;
use std::ops::Range;
use strata_disk::durability::Seq;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Change { seq: Seq, blocks: Range<u64>, fua: bool },
    Flush { seq: Seq },
    Completed { seq: Seq, at: Seq },
}

#[derive(Debug, Clone, Default)]
pub struct Reference {
    pub events: Vec<Event>,
}

struct Written {
    seq: Seq,
    blocks: Range<u64>,
    fua: bool,
    completed: Option<Seq>,
}

impl Reference {
    fn completed(&self, wanted: Seq) -> Option<Seq> {
        self.events.iter().find_map(|event| match event {
            Event::Completed { seq, at } if *seq == wanted => Some(*at),
            _ => None,
        })
    }

    fn written(&self) -> Vec<Written> {
        let change = |event: &Event| match event {
            Event::Change { seq, blocks, fua } => Some(Written {
                seq: *seq,
                blocks: blocks.clone(),
                fua: *fua,
                completed: self.completed(*seq),
            }),
            _ => None,
        };
        self.events.iter().filter_map(change).collect()
    }

    /// D: completed before a completed flush was submitted, or completed with FUA.
    pub fn durable(&self) -> BTreeSet<Seq> {
        let flushes: Vec<Seq> = self
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Flush { seq } if self.completed(*seq).is_some() => Some(*seq),
                _ => None,
            })
            .collect();
        let lasting = |change: &Written| {
            change.completed.is_some_and(|at| change.fua || flushes.iter().any(|flush| at < *flush))
        };
        self.written().into_iter().filter(lasting).map(|change| change.seq).collect()
    }

    /// The changes whose content a block may show after the cut; 0 is what was there before all of them.
    pub fn legal(&self, block: u64) -> BTreeSet<Seq> {
        let durable = self.durable();
        let here: Vec<Written> =
            self.written().into_iter().filter(|change| change.blocks.contains(&block)).collect();
        let replaced = |seq: Seq, completed: Option<Seq>| {
            here.iter().any(|later| {
                durable.contains(&later.seq)
                    && later.seq != seq
                    && (seq == 0 || completed.is_some_and(|at| at < later.seq))
            })
        };
        std::iter::once((0, None))
            .chain(here.iter().map(|change| (change.seq, change.completed)))
            .filter(|(seq, completed)| !replaced(*seq, *completed))
            .map(|(seq, _)| seq)
            .collect()
    }
}
