//! The event log: what is written is read; damage is told; the export is read by a reader of its documentation.

use proptest::prelude::*;
use std::fs::{File, remove_file};
use std::io::{self, Cursor, Write};
use std::os::unix::fs::MetadataExt;
use strata_disk::log::behind::Behind;
use strata_disk::log::native::{LogError, Reader, Writer};
use strata_disk::log::{Event, Record, dm_log_writes};
use strata_disk::nature::{Cache, Nature};

const SECTOR: u64 = dm_log_writes::SECTOR;

fn nature() -> impl Strategy<Value = Nature> {
    let cache = prop_oneof![Just(Cache::Lost), Just(Cache::Kept)];
    let sizes =
        prop::sample::select(vec![(512, 512), (512, 4096), (512, 16384), (4096, 4096), (4096, 65536)]);
    (cache, sizes).prop_map(|(cache, (block, unit))| Nature { cache, block, unit })
}

fn event() -> impl Strategy<Value = Event> {
    let place = || (0..64u64, 1..8u64).prop_map(|(at, count)| (at * SECTOR, count * SECTOR));
    prop_oneof![
        ("[a-z]{1,8}", any::<u64>(), nature()).prop_map(|(name, size, nature)| Event::Added {
            name,
            size,
            nature
        }),
        (0..64u64, any::<bool>(), prop::collection::vec(any::<u8>(), SECTOR as usize))
            .prop_map(|(at, fua, data)| Event::Write { offset: at * SECTOR, fua, data }),
        place().prop_map(|(offset, length)| Event::WriteZeroes { offset, length }),
        place().prop_map(|(offset, length)| Event::Discard { offset, length }),
        Just(Event::Flush),
        (0..20u64, any::<bool>()).prop_map(|(of, failed)| Event::Completed { of, failed }),
        "[ -~]{0,600}".prop_map(|text| Event::Mark { text }),
        Just(Event::Cut),
    ]
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    prop::collection::vec((event(), 0..3u32), 0..20).prop_map(|events| {
        let record = |(seq, (event, disk))| Record { seq: seq as u64, disk, event };
        events.into_iter().enumerate().map(record).collect()
    })
}

fn written(records: &[Record]) -> Vec<u8> {
    let mut log = Vec::new();
    let mut writer = Writer::new(&mut log).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    log
}

fn read(log: &[u8]) -> Result<Vec<Record>, LogError> {
    let mut reader = Reader::new(log)?;
    let mut records = Vec::new();
    while let Some(record) = reader.read()? {
        records.push(record);
    }
    Ok(records)
}

/// An entry as Documentation/admin-guide/device-mapper/log-writes.rst and the header of the kernel's source have it.
#[derive(Debug, PartialEq, Eq)]
struct Logged {
    sector: u64,
    sectors: u64,
    flags: u64,
    data: Vec<u8>,
}

fn read_dm_log(log: &[u8]) -> Vec<Logged> {
    let number = |at: usize| u64::from_le_bytes(log[at..at + 8].try_into().unwrap());
    assert_eq!(number(0), 0x6a736677736872);
    assert_eq!(number(8), 1);
    let sector = u32::from_le_bytes(log[24..28].try_into().unwrap()) as usize;
    let mut at = sector;
    let mut entries = Vec::new();
    for _ in 0..number(16) {
        let (first, count, flags, text) =
            (number(at), number(at + 8), number(at + 16), number(at + 24) as usize);
        let data = if flags & 8 != 0 {
            log[at + 32..at + 32 + text].to_vec()
        } else if flags & 4 != 0 {
            Vec::new()
        } else {
            log[at + sector..at + sector + count as usize * sector].to_vec()
        };
        at += sector + if flags & 12 != 0 { 0 } else { count as usize * sector };
        entries.push(Logged { sector: first, sectors: count, flags, data });
    }
    assert_eq!(at, log.len(), "nothing follows the last entry");
    entries
}

fn exported(records: Vec<Record>, disk: u32) -> Vec<Logged> {
    let mut out = Cursor::new(Vec::new());
    dm_log_writes::export(records.into_iter().map(Ok), disk, &mut out).unwrap();
    read_dm_log(&out.into_inner())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_written_is_read(records in records()) {
        prop_assert_eq!(read(&written(&records)).unwrap(), records);
    }

    #[test]
    fn a_changed_byte_is_noticed(records in records(), place: prop::sample::Index, bit in 0..8u8) {
        let mut log = written(&records);
        let place = place.index(log.len());
        log[place] ^= 1 << bit;
        prop_assert!(read(&log).is_err());
    }

    #[test]
    fn a_log_that_was_cut_off_gives_its_first_records_or_says_so(records in records(), place: prop::sample::Index) {
        let log = written(&records);
        match read(&log[..place.index(log.len())]) {
            Ok(some) => prop_assert_eq!(&some[..], &records[..some.len()]),
            Err(LogError::Truncated | LogError::Foreign(_)) => {}
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn garbage_is_refused(garbage in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut log = written(&[]);
        prop_assume!(!garbage.is_empty());
        log.extend(&garbage);
        prop_assert!(read(&log).is_err());
        prop_assert!(read(&garbage).is_err());
    }

    #[test]
    fn any_log_can_be_exported(records in records()) {
        prop_assert!(!exported(records, 0).is_empty());
    }
}

fn at(seq: u64, event: Event) -> Record {
    Record { seq, disk: 0, event }
}

#[test]
fn the_export_has_writes_before_the_flush_that_follows_them() {
    let entries = exported(
        vec![
            at(1, Event::Write { offset: 1024, fua: false, data: vec![7; 512] }),
            at(2, Event::Write { offset: 0, fua: true, data: vec![8; 512] }),
            at(3, Event::Completed { of: 2, failed: false }),
            at(4, Event::Flush),
            at(5, Event::Completed { of: 1, failed: false }),
            at(6, Event::Mark { text: "acknowledged".into() }),
            at(7, Event::Completed { of: 4, failed: false }),
            at(8, Event::Discard { offset: 512, length: 1024 }),
            at(9, Event::Completed { of: 8, failed: false }),
        ],
        0,
    );
    let brief: Vec<_> = entries.iter().map(|entry| (entry.sector, entry.sectors, entry.flags)).collect();
    assert_eq!(brief, [(0, 0, 8), (0, 1, 2), (0, 0, 1), (2, 1, 0), (1, 2, 4), (0, 0, 8)]);
    assert_eq!(entries[0].data, b"acknowledged");
    assert_eq!(entries[3].data, vec![7; 512]);
    assert_eq!(entries[5].data, b"dm-log-writes-end");
}

/// What the export of a log of disk 0 into a file makes: how many entries, and the file, which has no name any more.
fn exported_file(records: Vec<Record>, name: &str) -> (io::Result<u64>, File) {
    let path = std::env::temp_dir().join(format!("strata-disk-export-{}-{name}", std::process::id()));
    let mut file = File::create_new(&path).unwrap();
    remove_file(&path).unwrap();
    (dm_log_writes::export(records.into_iter().map(Ok), 0, &mut file), file)
}

#[test]
fn zeroes_are_a_hole_that_takes_no_memory() {
    let huge = vec![
        at(1, Event::WriteZeroes { offset: 0, length: 1 << 40 }),
        at(2, Event::Completed { of: 1, failed: false }),
        at(3, Event::Write { offset: 512, fua: true, data: vec![7; 512] }),
        at(4, Event::Completed { of: 3, failed: false }),
    ];
    let (entries, file) = exported_file(huge, "hole");
    assert_eq!(entries.unwrap(), 3);
    assert_eq!(file.metadata().unwrap().len(), 512 + 512 + (1 << 40) + 1024 + 512);
    assert!(file.metadata().unwrap().blocks() < 1024);

    let few = vec![
        at(1, Event::WriteZeroes { offset: 1024, length: 1024 }),
        at(2, Event::Completed { of: 1, failed: false }),
    ];
    let entries = exported(few, 0);
    assert_eq!((entries[0].sector, entries[0].data.clone()), (2, vec![0; 1024]));
}

#[test]
fn a_write_of_more_zeroes_than_a_file_can_hold_is_an_error() {
    for length in [1 << 62, u64::MAX] {
        let forged = vec![
            at(1, Event::WriteZeroes { offset: 0, length }),
            at(2, Event::Completed { of: 1, failed: false }),
        ];
        assert!(exported_file(forged, "forged").0.is_err());
    }
}

#[test]
fn a_content_is_exported_as_writes_that_are_durable_at_once() {
    let mut out = Cursor::new(Vec::new());
    let pieces = vec![(4096, vec![7; 1024]), (1 << 20, vec![9; 512])];
    assert_eq!(dm_log_writes::export_content(pieces, "cut after 5", &mut out).unwrap(), 3);
    let entries = read_dm_log(&out.into_inner());
    assert_eq!(entries.len(), 3);
    assert_eq!((entries[0].sector, entries[0].flags, entries[0].data.clone()), (8, 2, vec![7; 1024]));
    assert_eq!((entries[1].sector, entries[1].data.len()), (2048, 512));
}

#[test]
fn what_failed_and_other_disks_are_not_exported() {
    let other = Record { seq: 1, disk: 1, event: Event::Write { offset: 0, fua: false, data: vec![1; 512] } };
    let records = vec![
        other,
        at(2, Event::Discard { offset: 0, length: 512 }),
        at(3, Event::Completed { of: 1, failed: false }),
        at(4, Event::Completed { of: 2, failed: true }),
    ];
    assert_eq!(exported(records, 0).len(), 1);
}

#[test]
fn what_is_written_behind_is_in_the_file_after_a_flush() {
    let path = std::env::temp_dir().join(format!("strata-disk-behind-{}", std::process::id()));
    let mut behind = Behind::new(File::create(&path).unwrap()).unwrap();
    let mut expected = Vec::new();
    for number in 0..40u8 {
        let bytes = vec![number; 300_000 + usize::from(number) * 40_000];
        behind.write_all(&bytes).unwrap();
        expected.extend(bytes);
    }
    behind.flush().unwrap();
    assert!(std::fs::read(&path).unwrap() == expected);
    remove_file(&path).unwrap();
}

#[test]
fn a_write_behind_that_failed_is_told_to_all_that_follow() {
    let mut behind = Behind::new(File::options().write(true).open("/dev/full").unwrap()).unwrap();
    behind.write_all(b"in memory").unwrap();
    for _ in 0..2 {
        assert_eq!(behind.flush().unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(behind.write_all(b"more").unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
