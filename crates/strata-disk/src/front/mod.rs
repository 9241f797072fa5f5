//! How requests reach the engine.

pub mod disks;
pub mod fuse;
pub mod wire;

use crate::engine::Op;
use fuse::Reply;

/// The files of a mount, by numbers of their own.
pub trait Files: Send + Sync {
    fn find(&self, name: &str) -> Option<u32>;

    /// Bytes of a file, where there is one.
    fn size(&self, file: u32) -> Option<u64>;

    fn list(&self) -> Vec<(String, u32)>;

    /// Whether it is there to be opened.
    fn open(&self, file: u32) -> bool;

    fn release(&self, file: u32);

    /// What lies beyond the end of a file is not read.
    fn read(&self, file: u32, offset: u64, length: u64, reply: Reply);

    fn submit(&self, file: u32, op: Op<'_>, reply: Reply);
}
