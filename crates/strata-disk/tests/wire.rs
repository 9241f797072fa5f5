//! Messages of FUSE against the layouts of linux/fuse.h, built here field by field; whatever a client sends, nothing falls.

use proptest::prelude::*;
use strata_disk::front::patience::Patience;
use strata_disk::front::wire::{self, Asked, Malformed, Node};

/// struct fuse_in_header and what follows it.
fn message(opcode: u32, node: u64, rest: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    message.extend((40 + rest.len() as u32).to_ne_bytes());
    message.extend(opcode.to_ne_bytes());
    message.extend(7u64.to_ne_bytes());
    message.extend(node.to_ne_bytes());
    // uid, gid, pid, lengths of extensions
    message.extend([0; 16]);
    message.extend(rest);
    message
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Two numbers of 32 bits in one word, as they lie in memory.
fn pair(first: u32, second: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

fn asked(message: &[u8]) -> Asked<'_> {
    let call = wire::parse(message).unwrap();
    assert_eq!((call.unique, wire::unique(message)), (7, Some(7)));
    call.asked
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn requests_are_read_by_their_layout() {
    // fh, offset, size and flags, lock owner, flags and padding
    let read = message(15, 2, &words(&[1, 8192, pair(4096, 0), 0, 0]));
    assert_eq!(asked(&read), Asked::Read { offset: 8192, size: 4096 });
    assert_eq!(wire::parse(&read).unwrap().node, 2);
    let mut write = words(&[1, 512, pair(3, 0), 0, 0]);
    write.extend(b"abc");
    assert_eq!(asked(&message(16, 2, &write)), Asked::Write { offset: 512, data: b"abc" });
    // fh, offset, length, mode and padding
    let punch = message(43, 2, &words(&[1, 4096, 1 << 20, pair(3, 0)]));
    assert_eq!(asked(&punch), Asked::Fallocate { offset: 4096, length: 1 << 20, mode: 3 });
    assert_eq!(asked(&message(1, 1, b"disk\0")), Asked::Lookup { name: b"disk" });
    // major, minor, readahead, flags
    let init = message(26, 0, &words(&[pair(7, 45), pair(131_072, 0x73ff_fffb)]));
    assert_eq!(asked(&init), Asked::Init { major: 7, max_readahead: 131_072, offered: 0x73ff_fffb });
    let folder = message(28, 1, &words(&[0, 2, pair(4096, 0), 0, 0]));
    assert_eq!(asked(&folder), Asked::Readdir { offset: 2, size: 4096 });
    assert_eq!(asked(&message(20, 2, &words(&[1, 0]))), Asked::Fsync);
    assert_eq!(asked(&message(2, 2, &words(&[1]))), Asked::Forget);
    assert_eq!(asked(&message(9_999, 2, &[])), Asked::Other);
}

#[test]
fn what_is_shorter_than_it_says_is_malformed() {
    let whole = message(15, 2, &words(&[1, 8192, pair(4096, 0), 0, 0]));
    for length in 0..whole.len() {
        assert_eq!(wire::parse(&whole[..length]), Err(Malformed));
    }
    let write = message(16, 2, &words(&[1, 512, pair(4096, 0), 0, 0]));
    assert_eq!(wire::parse(&write), Err(Malformed));
    assert_eq!(wire::parse(&message(1, 1, b"no end")), Err(Malformed));
}

#[test]
fn answers_have_the_layout_of_the_kernel() {
    let header = wire::header(7, libc::EIO, 8);
    assert_eq!((u32_at(&header, 0), u64_at(&header, 8)), (24, 7));
    assert_eq!(u32_at(&header, 4) as i32, -libc::EIO);
    let entry = wire::entry(5, Node::File { bytes: 1 << 30 });
    // struct fuse_entry_out has 40 bytes before its fuse_attr of 88
    assert_eq!(
        (entry.len(), u64_at(&entry, 0), u64_at(&entry, 40), u64_at(&entry, 48)),
        (128, 5, 5, 1 << 30)
    );
    assert_eq!((u32_at(&entry, 100), u32_at(&entry, 104)), (libc::S_IFREG | 0o600, 1));
    let folder = wire::attributes(1, Node::Folder);
    assert_eq!((folder.len(), u32_at(&folder, 76), u32_at(&folder, 96)), (104, libc::S_IFDIR | 0o700, 4096));
    assert_eq!((wire::opened_file().len(), wire::opened_folder().len()), (16, 16));
    assert_eq!((wire::written(4096), wire::statfs().len()), (words(&[pair(4096, 0)]), 80));
}

#[test]
fn a_session_takes_what_the_kernel_offers_and_needs_two_of_it() {
    let (async_dio, max_pages, writeback_cache) = (1 << 15, 1 << 22, 1 << 16);
    let body = wire::init(131_072, async_dio | max_pages | writeback_cache).unwrap();
    assert_eq!((body.len(), u32_at(&body, 0), u32_at(&body, 8)), (64, 7, 131_072));
    assert_eq!((u32_at(&body, 12), u32_at(&body, 20)), (async_dio | max_pages, 1 << 20));
    assert_eq!(wire::init(0, async_dio), Err(max_pages));
    assert_eq!(wire::init(0, 0), Err(async_dio | max_pages));
}

#[test]
fn a_folder_is_listed_in_pieces_that_fit() {
    let files: Vec<(String, u64)> = (0..5).map(|number| (format!("disk-{number}"), number + 2)).collect();
    let one = 24 + 8;
    let first = wire::folder(&files, 0, 2 * one + 1);
    assert_eq!((first.len(), &first[24..30]), (2 * one as usize, &b"disk-0"[..]));
    // where to go on from
    assert_eq!((u64_at(&first, 8), u64_at(&first, one as usize + 8)), (1, 2));
    assert_eq!(wire::folder(&files, 2, 4096).len(), 3 * one as usize);
    assert!(wire::folder(&files, u64::MAX, 4096).is_empty());
}

proptest! {
    #[test]
    fn no_message_brings_it_down(mut bytes in prop::collection::vec(any::<u8>(), 0..200), opcode in 0..60u32, fits in any::<bool>()) {
        if fits && bytes.len() >= 8 {
            let length = bytes.len() as u32;
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            bytes[4..8].copy_from_slice(&opcode.to_ne_bytes());
        }
        let _ = wire::parse(&bytes);
    }

    #[test]
    fn what_a_write_carries_is_read_whole(data in prop::collection::vec(any::<u8>(), 0..100), offset in any::<u64>()) {
        let mut rest = words(&[1, offset, pair(data.len() as u32, 0), 0, 0]);
        rest.extend(&data);
        let message = message(16, 2, &rest);
        prop_assert_eq!(asked(&message), Asked::Write { offset, data: &data });
    }
}

/// Of a thousand requests, for how many the thread asked before it slept; `soon` says which come that quickly.
fn asked_for(soon: impl Fn(usize) -> bool) -> usize {
    let mut patience = Patience::default();
    let spun = |number: &usize| {
        let spins = !patience.spun().is_zero();
        patience.learn(!spins || !soon(*number));
        spins
    };
    (0..1_000).filter(spun).count()
}

#[test]
fn the_next_request_is_asked_for_where_it_comes_soon() {
    assert_eq!(asked_for(|_| true), 1_000);
    assert!(asked_for(|_| false) < 25);
    // one pause among many leads to one sleep
    assert!(asked_for(|number| number % 100 != 0) > 950);
}
