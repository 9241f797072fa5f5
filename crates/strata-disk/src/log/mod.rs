//! The event log: every change, flush, completion, mark and cut of all disks in their one order.

pub mod behind;
pub mod dm_log_writes;
pub mod native;

use crate::durability::Seq;
use crate::nature::Nature;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Added {
        name: String,
        size: u64,
        nature: Nature,
    },
    Write {
        offset: u64,
        fua: bool,
        data: Vec<u8>,
    },
    WriteZeroes {
        offset: u64,
        length: u64,
    },
    Discard {
        offset: u64,
        length: u64,
    },
    Flush,
    /// What was submitted as `of` completes, `failed` with an error.
    Completed {
        of: Seq,
        failed: bool,
    },
    Mark {
        text: String,
    },
    Cut,
}

/// Marks and cuts that concern all disks have the disk `EVERY`.
pub const EVERY: u32 = u32::MAX;

/// An event with its number and its disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub seq: Seq,
    pub disk: u32,
    pub event: Event,
}
