//! The folder of a daemon: the mount `disks`, the socket `control` and the lock that tells whether it lives.

use crate::front::ublk::{self, UblkError};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, umount2};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;

/// What mounts of daemons say that they are of.
pub(crate) const SOURCE: &str = "strata-disk";

const DYING: Duration = Duration::from_secs(10);

/// Why a folder cannot be served from, or not be given up.
#[derive(Debug, Error)]
pub(crate) enum PlaceError {
    #[error("{path}: {source}")]
    Mark { path: PathBuf, source: io::Error },
    #[error("lock: {0}")]
    Wait(Errno),
    #[error("mounts below {place}: {source}")]
    Mounts { place: PathBuf, source: io::Error },
    #[error("{disks} is a mount point already, of {of}")]
    MountPoint { disks: PathBuf, of: String },
    #[error("unmounting {disks}: {source}")]
    Unmount { disks: PathBuf, source: Errno },
    #[error(transparent)]
    Ublk(#[from] UblkError),
    #[error("lock of {place}: {source}")]
    Lock { place: PathBuf, source: io::Error },
    #[error("another daemon serves {0}")]
    Served(PathBuf),
    #[error(transparent)]
    Owner(io::Error),
}

/// Where the parts of a daemon lie.
#[derive(Debug, Clone)]
pub(crate) struct Place(pub PathBuf);

impl Place {
    pub(crate) fn disks(&self) -> PathBuf {
        self.0.join("disks")
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.0.join("control")
    }

    fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    fn mark_file(&self) -> PathBuf {
        self.0.join("ublk")
    }

    /// The mark of this folder's devices in the driver: it lies here before the first of them is made.
    pub(crate) fn mark(&self) -> Result<u64, PlaceError> {
        let path = self.mark_file();
        if let Some(mark) = read_mark(&path) {
            return Ok(mark);
        }
        let mark = RandomState::new().build_hasher().finish();
        let new = path.with_extension("new");
        let written = fs::write(&new, format!("{mark:x}")).and_then(|()| fs::rename(&new, &path));
        written.map(|()| mark).map_err(|source| PlaceError::Mark { path, source })
    }

    /// The lock of a daemon that serves here; it is free again once that is dropped.
    pub(crate) fn hold(&self) -> Result<Flock<File>, PlaceError> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(self.lock())
            .map_err(|source| PlaceError::Lock { place: self.0.clone(), source })?;
        let mut file = self.take(file)?;
        file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).map_err(PlaceError::Owner)?;
        Ok(file)
    }

    /// A daemon that was killed keeps its lock until the last of its threads has ended: that is waited for.
    fn take(&self, mut file: File) -> Result<Flock<File>, PlaceError> {
        let until = Instant::now() + DYING;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(held) => return Ok(held),
                Err(_) if self.is_served() || Instant::now() >= until => {
                    return Err(PlaceError::Served(self.0.clone()));
                }
                Err((unlocked, _)) => file = unlocked,
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether the process that the lock names runs, or names itself only now.
    fn is_served(&self) -> bool {
        let owner = fs::read_to_string(self.lock()).unwrap_or_default();
        let stat = fs::read_to_string(format!("/proc/{owner}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        owner.is_empty() || state.is_some_and(|state| !"ZX".contains(state))
    }

    /// Returns once no daemon serves here.
    pub(crate) fn wait_until_free(&self) -> Result<(), PlaceError> {
        let Ok(file) = File::open(self.lock()) else { return Ok(()) };
        Flock::lock(file, FlockArg::LockExclusive).map(drop).map_err(|(_, error)| PlaceError::Wait(error))
    }

    /// Removes what a daemon that was killed left; refused while one serves.
    pub(crate) fn clean(&self) -> Result<(), PlaceError> {
        if !self.0.exists() {
            return Ok(());
        }
        let _lock = self.hold()?;
        self.forget_the_dead()
    }

    /// Refused where something else is mounted on the disks' folder.
    pub(crate) fn forget_the_dead(&self) -> Result<(), PlaceError> {
        let told = |source| PlaceError::Mounts { place: self.0.clone(), source };
        let disks = fs::canonicalize(&self.0).map_err(told)?.join("disks");
        while let Some(source) = topmost(&fs::read("/proc/self/mounts").map_err(told)?, &disks) {
            if source != SOURCE.as_bytes() {
                let of = String::from_utf8_lossy(&source).into_owned();
                return Err(PlaceError::MountPoint { disks, of });
            }
            umount2(&disks, MntFlags::MNT_DETACH)
                .map_err(|source| PlaceError::Unmount { disks: disks.clone(), source })?;
        }
        if let Some(mark) = read_mark(&self.mark_file()) {
            ublk::forget(mark)?;
            let _ = fs::remove_file(self.mark_file());
        }
        let _ = fs::remove_file(self.control());
        Ok(())
    }
}

fn read_mark(path: &Path) -> Option<u64> {
    u64::from_str_radix(fs::read_to_string(path).ok()?.trim(), 16).ok()
}

/// What is mounted at a path, of the lines of /proc/self/mounts: the last of them covers the others.
pub fn topmost(mounts: &[u8], at: &Path) -> Option<Vec<u8>> {
    let escaped: Vec<u8> = at.as_os_str().as_bytes().iter().flat_map(|byte| escape(*byte)).collect();
    let fields = mounts.split(|byte| *byte == b'\n').rev().map(|line| line.split(|byte| *byte == b' '));
    fields
        .filter_map(|mut words| Some((words.next()?, words.next()?)))
        .find_map(|(source, target)| (target == escaped).then(|| source.to_vec()))
}

/// As the kernel writes paths there (mangle_path).
fn escape(byte: u8) -> Vec<u8> {
    if b" \t\n\\".contains(&byte) { format!("\\{byte:03o}").into_bytes() } else { vec![byte] }
}
