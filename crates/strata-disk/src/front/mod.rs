//! How requests reach the engine.

pub(crate) mod attach;
pub(crate) mod disks;
mod fields;
pub mod fuse;
pub mod patience;
pub mod ublk;
pub mod wire;

use crate::engine::Refused;

/// A request that is to be answered, by whichever front it came.
pub(crate) enum Reply {
    Fuse(fuse::Reply),
    Ublk(ublk::queue::Reply),
}

impl Reply {
    /// `result` is the data of a read, and empty for what has none.
    pub(crate) fn send(self, result: Result<Vec<u8>, Refused>) {
        match self {
            Self::Fuse(reply) => reply.send(result),
            Self::Ublk(reply) => reply.send(result),
        }
    }

    /// Acknowledges the request before it is applied, so that the requester can continue.
    pub(crate) fn send_before(self) {
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
