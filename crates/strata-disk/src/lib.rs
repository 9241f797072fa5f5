//! Disks that a host does not have. docs/media.md of pgstrata says how they are used.

#![warn(unreachable_pub)]

pub mod calibrate;
pub mod cli;
pub(crate) mod control;
pub(crate) mod daemon;
pub mod due;
pub mod durability;
pub mod engine;
pub mod fault;
pub mod fit;
pub mod front;
pub mod log;
pub mod media;
pub mod nature;
pub mod place;
pub mod private;
pub mod protocol;
pub mod rng;
pub(crate) mod shared;
pub mod states;
pub mod store;
pub mod text;
