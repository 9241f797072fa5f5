//! The content of disks against a plain array and the reference model: in memory, over a file, in a file.

mod reference;

use proptest::prelude::*;
use reference::{Event, Reference};
use std::fs::File;
use std::io::Write;
use strata_disk::durability::{Keep, Seq};
use strata_disk::nature::{Cache, Nature};
use strata_disk::rng::Rng;
use strata_disk::store::{Image, Keeping, Snapshot};

const BLOCK: u64 = 512;
const BLOCKS: u64 = 40;
const SIZE: u64 = BLOCK * BLOCKS;
const KEEPING: Keeping =
    Keeping { nature: Nature { cache: Cache::Lost, block: BLOCK, unit: BLOCK }, cache_bytes: u64::MAX };

#[derive(Debug, Clone)]
enum Act {
    Write { start: u64, length: u64, fua: bool },
    Zero { start: u64, length: u64 },
    Flush,
    Complete(usize),
}

fn acts(zeroes: bool) -> impl Strategy<Value = Vec<Act>> {
    let place = || (0..BLOCKS, 1..24u64).prop_map(|(start, length)| (start, length.min(BLOCKS - start)));
    let write = (place(), prop::bool::weighted(0.2)).prop_map(|((start, length), fua)| Act::Write {
        start,
        length,
        fua,
    });
    let zero = place().prop_map(|(start, length)| Act::Zero { start, length });
    let weight = if zeroes { 2 } else { 0 };
    let act = prop_oneof![
        4 => write,
        weight => zero,
        2 => Just(Act::Flush),
        5 => (0..6usize).prop_map(Act::Complete),
    ];
    prop::collection::vec(act, 0..30)
}

/// Each block says which write it is of; zeroes are those of nobody, as is a blank disk.
fn stamped(seq: Seq, length: u64) -> Vec<u8> {
    seq.to_le_bytes().repeat((length * BLOCK / 8) as usize)
}

fn stamps(image: &Image) -> Vec<Seq> {
    let content = image.read(0, SIZE as usize).unwrap();
    content
        .chunks(BLOCK as usize)
        .map(|block| {
            assert!(block.chunks(8).all(|word| word == &block[..8]), "a block is never torn");
            Seq::from_le_bytes(block[..8].try_into().unwrap())
        })
        .collect()
}

struct Run {
    image: Image,
    reference: Reference,
    plain: Vec<Seq>,
    zeroing: Vec<Seq>,
}

fn run(image: Image, acts: &[Act]) -> Run {
    let plain = stamps(&image);
    let mut run = Run { image, reference: Reference::default(), plain, zeroing: Vec::new() };
    let mut open: Vec<(Seq, bool)> = Vec::new();
    for (number, act) in acts.iter().enumerate() {
        let seq = number as Seq + 1;
        match *act {
            Act::Write { start, length, fua } => {
                run.image.write(seq, start * BLOCK, &stamped(seq, length), fua).unwrap();
                run.change(seq, start..start + length, fua, seq);
                open.push((seq, false));
            }
            Act::Zero { start, length } => {
                run.image.zero(seq, start * BLOCK, length * BLOCK).unwrap();
                run.change(seq, start..start + length, false, 0);
                run.zeroing.push(seq);
                open.push((seq, false));
            }
            Act::Flush => {
                run.image.submit_flush(seq);
                run.reference.events.push(Event::Flush { seq });
                open.push((seq, true));
            }
            Act::Complete(_) if open.is_empty() => {}
            Act::Complete(which) => {
                let (done, flush) = open.remove(which % open.len());
                run.reference.events.push(Event::Completed { seq: done, at: seq });
                if flush {
                    run.image.complete_flush(done).unwrap();
                } else {
                    run.image.complete_change(done, seq).unwrap();
                }
            }
        }
    }
    run
}

impl Run {
    fn change(&mut self, seq: Seq, blocks: std::ops::Range<u64>, fua: bool, stamp: Seq) {
        self.plain[blocks.start as usize..blocks.end as usize].fill(stamp);
        self.reference.events.push(Event::Change { seq, blocks, fua });
    }

    /// What a block may show: the stamps of its legal changes, where `below` was there before.
    fn legal(&self, block: u64, below: Seq) -> Vec<Seq> {
        let shown = |seq: Seq| match seq {
            0 => below,
            seq if self.zeroing.contains(&seq) => 0,
            seq => seq,
        };
        self.reference.legal(block).into_iter().map(shown).collect()
    }

    fn check(mut self, below: Seq, seed: u64, torn: bool) -> Result<(), TestCaseError> {
        prop_assert_eq!(&stamps(&self.image), &self.plain);
        self.image.cut(&Keep::Random, torn, &mut Rng::new(seed)).unwrap();
        let left = stamps(&self.image);
        for block in 0..BLOCKS {
            let (seen, legal) = (left[block as usize], self.legal(block, below));
            prop_assert!(legal.contains(&seen), "block {} shows {}, legal are {:?}", block, seen, legal);
        }
        Ok(())
    }
}

fn scratch(content: &[u8]) -> File {
    let path = std::env::temp_dir().join(format!("strata-disk-test-{}-{:p}", std::process::id(), &content));
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.write_all(content).unwrap();
    file
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn in_memory(acts in acts(true), seed: u64, torn: bool) {
        run(Image::over(&Snapshot::blank(SIZE), KEEPING), &acts).check(0, seed, torn)?;
    }

    #[test]
    fn over_a_file(acts in acts(true), seed: u64, torn: bool) {
        let below = 1000;
        let snapshot = Snapshot::of_file(scratch(&stamped(below, BLOCKS))).unwrap();
        run(Image::over(&snapshot, KEEPING), &acts).check(below, seed, torn)?;
    }

    #[test]
    fn in_a_file(acts in acts(false), seed: u64, torn: bool) {
        let image = Image::in_file(scratch(&[]), SIZE, KEEPING).unwrap();
        run(image, &acts).check(0, seed, torn)?;
    }

    #[test]
    fn overlays_of_a_snapshot_do_not_see_one_another(first in acts(true), second in acts(true), third in acts(true)) {
        let below = run(Image::over(&Snapshot::blank(SIZE), KEEPING), &first);
        let snapshot = below.image.snapshot().unwrap();
        let before = stamps(&Image::over(&snapshot, KEEPING));
        let one = run(Image::over(&snapshot, KEEPING), &second);
        let other = run(Image::over(&snapshot, KEEPING), &third);
        prop_assert_eq!(stamps(&one.image), one.plain);
        prop_assert_eq!(stamps(&other.image), other.plain);
        prop_assert_eq!(&stamps(&below.image), &below.plain);
        prop_assert_eq!(stamps(&Image::over(&snapshot, KEEPING)), before);
    }
}

#[test]
fn a_cache_of_limited_size_writes_back() {
    let mut image = Image::over(&Snapshot::blank(SIZE), Keeping { cache_bytes: 2 * BLOCK, ..KEEPING });
    for block in 0..4 {
        image.write(2 * block + 1, block * BLOCK, &stamped(7, 1), false).unwrap();
        image.complete_change(2 * block + 1, 2 * block + 2).unwrap();
    }
    assert_eq!(image.volatile_bytes(), 2 * BLOCK);
    image.cut(&Keep::Nothing, false, &mut Rng::new(0)).unwrap();
    assert_eq!(&stamps(&image)[..5], [7, 7, 0, 0, 0]);
}

#[test]
fn a_disk_in_a_file_keeps_what_was_flushed_alone() {
    let file = scratch(&[]);
    let mut image = Image::in_file(file.try_clone().unwrap(), SIZE, KEEPING).unwrap();
    image.write(1, 0, &stamped(5, 2), false).unwrap();
    image.complete_change(1, 2).unwrap();
    image.submit_flush(3);
    image.complete_flush(3).unwrap();
    image.write(4, BLOCK, &stamped(6, 1), false).unwrap();
    drop(image);
    let again = Image::in_file(file, SIZE, KEEPING).unwrap();
    assert_eq!(&stamps(&again)[..3], [5, 5, 0]);
}
