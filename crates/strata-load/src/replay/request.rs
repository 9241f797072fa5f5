//! What is asked of a replay, why it fails, and how far it is.

use super::plan::Speed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use thiserror::Error;

/// What to replay against.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub database: String,
    pub speed: Speed,
    pub seconds: Option<f64>,
    pub threads: Option<usize>,
    pub patience: f64,
}

#[derive(Debug, Error)]
pub enum ReplayError {
    #[error("cannot connect to {host}: {source}")]
    Connect { host: String, source: std::io::Error },
    #[error("waiting for sockets: {0}")]
    Poll(#[from] std::io::Error),
}

/// Counts that grow while threads run.
#[derive(Default)]
pub(super) struct Progress {
    pub statements: AtomicU64,
    pub transactions: AtomicU64,
    pub ended: AtomicBool,
}
