//! The properties of a disk that decide what a power cut leaves of it.

use serde::{Deserialize, Serialize};
use thiserror::Error;

const LARGEST_UNIT: u64 = 1 << 16;

/// A logical block or an unbroken unit that no disk has.
#[derive(Debug, Error)]
pub enum NatureError {
    #[error("block of {0} bytes is neither 512 nor 4096")]
    Block(u64),
    #[error("unit of {0} bytes is no power of two from the block to 65536")]
    Unit(u64),
}

/// The fate of completed writes without a flush at a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    #[default]
    Lost,
    Kept,
}

/// The properties that an event log has of each disk, and every state with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nature {
    pub cache: Cache,
    /// Bytes of the logical block, of which requests are multiples.
    pub block: u64,
    /// Bytes of the aligned unit that a power cut does not tear: the physical sector, or more.
    pub unit: u64,
}

impl Default for Nature {
    /// A disk with a volatile cache and sectors of 512 bytes.
    fn default() -> Self {
        Self { cache: Cache::Lost, block: 512, unit: 512 }
    }
}

impl Nature {
    /// An error where no disk is like this.
    pub fn check(self) -> Result<Self, NatureError> {
        if ![512, 4096].contains(&self.block) {
            return Err(NatureError::Block(self.block));
        }
        if !self.unit.is_power_of_two() || self.unit < self.block || self.unit > LARGEST_UNIT {
            return Err(NatureError::Unit(self.unit));
        }
        Ok(self)
    }

    /// Logical blocks in a unit.
    pub fn unit_blocks(self) -> u64 {
        self.unit / self.block
    }
}
