//! What is mounted where, by the text of /proc/self/mounts.

use proptest::prelude::*;
use std::path::Path;
use strata_disk::daemon::topmost;

const MOUNTS: &[u8] = b"/dev/vda / ext4 rw 0 0\n\
    tmpfs /a\\040b/disks tmpfs rw 0 0\n\
    strata-disk /a\\040b/disks fuse rw 0 0\n\
    strata-disk /other/disks fuse rw 0 0\n";

#[test]
fn the_last_mount_at_a_path_is_the_one_that_is_seen() {
    assert_eq!(topmost(MOUNTS, Path::new("/a b/disks")), Some(b"strata-disk".to_vec()));
    assert_eq!(topmost(MOUNTS, Path::new("/")), Some(b"/dev/vda".to_vec()));
    assert_eq!(topmost(MOUNTS, Path::new("/a")), None);
    assert_eq!(topmost(b"", Path::new("/")), None);
}

proptest! {
    #[test]
    fn no_text_brings_it_down(mounts in prop::collection::vec(any::<u8>(), 0..200), at in "\\PC{0,20}") {
        topmost(&mounts, Path::new(&at));
    }
}
