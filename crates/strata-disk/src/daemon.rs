//! The daemon: it serves the disks of its folder until it is told to stop.

use crate::control;
use crate::front::disks::Disks;
use crate::front::fuse::{self, MountError};
use crate::log::behind::Behind;
use crate::log::native::Writer;
use crate::place::{Place, PlaceError, SOURCE};
use crate::private;
use crate::protocol::bind;
use crate::shared::{Shared, send};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{SigSet, Signal};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Of linux/prctl.h since 5.6.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// Why a daemon does not serve.
#[derive(Debug, Error)]
pub(crate) enum ServeError {
    #[error("folder {path}: {source}")]
    Folder { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("signals: {0}")]
    Signals(Errno),
    #[error("event log {path}: {source}")]
    Log { path: PathBuf, source: io::Error },
    #[error("control socket: {0}")]
    Socket(io::Error),
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error("thread of due answers: {0}")]
    Thread(io::Error),
    #[error("wait for a signal: {0}")]
    Wait(Errno),
}

/// Serves until it is told to stop. `ready` is called once disks can be added.
pub(crate) fn serve(place: &Place, log: Option<&Path>, ready: impl FnOnce()) -> Result<(), ServeError> {
    private::folder(&place.0).map_err(|source| ServeError::Folder { path: place.0.clone(), source })?;
    let _lock = place.hold()?;
    place.forget_the_dead()?;
    let disks = fs::DirBuilder::new().recursive(true).mode(0o700).create(place.disks());
    disks.map_err(|source| ServeError::Folder { path: place.disks(), source })?;
    let signals = block_signals()?;
    stay_out_of_reclaim();
    let log = log.map(open_log).transpose()?;
    let shared = Arc::new(Shared::new(place.clone(), log));
    let listener = private::masked(|| bind(&place.control())).map_err(ServeError::Socket)?;
    fuse::serve(Disks(shared.clone()), &place.disks(), SOURCE)
        .inspect_err(|_| drop(fs::remove_file(place.control())))?;
    let timer = shared.clone();
    std::thread::Builder::new()
        .name("due".into())
        .spawn(move || timer.answer_what_is_due())
        .map_err(ServeError::Thread)?;
    let served = shared.clone();
    std::thread::spawn(move || control::listen(&listener, &served));
    ready();
    let signal = signals.wait();
    stop(place, &shared);
    signal.map(drop).map_err(ServeError::Wait)
}

/// What is under way fails, so that nothing above hangs.
fn stop(place: &Place, shared: &Shared) {
    let mut engine = shared.engine();
    for (name, _) in engine.list() {
        if let Ok(failed) = engine.pull(&name) {
            send(failed);
        }
    }
    if let Err(error) = engine.flush_log() {
        eprintln!("strata-disk: {error}");
    }
    drop(engine);
    for name in shared.nodes().into_keys() {
        if let Err(error) = shared.detach(&name) {
            eprintln!("strata-disk: {error}");
        }
    }
    // While a loop device has a disk open this fails, and the mount stays: what is left is found by its path.
    let _ = umount2(&place.disks(), MntFlags::empty());
    let _ = fs::remove_file(place.control());
}

fn open_log(path: &Path) -> Result<Writer<Behind>, ServeError> {
    let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path);
    file.and_then(|file| Writer::new(Behind::new(file)?))
        .map_err(|source| ServeError::Log { path: path.into(), source })
}

/// Signals reach the thread that waits for them and no other.
fn block_signals() -> Result<SigSet, ServeError> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_block().map_err(ServeError::Signals)?;
    Ok(signals)
}

/// Memory that this process asks for must never wait for a filesystem above its own disks, and its threads are to
/// wake on time. Threads inherit both. Without the privilege it still works where memory is plenty.
fn stay_out_of_reclaim() {
    // SAFETY: these calls take numbers and change this process alone.
    unsafe {
        libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0);
        libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT);
    }
}
