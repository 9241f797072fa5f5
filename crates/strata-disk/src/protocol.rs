//! What the control socket is asked, and the way to it: one JSON object a line in, one a line out. docs/media.md lists
//! the operations.

use crate::durability::{Lie, Seq};
use crate::engine::Timing;
use crate::fault::Fault;
use crate::place::Place;
use crate::states::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a line is no request.
#[derive(Debug, Error)]
pub enum RequestError {
    #[error("no request: {0}")]
    Json(#[from] serde_json::Error),
    #[error("no request: not UTF-8")]
    Text(#[from] std::string::FromUtf8Error),
}

/// Why a daemon did not do what it was asked for.
#[derive(Debug, Error)]
pub(crate) enum AskError {
    #[error("daemon at {path}: {source}")]
    Socket { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Unsaid(#[from] serde_json::Error),
    #[error("daemon left without an answer")]
    Left,
    /// In its own words.
    #[error("{0}")]
    Refused(String),
}

/// A request of the control socket.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Asked {
    Add(Added),
    Remove {
        disk: String,
        #[serde(default)]
        force: bool,
    },
    /// As a block device of ublk.
    Attach {
        disk: String,
    },
    /// Of what `attach` made.
    Detach {
        node: PathBuf,
    },
    Mark {
        text: String,
    },
    Cut {
        #[serde(default)]
        disks: Option<Vec<String>>,
        #[serde(default)]
        keep: Kept,
        #[serde(default)]
        torn: bool,
        #[serde(default)]
        seed: u64,
        /// The sequence number before whose successor power is lost; at once, where none is given.
        #[serde(default)]
        at: Option<Seq>,
    },
    PowerOn {
        disk: String,
    },
    Pull {
        disk: String,
    },
    Snapshot {
        disk: String,
        name: String,
    },
    DropSnapshot {
        name: String,
    },
    Fault {
        disk: String,
        fault: Fault,
    },
    Lie {
        disk: String,
        flushes: Lie,
    },
    ClearFaults {
        disk: String,
    },
    Timing {
        disks: Vec<String>,
        set: Timing,
    },
    Stats,
    Stop,
}

/// A disk that is to be added.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Added {
    pub disk: String,
    /// Bytes; what an overlay starts from has its own size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media: Option<String>,
    #[serde(default = "one")]
    pub stretch: f64,
    #[serde(default)]
    pub timing: Timing,
    #[serde(default)]
    pub seed: u64,
    /// Bytes of the logical block, and of the unit that a cut does not tear; a state has those of its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<u64>,
    /// Keep the content in this file instead of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Start as an overlay of this snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Start as an overlay of this file, which is not written to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<PathBuf>,
    /// Start as what a power cut left of a disk in an event log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Box<LeftByCut>>,
}

/// A disk as a power cut left it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftByCut {
    pub log: PathBuf,
    /// The disk's name in the log.
    pub of: String,
    pub state: State,
}

fn one() -> f64 {
    1.0
}

/// What of the volatile changes a cut leaves.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    #[default]
    Nothing,
    Everything,
    Random,
    Only(Vec<Seq>),
}

/// The request that a line is.
pub fn parse_asked(line: &str) -> Result<Asked, RequestError> {
    Ok(serde_json::from_str(line)?)
}

/// Binds the socket; its path may be longer than the 107 bytes that an address holds.
pub(crate) fn bind(socket: &Path) -> io::Result<UnixListener> {
    reached(socket, UnixListener::bind)
}

/// Calls `act` with a short path to the socket, through an open descriptor of its folder.
fn reached<T>(socket: &Path, act: impl FnOnce(PathBuf) -> io::Result<T>) -> io::Result<T> {
    let (Some(folder), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no path of a socket"));
    };
    let folder = File::open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?;
    act(Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name))
}

/// Asks the daemon in a folder; its answer, or its error.
pub(crate) fn ask(socket: &Path, asked: &str) -> Result<Value, AskError> {
    let told = |source| AskError::Socket { path: socket.into(), source };
    let mut stream = reached(socket, UnixStream::connect).map_err(told)?;
    stream.write_all(format!("{asked}\n").as_bytes()).map_err(told)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(told)?;
    let answer: Value = serde_json::from_str(&line).map_err(|_| AskError::Left)?;
    match answer["error"].as_str() {
        Some(error) => Err(AskError::Refused(error.into())),
        None => Ok(answer),
    }
}

/// Asks the daemon that serves a folder.
pub(crate) fn answer(dir: &Path, asked: &Asked) -> Result<Value, AskError> {
    ask(&Place(dir.into()).control(), &serde_json::to_string(asked)?)
}
