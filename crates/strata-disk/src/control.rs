//! The daemon's side of the control socket.
//!
//! An answer is `{"ok": true, ...}` or `{"ok": false, "error": "..."}`. A line that is no request is answered with an
//! error and the connection goes on; a client that leaves in the middle takes nothing with it.

use crate::durability::Keep;
use crate::engine::{Cut, EngineError, Timed, Timing};
use crate::media::model::{Model, find_model};
use crate::media::parameters::ModelError;
use crate::media::{Medium, Stretched};
use crate::nature::{Nature, NatureError};
use crate::private;
use crate::protocol::{Added, Asked, Kept, LeftByCut, RequestError, parse_asked};
use crate::shared::{AttachError, Shared, send};
use crate::states::replay::{Replay, ReplayError};
use crate::store::{Image, Keeping, LARGEST_DISK, Snapshot};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use thiserror::Error;

/// Of a request: a state names each of its writes, and where nothing is flushed they are all that were recorded.
const LONGEST_LINE: u64 = 64 << 20;
const UNMODELLED_CACHE: u64 = 256 << 20;

/// Why a request is refused.
#[derive(Debug, Error)]
enum ControlError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Attach(#[from] AttachError),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Nature(#[from] NatureError),
    #[error(transparent)]
    Signal(#[from] Errno),
    #[error("poisoned lock: another task failed inside")]
    Poisoned,
    #[error("no snapshot {0:?}")]
    NoSnapshot(String),
    #[error("disk {0:?} lies in a file: only disks in memory have snapshots")]
    InFile(String),
    #[error("{0} is none of this daemon's devices")]
    Foreign(PathBuf),
    #[error("{node}: {source}")]
    InUse { node: PathBuf, source: io::Error },
    #[error("disk name {0:?} is not of letters, digits, - and _")]
    Name(String),
    #[error("stretch of {0} is not within 1 and 1000")]
    Stretch(f64),
    #[error("timing is that of a model, and none is given")]
    NoTiming,
    #[error("disk of {bytes} bytes is larger than the modelled one of {capacity}")]
    Capacity { bytes: u64, capacity: u64 },
    #[error(transparent)]
    Size(#[from] SizeError),
    #[error("state excludes file, snapshot and base")]
    StateAlone,
    #[error("file, snapshot and base exclude one another")]
    OneAlone,
    #[error("file {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("base {path}: {source}")]
    Base { path: PathBuf, source: io::Error },
    #[error("base {0} is smaller than a page")]
    SmallBase(PathBuf),
    #[error("{path}: {source}")]
    Log { path: PathBuf, source: io::Error },
}

impl<T> From<PoisonError<T>> for ControlError {
    fn from(_: PoisonError<T>) -> Self {
        Self::Poisoned
    }
}

/// Why a new disk cannot have its size.
#[derive(Debug, Error)]
enum SizeError {
    #[error("a size is needed")]
    Missing,
    #[error("size is 0")]
    Nothing,
    #[error("size of {0} bytes is not in pages of 4096")]
    Pages(u64),
    #[error("size of {0} bytes is beyond {LARGEST_DISK}")]
    Large(u64),
}

pub(crate) fn listen(listener: &UnixListener, shared: &Arc<Shared>) {
    for stream in listener.incoming().flatten().filter(private::is_own) {
        let shared = shared.clone();
        std::thread::spawn(move || converse(stream, &shared));
    }
}

fn converse(stream: UnixStream, shared: &Arc<Shared>) {
    let Ok(mut out) = stream.try_clone() else { return };
    let mut input = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        match (&mut input).take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(count) if count > 0 && line.ends_with(b"\n") => {}
            Ok(count) if count as u64 == LONGEST_LINE => {
                let error = format!("the request is longer than {} MiB", LONGEST_LINE >> 20);
                let _ = writeln!(out, "{}", json!({ "ok": false, "error": error }));
                return;
            }
            _ => return,
        }
        let result = understood(line).and_then(|asked| answer(shared, asked));
        let mut answer = match result {
            Ok(Value::Object(mut fields)) => {
                fields.insert("ok".into(), true.into());
                Value::Object(fields)
            }
            Ok(other) => json!({ "ok": true, "result": other }),
            Err(error) => json!({ "ok": false, "error": error.to_string() }),
        }
        .to_string();
        answer.push('\n');
        if out.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn understood(line: Vec<u8>) -> Result<Asked, ControlError> {
    Ok(parse_asked(&String::from_utf8(line).map_err(RequestError::from)?)?)
}

fn answer(shared: &Arc<Shared>, asked: Asked) -> Result<Value, ControlError> {
    let nothing = Ok(json!({}));
    match asked {
        Asked::Add(added) => add(shared, &added),
        Asked::Remove { disk, force } => {
            send(shared.engine().remove(&disk, force)?);
            if shared.nodes().contains_key(&disk) {
                shared.detach(&disk)?;
            }
            nothing
        }
        Asked::Attach { disk } => Ok(json!({ "node": shared.attach(&disk)? })),
        Asked::Detach { node } => done(detach(shared, &node)),
        Asked::Mark { text } => Ok(json!({ "seq": shared.engine().mark(&text)? })),
        Asked::Cut { disks, keep, torn, seed, at } => {
            let (failed, left) = shared.engine().cut(Cut { disks, keep: kept(keep), torn, seed }, at)?;
            send(failed);
            Ok(left)
        }
        Asked::PowerOn { disk } => done(shared.engine().power_on(&disk)),
        Asked::Pull { disk } => {
            send(shared.engine().pull(&disk)?);
            nothing
        }
        Asked::Snapshot { disk, name } => done(snapshot(shared, &disk, name)),
        Asked::DropSnapshot { name } => {
            let dropped = shared.snapshots.lock()?.remove(&name);
            dropped.map_or(Err(ControlError::NoSnapshot(name)), |_| nothing)
        }
        Asked::Fault { disk, fault } => done(shared.engine().add_fault(&disk, fault)),
        Asked::Lie { disk, flushes } => done(shared.engine().set_lie(&disk, flushes)),
        Asked::ClearFaults { disk } => done(shared.engine().clear_faults(&disk)),
        Asked::Timing { disks, set } => done(shared.engine().set_timing(&disks, set)),
        Asked::Stats => {
            let engine = shared.engine();
            let disks = engine.statistics(shared.now());
            let seq = engine.seq();
            drop(engine);
            Ok(json!({ "seq": seq, "disks": disks, "nodes": shared.nodes() }))
        }
        Asked::Stop => {
            kill(Pid::this(), Signal::SIGTERM)?;
            nothing
        }
    }
}

fn done(result: Result<(), impl Into<ControlError>>) -> Result<Value, ControlError> {
    result.map(|()| json!({})).map_err(Into::into)
}

/// Refused while the device is mounted or part of another.
fn detach(shared: &Shared, node: &Path) -> Result<(), ControlError> {
    let of = shared.nodes().into_iter().find(|(_, of)| of == node);
    let (disk, _) = of.ok_or_else(|| ControlError::Foreign(node.into()))?;
    let alone = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(node);
    drop(alone.map_err(|source| ControlError::InUse { node: node.into(), source })?);
    Ok(shared.detach(&disk)?)
}

fn kept(keep: Kept) -> Keep {
    match keep {
        Kept::Nothing => Keep::Nothing,
        Kept::Everything => Keep::Everything,
        Kept::Random => Keep::Random,
        Kept::Only(chosen) => Keep::Only(chosen),
    }
}

fn snapshot(shared: &Shared, disk: &str, name: String) -> Result<(), ControlError> {
    let snapshot = shared.engine().named(disk)?.image.snapshot();
    let snapshot = snapshot.ok_or_else(|| ControlError::InFile(disk.into()))?;
    shared.snapshots.lock()?.insert(name, snapshot);
    Ok(())
}

fn add(shared: &Shared, added: &Added) -> Result<Value, ControlError> {
    let name = &added.disk;
    if name.is_empty()
        || name.len() > 64
        || !name.chars().all(|one| one.is_ascii_alphanumeric() || "-_".contains(one))
    {
        return Err(ControlError::Name(name.clone()));
    }
    if !(added.stretch >= 1.0 && added.stretch <= 1000.0) {
        return Err(ControlError::Stretch(added.stretch));
    }
    let model = added.media.as_deref().map(find_model).transpose()?;
    let keeping = Keeping {
        nature: nature(added, model.as_ref()).check()?,
        cache_bytes: model.as_ref().map_or(UNMODELLED_CACHE, |model| model.cache_bytes()),
    };
    if model.is_none() && added.timing == Timing::Off {
        return Err(ControlError::NoTiming);
    }
    let image = image(shared, added, keeping)?;
    if let Some(capacity) =
        model.as_ref().and_then(|model| model.capacity_bytes()).filter(|most| *most < image.size())
    {
        return Err(ControlError::Capacity { bytes: image.size(), capacity });
    }
    let timed = model.as_ref().map(|model| timed(model, added)).transpose()?;
    let (size, nature) = (image.size(), image.nature());
    shared.engine().add(shared.now(), name, image, timed)?;
    Ok(json!({ "disk": name, "size": size, "model": model, "nature": nature }))
}

fn nature(added: &Added, model: Option<&Model>) -> Nature {
    let of = model.map_or_else(Nature::default, Model::nature);
    let block = added.block.unwrap_or(of.block);
    Nature { block, unit: added.unit.unwrap_or(of.unit.max(block)), ..of }
}

fn timed(model: &Model, added: &Added) -> Result<Timed, ControlError> {
    let medium = model.medium(added.seed)?;
    let medium: Box<dyn Medium> = match added.stretch {
        1.0 => medium,
        factor => Box::new(Stretched::new(medium, factor)),
    };
    let parameters =
        model.parameters.iter().map(|(name, parameter)| (name.clone(), parameter.value)).collect();
    Ok(Timed { model: model.name.clone(), parameters, stretch: added.stretch, timing: added.timing, medium })
}

fn image(shared: &Shared, added: &Added, keeping: Keeping) -> Result<Image, ControlError> {
    let size = || match added.size {
        None => Err(SizeError::Missing),
        Some(0) => Err(SizeError::Nothing),
        Some(size) if size % 4096 != 0 => Err(SizeError::Pages(size)),
        Some(size) if size > LARGEST_DISK => Err(SizeError::Large(size)),
        Some(size) => Ok(size),
    };
    if let Some(left) = &added.state {
        if added.file.is_some() || added.snapshot.is_some() || added.base.is_some() {
            return Err(ControlError::StateAlone);
        }
        let (left, nature) = left_by_cut(shared, left)?;
        return Ok(Image::over(&left, Keeping { nature, ..keeping }));
    }
    match (&added.file, &added.snapshot, &added.base) {
        (None, None, None) => Ok(Image::over(&Snapshot::blank(size()?), keeping)),
        (Some(path), None, None) => {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
            file.and_then(|file| Ok((file, size().map_err(io::Error::other)?)))
                .and_then(|(file, size)| Image::in_file(file, size, keeping))
                .map_err(|source| ControlError::File { path: path.clone(), source })
        }
        (None, Some(name), None) => {
            let snapshots = shared.snapshots.lock()?;
            let snapshot = snapshots.get(name).ok_or_else(|| ControlError::NoSnapshot(name.clone()))?;
            Ok(Image::over(snapshot, keeping))
        }
        (None, None, Some(path)) => {
            let snapshot = File::open(path).and_then(Snapshot::of_file);
            let snapshot = snapshot.map_err(|source| ControlError::Base { path: path.clone(), source })?;
            if snapshot.size() == 0 {
                return Err(ControlError::SmallBase(path.clone()));
            }
            Ok(Image::over(&snapshot, keeping))
        }
        _ => Err(ControlError::OneAlone),
    }
}

/// The log is gone through once as long as states come in the order of their cuts, else from its beginning again.
fn left_by_cut(shared: &Shared, left: &LeftByCut) -> Result<(Snapshot, Nature), ControlError> {
    let mut replays = shared.replays.lock()?;
    let there = replays.remove(&left.log).filter(|replay| replay.reaches(&left.state));
    let mut replay = match there {
        Some(replay) => replay,
        None => {
            let log = File::open(&left.log)
                .map_err(|source| ControlError::Log { path: left.log.clone(), source })?;
            let log = BufReader::new(log);
            Replay::new(log, left.state.lying)?
        }
    };
    let found = replay.state(&left.state, &left.of)?;
    replays.insert(left.log.clone(), replay);
    Ok(found)
}
