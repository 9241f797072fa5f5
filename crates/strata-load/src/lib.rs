//! Statements of PostgreSQL's logs as a load, and their replay. docs/capture.md of pgstrata describes both.

#![warn(unreachable_pub)]

pub mod capture;
pub mod cli;
pub mod load;
pub mod replay;
pub mod sql;
