//! How requests reach the engine.

pub mod disks;
mod fields;
pub mod fuse;
pub mod patience;
pub mod ublk;
pub mod wire;

use crate::engine::{Op, Refused};
use nix::errno::Errno;

/// A request that is to be answered, by whichever front it came.
pub enum Reply {
    Fuse(fuse::Reply),
    Ublk(ublk::queue::Reply),
}

impl Reply {
    /// `result` is the data of a read, and empty for what has none.
    pub fn send(self, result: Result<Vec<u8>, Refused>) {
        match self {
            Self::Fuse(reply) => reply.send(result),
            Self::Ublk(reply) => reply.send(result),
        }
    }

    /// Says that what was asked is done, before it is: whoever asked goes on meanwhile.
    pub fn send_before(self) {
        match self {
            Self::Fuse(reply) => {
                reply.send(Ok(Vec::new()));
                // the kernel ends the request on this processor
                std::thread::yield_now();
            }
            // its thread gives the answer as soon as it is back
            Self::Ublk(reply) => reply.send(Ok(Vec::new())),
        }
    }
}

fn errno(refused: Refused) -> Errno {
    match refused {
        Refused::Io => Errno::EIO,
        Refused::OutOfRange => Errno::EINVAL,
        Refused::Unsupported => Errno::EOPNOTSUPP,
    }
}

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
    fn read(&self, file: u32, offset: u64, length: u64, reply: fuse::Reply);

    fn submit(&self, file: u32, op: Op<'_>, reply: fuse::Reply);
}
