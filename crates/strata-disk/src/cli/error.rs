//! Why a verb fails.

use crate::daemon::ServeError;
use crate::front::attach::NodeError;
use crate::log::native::LogError;
use crate::media::parameters::ModelError;
use crate::place::PlaceError;
use crate::protocol::AskError;
use crate::states::replay::ReplayError;
use std::io;
use std::path::PathBuf;
use std::time::TryFromFloatSecsError;
use thiserror::Error;

#[derive(Debug, Error)]
pub(crate) enum VerbError {
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error(transparent)]
    Fit(#[from] crate::fit::FitError),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Toml(#[from] toml::ser::Error),
    #[error(transparent)]
    Output(io::Error),
    #[error("own program: {0}")]
    OwnProgram(io::Error),
    #[error("daemon: {0}")]
    Daemon(io::Error),
    /// In the words of the daemon that did not begin.
    #[error("{0}")]
    NotBegun(String),
    #[error("--seconds: {0}")]
    Seconds(#[from] TryFromFloatSecsError),
    #[error("loading {path}: {source}")]
    Load { path: PathBuf, source: io::Error },
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("standard input: {0}")]
    Input(io::Error),
    #[error("no state: {0}")]
    State(serde_json::Error),
    #[error("{log}: {why}")]
    Log { log: PathBuf, why: Unread },
    #[error("export of {log}: {why}")]
    Export { log: PathBuf, why: Unread },
    #[error(transparent)]
    Unread(#[from] Unread),
    #[error("no disk {disk:?} in {log}")]
    NoDisk { disk: String, log: PathBuf },
}

/// Why nothing can be made of an event log.
#[derive(Debug, Error)]
pub(crate) enum Unread {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// Why an option has no such value.
#[derive(Debug, Error)]
pub(crate) enum OptionError {
    #[error("neither all nor a number")]
    Lie,
    #[error("neither on nor off")]
    Timing,
}
