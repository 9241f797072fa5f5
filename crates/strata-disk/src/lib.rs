//! Disks that a host does not have. ARCHITECTURE.md and docs/media.md of pgstrata say how it is used.

pub mod durability;
pub mod log;
pub mod media;
pub mod rng;
