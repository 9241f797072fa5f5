//! What is the daemon's own: folders by construction, logs, peers.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use strata_disk::private::{folder, is_own, log, masked};

/// A user id that is not ours.
const OTHER: u32 = 65534;

/// Held by each test: the umask is of the whole process.
static UMASK: Mutex<()> = Mutex::new(());

fn place(name: &str) -> PathBuf {
    let place = std::env::temp_dir().join(format!("pgstrata-private-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir(&place).unwrap();
    place
}

#[test]
fn folders_and_sockets_are_closed_to_others_whatever_the_umask() {
    let _turn = UMASK.lock().unwrap_or_else(PoisonError::into_inner);
    let place = place("closed");
    let (made, socket) = (place.join("a/b"), place.join("socket"));
    let before = unsafe { libc::umask(0) };
    folder(&made).unwrap();
    let listener = masked(|| UnixListener::bind(&socket)).unwrap();
    unsafe { libc::umask(before) };
    for path in [place.join("a"), made] {
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700, "{path:?}");
    }
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    let _peer = UnixStream::connect(&socket).unwrap();
    assert!(is_own(&listener.accept().unwrap().0));
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn a_folder_that_others_can_write_or_that_is_a_link_is_refused() {
    let _turn = UMASK.lock().unwrap_or_else(PoisonError::into_inner);
    let place = place("open");
    for mode in [0o777, 0o770, 0o702] {
        fs::set_permissions(&place, Permissions::from_mode(mode)).unwrap();
        assert_eq!(folder(&place).unwrap_err().kind(), ErrorKind::PermissionDenied, "{mode:o}");
    }
    fs::set_permissions(&place, Permissions::from_mode(0o755)).unwrap();
    folder(&place).unwrap();
    let link = place.join("link");
    symlink(&place, &link).unwrap();
    for spelt in ["link", "link/", "link//", "link/."] {
        assert!(folder(&place.join(spelt)).is_err(), "{spelt}");
    }
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn another_user_owns_no_folder_of_ours_and_is_no_peer() {
    let _turn = UMASK.lock().unwrap_or_else(PoisonError::into_inner);
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can act as another user");
        return;
    }
    let place = place("other");
    let (theirs, program, socket) = (place.join("theirs"), place.join("program"), place.join("control"));
    fs::create_dir(&theirs).unwrap();
    chown(&theirs, Some(OTHER), None).unwrap();
    assert_eq!(folder(&theirs).unwrap_err().to_string(), format!("it belongs to user {OTHER}"));
    // a copy, because the checkout may be closed to other users
    fs::copy(env!("CARGO_BIN_EXE_strata-disk"), &program).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    for path in [&place, &program, &socket] {
        fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
    let ask =
        Command::new(&program).arg("ask").arg(&place).arg("{}").uid(OTHER).stderr(Stdio::null()).spawn();
    let (peer, _) = listener.accept().unwrap();
    assert!(!is_own(&peer));
    drop(peer);
    assert!(!ask.unwrap().wait().unwrap().success());
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn logs_are_plain_files_of_our_own() {
    let _turn = UMASK.lock().unwrap_or_else(PoisonError::into_inner);
    let place = place("logs");
    let (target, link, fifo) = (place.join("target"), place.join("link"), place.join("fifo"));
    fs::write(&target, "kept").unwrap();
    symlink(&target, &link).unwrap();
    assert!(log(&link).is_err());
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(log(&fifo).is_err());
    assert_eq!(log(&place.join("new")).unwrap().metadata().unwrap().mode() & 0o777, 0o600);
    fs::remove_dir_all(&place).unwrap();
}
