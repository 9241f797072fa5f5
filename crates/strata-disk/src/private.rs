//! What belongs to the daemon's user alone: folders, logs, and who may speak to it.

use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Makes a folder with mode 0700, whatever the umask. One that exists must be the user's own, closed to writes by
/// others and no link; who can write there can lead the daemon elsewhere.
pub fn folder(path: &Path) -> io::Result<()> {
    // O_NOFOLLOW does not stop at a link whose name ends in a slash
    let path = path.components().as_path();
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let found = OpenOptions::new().read(true).custom_flags(flags).open(path)?.metadata()?;
    if found.uid() != geteuid().as_raw() {
        return Err(denied(&format!("it belongs to user {}", found.uid())));
    }
    if found.mode() & 0o022 != 0 {
        return Err(denied(&format!("other users can write there (mode {:04o})", found.mode() & 0o7777)));
    }
    Ok(())
}

/// Opens a log for writing, with mode 0600: no link, fifo or device.
pub fn log(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(denied("it is no plain file")) }
}

/// Calls `make` with a umask that leaves what it makes to this user. The umask is of the whole process: only while it
/// has one thread.
pub fn masked<T>(make: impl FnOnce() -> T) -> T {
    let before = umask(Mode::from_bits_truncate(0o177));
    let made = make();
    umask(before);
    made
}

/// True for a peer that runs as this user, or as root.
pub fn is_own(peer: &UnixStream) -> bool {
    let mut found = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let Ok(mut length) = libc::socklen_t::try_from(size_of::<libc::ucred>()) else { return false };
    // SAFETY: the kernel writes at most `length` bytes to `found`, which is as large.
    let got = unsafe {
        libc::getsockopt(
            peer.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    got == 0 && (found.uid == geteuid().as_raw() || found.uid == 0)
}

fn denied(why: &str) -> Error {
    Error::new(ErrorKind::PermissionDenied, why)
}
