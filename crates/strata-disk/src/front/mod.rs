//! How requests reach the engine.

pub mod fuse;
