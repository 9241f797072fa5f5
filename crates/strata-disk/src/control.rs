//! The control socket: one JSON object a line in, one a line out. docs/media.md lists the operations.
//!
//! An answer is `{"ok": true, ...}` or `{"ok": false, "error": "..."}`. A line that is no request is answered with an
//! error and the connection goes on; a client that leaves in the middle takes nothing with it.

use crate::daemon::{Shared, send};
use crate::durability::{Keep, Lie, Seq};
use crate::engine::{Cut, Timed, Timing};
use crate::fault::Fault;
use crate::media::model::{Model, find_model};
use crate::media::{Medium, Stretched};
use crate::states::State;
use crate::states::replay::Replay;
use crate::store::{Image, Keeping, Snapshot};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const LONGEST_LINE: u64 = 1 << 20;
const UNMODELLED_CACHE: u64 = 256 << 20;
pub const LARGEST_DISK: u64 = 1 << 44;

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
    /// The logical block in which a cut tears.
    #[serde(default = "sector")]
    pub block: u64,
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

fn sector() -> u64 {
    512
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    #[default]
    Nothing,
    Everything,
    Random,
    Only(Vec<Seq>),
}

pub fn parse_asked(line: &str) -> Result<Asked, String> {
    serde_json::from_str(line).map_err(|error| format!("no request: {error}"))
}

/// Binds the socket; its path may be longer than the 107 bytes that an address holds.
pub fn bind(socket: &Path) -> io::Result<UnixListener> {
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

pub fn listen(listener: &UnixListener, shared: &Arc<Shared>) {
    for stream in listener.incoming().flatten() {
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
            _ => return,
        }
        let asked = String::from_utf8(line).map_err(|_| "no request: not UTF-8".to_string());
        let result = asked.and_then(|line| parse_asked(&line)).and_then(|asked| answer(shared, asked));
        let mut answer = match result {
            Ok(Value::Object(mut fields)) => {
                fields.insert("ok".into(), true.into());
                Value::Object(fields)
            }
            Ok(other) => json!({ "ok": true, "result": other }),
            Err(error) => json!({ "ok": false, "error": error }),
        }
        .to_string();
        answer.push('\n');
        if out.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn answer(shared: &Arc<Shared>, asked: Asked) -> Result<Value, String> {
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
        Asked::Detach { node } => detach(shared, &node).and(nothing),
        Asked::Mark { text } => Ok(json!({ "seq": shared.engine().mark(&text)? })),
        Asked::Cut { disks, keep, torn, seed, at } => {
            let (failed, left) = shared.engine().cut(Cut { disks, keep: kept(keep), torn, seed }, at)?;
            send(failed);
            Ok(left)
        }
        Asked::PowerOn { disk } => shared.engine().power_on(&disk).and(nothing),
        Asked::Pull { disk } => {
            send(shared.engine().pull(&disk)?);
            nothing
        }
        Asked::Snapshot { disk, name } => snapshot(shared, &disk, name).and(nothing),
        Asked::DropSnapshot { name } => {
            let dropped = shared.snapshots.lock().map_err(|error| error.to_string())?.remove(&name);
            dropped.ok_or(format!("no snapshot {name:?}")).and(nothing)
        }
        Asked::Fault { disk, fault } => shared.engine().add_fault(&disk, fault).and(nothing),
        Asked::Lie { disk, flushes } => shared.engine().set_lie(&disk, flushes).and(nothing),
        Asked::ClearFaults { disk } => shared.engine().clear_faults(&disk).and(nothing),
        Asked::Timing { disks, set } => shared.engine().set_timing(&disks, set).and(nothing),
        Asked::Stats => {
            let engine = shared.engine();
            let disks = engine.statistics(shared.now());
            let seq = engine.seq();
            drop(engine);
            Ok(json!({ "seq": seq, "disks": disks, "nodes": shared.nodes() }))
        }
        Asked::Stop => {
            kill(Pid::this(), Signal::SIGTERM).map_err(|error| error.to_string())?;
            nothing
        }
    }
}

/// Refused while the device is mounted or part of another.
fn detach(shared: &Shared, node: &Path) -> Result<(), String> {
    let of = shared.nodes().into_iter().find(|(_, of)| of == node);
    let (disk, _) = of.ok_or_else(|| format!("{} is none of this daemon's devices", node.display()))?;
    let alone = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(node);
    drop(alone.map_err(|error| format!("{}: {error}", node.display()))?);
    shared.detach(&disk)
}

fn kept(keep: Kept) -> Keep {
    match keep {
        Kept::Nothing => Keep::Nothing,
        Kept::Everything => Keep::Everything,
        Kept::Random => Keep::Random,
        Kept::Only(chosen) => Keep::Only(chosen),
    }
}

fn snapshot(shared: &Shared, disk: &str, name: String) -> Result<(), String> {
    let snapshot = shared.engine().named(disk)?.image.snapshot();
    let snapshot =
        snapshot.ok_or(format!("disk {disk:?} lies in a file: only disks in memory have snapshots"))?;
    shared.snapshots.lock().map_err(|error| error.to_string())?.insert(name, snapshot);
    Ok(())
}

fn add(shared: &Shared, added: &Added) -> Result<Value, String> {
    let name = &added.disk;
    if name.is_empty()
        || name.len() > 64
        || !name.chars().all(|one| one.is_ascii_alphanumeric() || "-_".contains(one))
    {
        return Err(format!("disk name {name:?} is not of letters, digits, - and _"));
    }
    if ![512, 4096].contains(&added.block) {
        return Err(format!("block of {} bytes is neither 512 nor 4096", added.block));
    }
    if !(added.stretch >= 1.0 && added.stretch <= 1000.0) {
        return Err(format!("stretch of {} is not within 1 and 1000", added.stretch));
    }
    let model = added.media.as_deref().map(find_model).transpose().map_err(|error| error.to_string())?;
    let keeping = Keeping {
        block_bytes: added.block,
        volatile_cache: model.as_ref().is_none_or(|model| model.volatile_cache),
        cache_bytes: model.as_ref().map_or(UNMODELLED_CACHE, |model| model.cache_bytes()),
    };
    if model.is_none() && added.timing == Timing::Off {
        return Err("timing is that of a model, and none is given".into());
    }
    let image = image(shared, added, keeping)?;
    if let Some(capacity) =
        model.as_ref().and_then(|model| model.capacity_bytes()).filter(|most| *most < image.size())
    {
        return Err(format!("disk of {} bytes is larger than the modelled one of {capacity}", image.size()));
    }
    let timed = model.as_ref().map(|model| timed(model, added)).transpose()?;
    let size = image.size();
    shared.engine().add(shared.now(), name, image, timed)?;
    Ok(json!({ "disk": name, "size": size, "model": model }))
}

fn timed(model: &Model, added: &Added) -> Result<Timed, String> {
    let medium = model.medium(added.seed).map_err(|error| error.to_string())?;
    let medium: Box<dyn Medium> = match added.stretch {
        1.0 => medium,
        factor => Box::new(Stretched::new(medium, factor)),
    };
    let parameters =
        model.parameters.iter().map(|(name, parameter)| (name.clone(), parameter.value)).collect();
    Ok(Timed { model: model.name.clone(), parameters, stretch: added.stretch, timing: added.timing, medium })
}

fn image(shared: &Shared, added: &Added, keeping: Keeping) -> Result<Image, String> {
    let size = || {
        let size = added.size.ok_or("a size is needed")?;
        match size {
            0 => Err("size is 0".to_string()),
            size if size % 4096 != 0 => Err(format!("size of {size} bytes is not in pages of 4096")),
            size if size > LARGEST_DISK => Err(format!("size of {size} bytes is beyond {LARGEST_DISK}")),
            size => Ok(size),
        }
    };
    if let Some(left) = &added.state {
        if added.file.is_some() || added.snapshot.is_some() || added.base.is_some() {
            return Err("state excludes file, snapshot and base".into());
        }
        return Ok(Image::over(&left_by_cut(shared, left, added.block)?, keeping));
    }
    match (&added.file, &added.snapshot, &added.base) {
        (None, None, None) => Ok(Image::over(&Snapshot::blank(size()?), keeping)),
        (Some(path), None, None) => {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
            file.and_then(|file| Ok((file, size().map_err(std::io::Error::other)?)))
                .and_then(|(file, size)| Image::in_file(file, size, keeping))
                .map_err(|error| format!("file {}: {error}", path.display()))
        }
        (None, Some(name), None) => {
            let snapshots = shared.snapshots.lock().map_err(|error| error.to_string())?;
            let snapshot = snapshots.get(name).ok_or_else(|| format!("no snapshot {name:?}"))?;
            Ok(Image::over(snapshot, keeping))
        }
        (None, None, Some(path)) => {
            let snapshot = File::open(path).and_then(Snapshot::of_file);
            let snapshot = snapshot.map_err(|error| format!("base {}: {error}", path.display()))?;
            if snapshot.size() == 0 {
                return Err(format!("base {} is smaller than a page", path.display()));
            }
            Ok(Image::over(&snapshot, keeping))
        }
        _ => Err("file, snapshot and base exclude one another".into()),
    }
}

/// The log is gone through once as long as states come in the order of their cuts, else from its beginning again.
fn left_by_cut(shared: &Shared, left: &LeftByCut, block_bytes: u64) -> Result<Snapshot, String> {
    let key = (left.log.clone(), block_bytes);
    let mut replays = shared.replays.lock().map_err(|error| error.to_string())?;
    let there = replays.remove(&key).filter(|replay| replay.reaches(&left.state));
    let mut replay = match there {
        Some(replay) => replay,
        None => {
            let log = File::open(&left.log).map_err(|error| format!("{}: {error}", left.log.display()))?;
            let log = BufReader::new(log);
            Replay::new(log, block_bytes, left.state.lying).map_err(|error| error.to_string())?
        }
    };
    let snapshot = replay.state(&left.state, &left.of).map_err(|error| error.to_string())?;
    replays.insert(key, replay);
    Ok(snapshot)
}

/// Asks the daemon in a folder; its answer, or its error.
pub fn ask(socket: &Path, asked: &str) -> Result<Value, String> {
    let told = |error: io::Error| format!("daemon at {}: {error}", socket.display());
    let mut stream = reached(socket, UnixStream::connect).map_err(told)?;
    stream.write_all(format!("{asked}\n").as_bytes()).map_err(told)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(told)?;
    let answer: Value =
        serde_json::from_str(&line).map_err(|_| "daemon left without an answer".to_string())?;
    match answer["error"].as_str() {
        Some(error) => Err(error.into()),
        None => Ok(answer),
    }
}
