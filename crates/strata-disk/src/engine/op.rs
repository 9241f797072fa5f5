//! What a front asks of a disk, and what it is answered.

use crate::durability::Keep;
use crate::fault::On;
use crate::media::{Kind, Ns, Request};
use nix::errno::Errno;

/// One request to a disk.
#[derive(Debug, Clone, Copy)]
pub enum Op<'a> {
    Read { offset: u64, length: u64 },
    Write { offset: u64, data: &'a [u8], fua: bool },
    Zero { offset: u64, length: u64, discard: bool },
    Flush,
}

impl Op<'_> {
    pub(super) fn request(&self) -> Request {
        match *self {
            Op::Read { offset, length } => Request { kind: Kind::Read, offset, length },
            Op::Write { offset, data, .. } => {
                Request { kind: Kind::Write, offset, length: data.len() as u64 }
            }
            Op::Zero { offset, length, .. } => Request { kind: Kind::Zero, offset, length },
            Op::Flush => Request { kind: Kind::Flush, offset: 0, length: 0 },
        }
    }

    pub(super) fn on(&self) -> On {
        match self {
            Op::Read { .. } => On::Read,
            Op::Flush => On::Flush,
            Op::Write { .. } | Op::Zero { .. } => On::Write,
        }
    }
}

/// Why a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The disk does not exist, has no power or met a fault.
    Io,
    OutOfRange,
    /// This disk has no such command.
    Unsupported,
}

impl Refused {
    pub(crate) fn errno(self) -> Errno {
        match self {
            Self::Io => Errno::EIO,
            Self::OutOfRange => Errno::EINVAL,
            Self::Unsupported => Errno::EOPNOTSUPP,
        }
    }
}

/// The end of a request; `R` is whatever the front answers with.
pub struct Answer<R> {
    pub reply: R,
    /// The data of a read; empty otherwise.
    pub result: Result<Vec<u8>, Refused>,
}

/// A request under way.
pub(super) struct Pending {
    pub(super) disk: u32,
    pub(super) request: Request,
    pub(super) submitted: Ns,
    pub(super) due: Ns,
    pub(super) delay: Ns,
    /// Whether the medium says when it completes.
    pub(super) timed: bool,
}

/// A power cut: the disks, all where none are named, and what it leaves of their volatile changes.
#[derive(Debug, Clone)]
pub struct Cut {
    pub disks: Option<Vec<String>>,
    pub keep: Keep,
    pub torn: bool,
    pub seed: u64,
}
