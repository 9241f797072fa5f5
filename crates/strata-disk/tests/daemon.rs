//! What is mounted where, by the text of /proc/self/mounts.

use proptest::prelude::*;
use std::path::Path;
use strata_disk::due::Margin;
use strata_disk::place::topmost;

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

#[test]
fn a_margin_comes_to_what_nineteen_of_twenty_wakes_keep() {
    let mut margin = Margin::default();
    for number in 0..20_000u64 {
        // lateness runs through 0 to 30 microseconds in no order
        margin.learn(number * 7_919 % 30_000);
    }
    assert!((26_000..31_000).contains(&margin.0), "{margin:?}");
}

#[test]
fn a_margin_has_bounds() {
    let mut margin = Margin::default();
    (0..1_000).for_each(|_| margin.learn(1_000_000));
    assert_eq!(margin, Margin(40_000));
    (0..1_000).for_each(|_| margin.learn(0));
    assert_eq!(margin, Margin(0));
}
