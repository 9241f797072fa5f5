//! Disks as block devices, from outside the daemon: by its ublk front, or by loop devices over its files.

use crate::front::ublk::NODES;
use crate::front::ublk::control::{Control, PATH};
use crate::place::Place;
use crate::protocol::{AskError, Asked, answer};
use clap::ValueEnum;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use thiserror::Error;

/// The way from a block device to its disk.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Front {
    Ublk,
    Loop,
}

/// Why a disk cannot be attached or detached.
#[derive(Debug, Error)]
pub(crate) enum NodeError {
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("the daemon named no device")]
    Unnamed,
    #[error("no disk {0:?}")]
    Unknown(String),
    #[error("{node} is no loop device over a disk of {dir}")]
    Foreign { node: PathBuf, dir: PathBuf },
    #[error("losetup: {0}")]
    Losetup(io::Error),
    /// In the words of losetup.
    #[error("{0}")]
    Refused(String),
}

/// The node. Where neither front was asked for and ublk cannot be used, the reason is told.
pub(crate) fn attach(dir: &Path, name: &str, front: Option<Front>) -> Result<String, NodeError> {
    match front.unwrap_or_else(usual_front) {
        Front::Ublk => {
            let answer = answer(dir, &Asked::Attach { disk: name.into() })?;
            let node = answer["node"].as_str().map(str::to_string);
            node.ok_or(NodeError::Unnamed)
        }
        Front::Loop => {
            let block = block_bytes(&answer(dir, &Asked::Stats)?, name);
            let sector = format!("--sector-size={}", block.ok_or_else(|| NodeError::Unknown(name.into()))?);
            losetup(&["--find", "--show", "--direct-io=on", &sector], &Place(dir.into()).disks().join(name))
        }
    }
}

/// The logical block of a disk, from the daemon's `stats`.
fn block_bytes(stats: &serde_json::Value, name: &str) -> Option<u64> {
    let disk = stats["disks"].as_array()?.iter().find(|disk| disk["name"] == name)?;
    disk["nature"]["block"].as_u64()
}

pub(crate) fn usual_front() -> Front {
    if !Path::new(PATH).exists() {
        return Front::Loop;
    }
    match Control::open().and_then(|control| control.is_usable()) {
        Ok(()) => Front::Ublk,
        Err(error) => {
            eprintln!("strata-disk: {error}; a loop device instead");
            Front::Loop
        }
    }
}

pub(crate) fn detach(dir: &Path, node: &Path) -> Result<(), NodeError> {
    if node.to_string_lossy().starts_with(NODES) {
        answer(dir, &Asked::Detach { node: node.into() })?;
        return Ok(());
    }
    if !lies_on(node, dir) {
        return Err(NodeError::Foreign { node: node.into(), dir: dir.into() });
    }
    losetup(&["--detach"], node).map(drop)
}

/// Whether a loop device is over a disk of the daemon in this folder.
fn lies_on(node: &Path, dir: &Path) -> bool {
    let name = node.file_name().unwrap_or_default();
    let file = std::fs::read_to_string(Path::new("/sys/block").join(name).join("loop/backing_file"));
    let disks = std::fs::canonicalize(dir).map(|dir| Place(dir).disks());
    matches!((file, disks), (Ok(file), Ok(disks)) if Path::new(file.trim_end()).parent() == Some(&disks))
}

fn losetup(options: &[&str], on: &Path) -> Result<String, NodeError> {
    let done = Command::new("losetup").args(options).arg(on).output();
    let done = done.map_err(NodeError::Losetup)?;
    if !done.status.success() {
        return Err(NodeError::Refused(String::from_utf8_lossy(&done.stderr).trim().to_string()));
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_string())
}
