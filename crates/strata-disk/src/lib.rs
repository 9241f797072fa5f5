//! Disks that a host does not have. docs/media.md of pgstrata says how they are used.

pub mod calibrate;
pub mod control;
pub mod daemon;
pub mod durability;
pub mod engine;
pub mod fault;
pub mod fit;
pub mod front;
pub mod log;
pub mod media;
pub mod rng;
pub mod states;
pub mod store;
pub mod text;
