//! The enumeration of states against the reference model, over random histories.

mod reference;

use proptest::prelude::*;
use reference::{Event as Happened, Reference};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Cursor;
use std::ops::Range;
use strata_disk::durability::{Lie, Seq};
use strata_disk::log::native::Writer;
use strata_disk::log::{EVERY, Event, Record};
use strata_disk::nature::{Cache, Nature};
use strata_disk::rng::Rng;
use strata_disk::states::choice::{Chosen, Recipe, Volatile, Whole, choose, drawn, recipes};
use strata_disk::states::condense::condense;
use strata_disk::states::enumerate::{Asked, enumerate};
use strata_disk::states::replay::Replay;
use strata_disk::states::{Lying, State};
use strata_disk::store::{Image, Keeping, Snapshot};

const BLOCKS: u64 = 8;
const BLOCK: u64 = 512;

#[derive(Debug, Clone)]
enum Act {
    Write { start: u64, length: u64, fua: bool },
    Flush,
    Complete(usize),
}

fn acts(most: usize) -> impl Strategy<Value = Vec<Act>> {
    let write = (0..BLOCKS, 1..4u64, prop::bool::weighted(0.1)).prop_map(|(start, length, fua)| Act::Write {
        start,
        length,
        fua,
    });
    let act = prop_oneof![4 => write, 2 => Just(Act::Flush), 5 => (0..8usize).prop_map(Act::Complete)];
    prop::collection::vec(act, 0..most)
}

fn cache() -> impl Strategy<Value = Cache> {
    prop_oneof![Just(Cache::Lost), Just(Cache::Kept)]
}

/// A log of one disk, and the same as the reference sees it. Every write fills its blocks with its own number.
struct History {
    records: Vec<Record>,
    happened: Vec<(Seq, Happened)>,
}

fn history(acts: &[Act], cache: Cache) -> History {
    let nature = Nature { cache, ..Nature::default() };
    let added = Record { seq: 1, disk: 0, event: Event::Added { name: "d".into(), size: 4096, nature } };
    let mut history = History { records: vec![added], happened: Vec::new() };
    let (mut open, kept): (Vec<Seq>, bool) = (Vec::new(), cache == Cache::Kept);
    for act in acts {
        let seq = history.records.len() as Seq + 1;
        let event = match act {
            Act::Write { start, length, fua } => {
                let blocks = *start..(start + length).min(BLOCKS);
                let data = vec![seq as u8; ((blocks.end - blocks.start) * BLOCK) as usize];
                history
                    .happened
                    .push((seq, Happened::Change { seq, blocks: blocks.clone(), fua: *fua || kept }));
                open.push(seq);
                Event::Write { offset: blocks.start * BLOCK, fua: *fua, data }
            }
            Act::Flush => {
                history.happened.push((seq, Happened::Flush { seq }));
                open.push(seq);
                Event::Flush
            }
            Act::Complete(_) if open.is_empty() => Event::Mark { text: "nothing".into() },
            Act::Complete(which) => {
                let of = open.remove(which % open.len());
                history.happened.push((seq, Happened::Completed { seq: of, at: seq }));
                Event::Completed { of, failed: false }
            }
        };
        history.records.push(Record {
            seq,
            disk: if matches!(event, Event::Mark { .. }) { EVERY } else { 0 },
            event,
        });
    }
    history
}

impl History {
    fn log(&self) -> Vec<u8> {
        let mut log = Vec::new();
        let mut writer = Writer::new(&mut log).unwrap();
        self.records.iter().for_each(|record| writer.write(record).unwrap());
        log
    }

    fn reference(&self, cut: Seq) -> Reference {
        let events = self.happened.iter().filter(|(seq, _)| *seq <= cut).map(|(_, event)| event.clone());
        Reference { events: events.collect() }
    }

    /// The contents, a number a block, that a cut may leave.
    fn legal(&self, cut: Seq) -> Vec<BTreeSet<Seq>> {
        (0..BLOCKS).map(|block| self.reference(cut).legal(block)).collect()
    }
}

fn states(log: &[u8], states: usize, seed: u64, flushes: Lie) -> Vec<State> {
    let asked = Asked { after: None, until: None, states, seed, flushes };
    enumerate(|| Ok(Cursor::new(log)), &asked).unwrap()
}

fn content(log: &[u8], state: &State) -> Vec<Seq> {
    let mut replay = Replay::new(Cursor::new(log), state.lying).unwrap();
    let snapshot = replay.state(state, "d").unwrap().0;
    let keeping = Keeping { nature: Nature::default(), cache_bytes: u64::MAX };
    let bytes = Image::over(&snapshot, keeping).read(0, 4096).unwrap();
    bytes.chunks(BLOCK as usize).map(|block| Seq::from(block[0])).collect()
}

fn all_of(legal: &[BTreeSet<Seq>]) -> BTreeSet<Vec<Seq>> {
    legal.iter().fold(BTreeSet::from([Vec::new()]), |found, block| {
        found.iter().flat_map(|state| block.iter().map(|seq| [&state[..], &[*seq]].concat())).collect()
    })
}

fn range(start: u64, length: u64) -> Vec<Range<u64>> {
    std::iter::once(start..start + length).collect()
}

/// Rounds of a write and a flush; the write of one has the first half of a page of PostgreSQL, and not the second.
fn with_half_a_page(rounds: u64, half: u64) -> Vec<u8> {
    let nature = Nature::default();
    let mut events = vec![Event::Added { name: "d".into(), size: 4096 * rounds, nature }];
    for round in 0..rounds {
        let mut data = vec![1; 4096];
        if round == half {
            data[18..20].copy_from_slice(&[0x04, 0x20]);
        }
        for event in [Event::Write { offset: round * 4096, fua: false, data }, Event::Flush] {
            events.push(event);
            events.push(Event::Completed { of: events.len() as Seq, failed: false });
        }
    }
    let mut log = Vec::new();
    let mut writer = Writer::new(&mut log).unwrap();
    for (before, event) in events.into_iter().enumerate() {
        writer.write(&Record { seq: before as Seq + 1, disk: 0, event }).unwrap();
    }
    log
}

#[test]
fn cuts_follow_the_flushes_after_a_write_that_ends_within_a_page() {
    let (log, last_of) = (with_half_a_page(60, 30), |round: u64| 1 + 4 * round + 3);
    for seed in 0..20 {
        let cuts: Vec<Seq> = states(&log, 16, seed, Lie::None).iter().map(|state| state.cut).collect();
        // everything kept in round 31 has the content of nothing kept in round 32: the later cut stands for both
        assert!(cuts.contains(&last_of(32)), "seed {seed}: {cuts:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn every_state_is_legal_and_there_once(acts in acts(60), cache in cache(), seed: u64) {
        let history = history(&acts, cache);
        let log = history.log();
        let found = states(&log, 50, seed, Lie::None);
        prop_assert!(!found.is_empty() && found.len() <= 50);
        let mut seen = BTreeSet::new();
        for state in &found {
            let content = content(&log, state);
            for (seen, legal) in content.iter().zip(history.legal(state.cut)) {
                prop_assert!(legal.contains(seen), "{:?} shows {:?}", state, content);
            }
            prop_assert!(seen.insert(content), "{:?} is there twice", state);
        }
    }

    #[test]
    fn every_legal_state_of_a_small_log_is_found(acts in acts(9)) {
        let history = history(&acts, Cache::Lost);
        let log = history.log();
        let found: BTreeSet<_> = states(&log, usize::MAX, 1, Lie::None).iter().map(|state| content(&log, state)).collect();
        let volatile_blocks = |cut| history.reference(cut).events.iter().map(|event| match event {
            Happened::Change { blocks, .. } => blocks.end - blocks.start,
            _ => 0,
        }).sum::<u64>();
        let cuts = (1..=history.records.len() as Seq).filter(|cut| volatile_blocks(*cut) <= 8);
        let legal: BTreeSet<_> = cuts.flat_map(|cut| all_of(&history.legal(cut))).collect();
        prop_assert!(legal.is_subset(&found), "missed {:?}", legal.difference(&found).next());
    }

    #[test]
    fn the_same_seed_gives_the_same_states(acts in acts(200), seed: u64) {
        let log = history(&acts, Cache::Lost).log();
        prop_assert_eq!(states(&log, 20, seed, Lie::None), states(&log, 20, seed, Lie::None));
    }

    #[test]
    fn the_changes_of_a_state_are_those_that_it_counts(acts in acts(60), seed: u64) {
        let log = history(&acts, Cache::Lost).log();
        for state in states(&log, 20, seed, Lie::None) {
            let changes = Replay::new(Cursor::new(&log[..]), state.lying).unwrap().changes(&state).unwrap();
            prop_assert_eq!(changes.len(), state.volatile);
            prop_assert_eq!(changes.iter().filter(|one| !one.kept.is_empty()).count(), state.kept);
            prop_assert!(changes.is_sorted_by_key(|one| one.seq) && changes.iter().all(|one| one.disk == "d"));
            for one in &changes {
                let within = |kept: &(u64, u64)| one.blocks.iter().any(|whole| whole.0 <= kept.0 && kept.1 <= whole.1);
                prop_assert!(one.kept.iter().all(within));
            }
        }
    }

    #[test]
    fn a_selection_covers_every_pair_of_writes_in_all_four_ways(count in 7..40usize) {
        let volatile: Vec<_> = (0..count as u64).map(|seq| Volatile { seq, blocks: range(2 * seq, 2), unit: 1 }).collect();
        let mut pairs = BTreeSet::new();
        for recipe in recipes(&volatile) {
            let chosen = choose(recipe, &volatile, &mut Rng::new(1));
            let kept: Vec<bool> = volatile.iter().map(|one| !chosen.left(one.seq, one.blocks.clone()).is_empty()).collect();
            for a in 0..count {
                pairs.extend((0..a).map(|b| (a, b, kept[a], kept[b])));
            }
        }
        prop_assert_eq!(pairs.len(), count * (count - 1) / 2 * 4);
    }

    #[test]
    fn a_torn_write_is_there_in_part(blocks in 2..100u64, seed: u64) {
        let volatile: Vec<_> = (0..9).map(|seq| Volatile { seq, blocks: range(seq * 100, blocks), unit: 1 }).collect();
        let torn = recipes(&volatile).into_iter().filter(|recipe| recipe.name() == "one write torn");
        for recipe in torn {
            let chosen = choose(recipe, &volatile, &mut Rng::new(seed));
            let torn = volatile.iter().find(|one| one.seq == chosen.torn[0].seq).unwrap();
            let left: u64 = chosen.left(torn.seq, torn.blocks.clone()).iter().map(|range| range.end - range.start).sum();
            prop_assert!(0 < left && left < blocks);
        }
    }
}

#[test]
fn beside_many_small_writes_a_large_one_is_torn_more_often() {
    let large = 20;
    let mut volatile: Vec<_> =
        (0..large).map(|seq| Volatile { seq, blocks: range(seq * 10, 2), unit: 1 }).collect();
    volatile.push(Volatile { seq: large, blocks: range(1000, 200), unit: 1 });
    volatile.push(Volatile { seq: large + 1, blocks: range(5000, 1), unit: 1 });
    volatile.push(Volatile { seq: large + 2, blocks: range(10_000, 1 << 20), unit: 1 });
    let all = recipes(&volatile);
    let mut rng = Rng::new(1);
    let picked: Vec<Recipe> = (0..20_000).map(|_| drawn(&all, &volatile, rng.draw())).collect();
    let torn = |wanted: u64| {
        let is = |recipe: &&Recipe| matches!(recipe, Recipe::Tear { index, .. } if *index as u64 == wanted);
        picked.iter().filter(is).count()
    };
    let tears: usize = (0..large + 3).map(torn).sum();
    assert!(torn(large) * 2 > tears, "{} of {tears}", torn(large));
    assert_eq!(torn(large + 1), 0, "one block cannot be torn");
    assert!((0..large).chain([large + 2]).all(|small| torn(small) > 0));
    let names: BTreeSet<_> = picked.iter().map(Recipe::name).collect();
    let subsets = [Recipe::Lots { eighths: 1 }.name(), "two writes torn"];
    assert_eq!(names, all.iter().map(Recipe::name).chain(subsets).collect());
}

#[test]
fn writes_by_lot_come_in_every_pattern_of_four_and_in_all_sizes() {
    let volatile: Vec<_> = (0..16).map(|seq| Volatile { seq, blocks: range(seq * 10, 4), unit: 1 }).collect();
    let all = recipes(&volatile);
    let (mut rng, mut patterns, mut sizes) = (Rng::new(1), BTreeSet::new(), BTreeSet::new());
    for _ in 0..2000 {
        let chosen = choose(drawn(&all, &volatile, rng.draw()), &volatile, &mut rng);
        let left = |one: &Volatile| -> u64 {
            chosen.left(one.seq, one.blocks.clone()).iter().map(|range| range.end - range.start).sum()
        };
        let kept: Vec<u64> = volatile.iter().map(left).collect();
        patterns.insert([1, 6, 9, 14].map(|index| kept[index] > 0));
        sizes.insert(kept.iter().filter(|blocks| **blocks > 0).count());
        let torn = kept.iter().filter(|blocks| (1..4).contains(*blocks)).count();
        assert_eq!(torn, chosen.torn.len(), "a torn write is there in part");
    }
    assert_eq!(patterns.len(), 16);
    assert_eq!(sizes, (0..=16).collect());
}

#[test]
fn of_an_epoch_at_most_one_state_is_drawn_by_lot_alone() {
    let log = flushed_one_by_one();
    let found = states(&log, 200, 1, Lie::None);
    let by_lot: Vec<&State> = found.iter().filter(|state| state.drawn.is_some()).collect();
    assert!((30..80).contains(&by_lot.len()), "{}", by_lot.len());
    let epochs: BTreeSet<u64> = by_lot.iter().map(|state| state.drawn.unwrap()).collect();
    assert_eq!(epochs.len(), by_lot.len());
    // the flush of number n ends at event 5 n + 5
    assert!(by_lot.iter().all(|state| state.cut / 5 == state.drawn.unwrap() || state.kept == 0));
    assert!(by_lot.len() < found.len() / 2, "most are chosen");
}

#[test]
fn of_cuts_with_the_same_content_the_last_one_stays() {
    let log = written_one_by_one(false, Nature::default());
    let nothing: Vec<State> =
        states(&log, 400, 1, Lie::None).into_iter().filter(|state| state.kept == 0).collect();
    assert_eq!(nothing.len(), 1);
    assert_eq!(nothing[0].cut, 501, "everything was acknowledged by then");
}

/// A hundred writes, each flushed, and a mark after each of them.
fn flushed_one_by_one() -> Vec<u8> {
    written_one_by_one(true, Nature::default())
}

fn written_one_by_one(flushed: bool, nature: Nature) -> Vec<u8> {
    let mut records = vec![Event::Added { name: "d".into(), size: 1 << 20, nature }];
    for number in 0..100u64 {
        let at = records.len() as Seq;
        records.push(Event::Write { offset: number * 4096, fua: false, data: vec![1; 4096] });
        records.push(Event::Completed { of: at + 1, failed: false });
        for event in [Event::Flush, Event::Completed { of: at + 3, failed: false }] {
            records.push(if flushed { event } else { Event::Mark { text: "no flush".into() } });
        }
        records.push(Event::Mark { text: number.to_string() });
    }
    let mut log = Vec::new();
    let mut writer = Writer::new(&mut log).unwrap();
    for (index, event) in records.into_iter().enumerate() {
        writer.write(&Record { seq: index as Seq + 1, disk: 0, event }).unwrap();
    }
    log
}

/// How many of the marks before the cut stand for a write that is not there.
fn missing(log: &[u8], state: &State) -> u64 {
    let mut replay = Replay::new(Cursor::new(log), state.lying).unwrap();
    let keeping = Keeping { nature: Nature::default(), cache_bytes: u64::MAX };
    let image = Image::over(&replay.state(state, "d").unwrap().0, keeping);
    let marked = (state.cut - 1) / 5;
    let there = |number: &u64| image.read(number * 4096, 1).unwrap() == [1];
    marked - (0..marked).filter(there).count() as u64
}

#[test]
fn what_was_flushed_is_there_in_every_state_and_lost_where_flushes_are_ignored() {
    let log = flushed_one_by_one();
    let honest = states(&log, 200, 1, Lie::None);
    assert!(honest.len() > 100);
    assert!(honest.iter().all(|state| missing(&log, state) == 0));
    assert!(
        honest.iter().any(|state| state.chosen.torn.iter().any(|torn| torn.blocks.len() < 8)),
        "nothing was ever dropped"
    );
    let lying = states(&log, 200, 1, Lie::All);
    assert!(lying.iter().any(|state| missing(&log, state) > 50));
    let last = states(&log, 200, 1, Lie::Last(3));
    assert_eq!(last.iter().map(|state| missing(&log, state)).max(), Some(3));
}

#[test]
fn a_cache_that_is_kept_loses_nothing_that_completed() {
    let kept = Nature { cache: Cache::Kept, ..Nature::default() };
    let log = written_one_by_one(false, kept);
    let found = states(&log, 200, 1, Lie::None);
    assert!(found.iter().all(|state| missing(&log, state) == 0 && state.disks["d"] == kept));
    let tears = |state: &State| state.chosen.torn.iter().any(|torn| torn.blocks.len() < 8);
    assert!(found.iter().any(tears), "what was under way was never lost");
    let lost = written_one_by_one(false, Nature::default());
    assert!(states(&lost, 200, 1, Lie::None).iter().any(|state| missing(&lost, state) > 50));
}

#[test]
fn a_state_of_another_kind_of_disk_is_refused() {
    let log = written_one_by_one(true, Nature { unit: 4096, ..Nature::default() });
    let state = states(&log, 1, 1, Lie::None).remove(0);
    let mut replay = Replay::new(Cursor::new(flushed_one_by_one()), state.lying).unwrap();
    let error = replay.state(&state, "d").err().unwrap().to_string();
    assert!(error.ends_with("its disks have other caches or sectors"), "{error}");
}

#[test]
fn nothing_is_torn_within_a_unit() {
    let nature = Nature { unit: 4096, ..Nature::default() };
    let write = Event::Write { offset: 3584, fua: false, data: vec![1; 9728] };
    let records = [Event::Added { name: "d".into(), size: 1 << 20, nature }, write];
    let mut log = Vec::new();
    let mut writer = Writer::new(&mut log).unwrap();
    for (seq, event) in (1..).zip(records) {
        writer.write(&Record { seq, disk: 0, event }).unwrap();
    }
    let found = states(&log, 1000, 1, Lie::None);
    assert_eq!(found.len(), 1 << 4, "it touches four units, each there or not");
    for state in found {
        let content = Replay::new(Cursor::new(&log[..]), state.lying).unwrap().state(&state, "d").unwrap().0;
        let image = Image::over(&content, Keeping { nature, cache_bytes: u64::MAX });
        for unit in [3584..4096, 4096..8192, 8192..12288, 12288..13312u64] {
            let bytes = image.read(unit.start, (unit.end - unit.start) as usize).unwrap();
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "{state:?}");
        }
    }
}

#[test]
fn another_seed_gives_other_states() {
    let log = flushed_one_by_one();
    assert_ne!(states(&log, 20, 1, Lie::None), states(&log, 20, 2, Lie::None));
}

#[test]
fn cuts_lie_between_the_marks_of_the_window() {
    let log = flushed_one_by_one();
    let window = |after: &str| Asked {
        after: Some(after.into()),
        until: Some("60".into()),
        states: 50,
        seed: 1,
        flushes: Lie::None,
    };
    let found = enumerate(|| Ok(Cursor::new(&log[..])), &window("30")).unwrap();
    assert!(found.iter().all(|state| (30 * 5 + 6..60 * 5 + 6).contains(&state.cut)));
    let error = enumerate(|| Ok(Cursor::new(&log[..])), &window("x")).unwrap_err();
    assert_eq!(error.to_string(), "no states of this log: no mark \"x\"");
}

#[test]
fn a_state_survives_json() {
    let log = flushed_one_by_one();
    for state in states(&log, 20, 1, Lie::Last(2)) {
        let again: State = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
        assert_eq!(state, again);
    }
}

#[test]
fn a_digest_is_of_the_content_alone() {
    let keeping = Keeping { nature: Nature::default(), cache_bytes: u64::MAX };
    let blank = Snapshot::blank(1 << 20);
    let mut image = Image::over(&blank, keeping);
    image.write(1, 4096, &[7; 8192], false).unwrap();
    image.write(2, 4096, &[0; 4096], false).unwrap();
    let digest = |wanted: &[Seq]| {
        let left =
            image.left(|change| if wanted.contains(&change.seq) { change.effective() } else { Vec::new() });
        left.unwrap().digest_after(&blank, 0)
    };
    assert_eq!((digest(&[]), digest(&[2])), (0, 0));
    assert_ne!(digest(&[1]), digest(&[1, 2]));
}

#[test]
fn a_log_with_a_cut_in_it_is_refused() {
    let mut log = Vec::new();
    Writer::new(&mut log).unwrap().write(&Record { seq: 1, disk: EVERY, event: Event::Cut }).unwrap();
    let mut replay = Replay::new(Cursor::new(&log[..]), Lying::default()).unwrap();
    assert_eq!(
        replay.step().unwrap_err().to_string(),
        "no states of this log: power was cut in it already, at 1"
    );
}

/// Rounds of writes with a flush after each, marks around the last one.
fn windowed(first: u8) -> Vec<u8> {
    let mut log = Vec::new();
    let mut writer = Writer::new(&mut log).unwrap();
    let mut seq = 0;
    let mut put = |event: Event| {
        seq += 1;
        let disk = if matches!(event, Event::Mark { .. }) { EVERY } else { 0 };
        writer.write(&Record { seq, disk, event }).unwrap();
        seq
    };
    put(Event::Added { name: "d".into(), size: 1 << 20, nature: Nature::default() });
    for round in 0..8u8 {
        for number in 0..40u64 {
            let data = vec![first + round + number as u8; 1024];
            let of = put(Event::Write { offset: number * 7168, fua: false, data });
            put(Event::Completed { of, failed: false });
        }
        let of = put(Event::Flush);
        put(Event::Completed { of, failed: false });
        let text = match round {
            6 => "begin",
            7 => "end",
            _ => "earlier",
        };
        put(Event::Mark { text: text.into() });
    }
    put(Event::Mark { text: "later".into() });
    log
}

#[test]
fn a_condensed_log_has_the_states_of_the_whole_one() {
    let whole = windowed(1);
    let mut condensed = Vec::new();
    condense(|| Ok(Cursor::new(whole.clone())), "begin", "end", &mut condensed).unwrap();
    assert!(condensed.len() < whole.len());
    let asked = Asked {
        after: Some("begin".into()),
        until: Some("end".into()),
        states: 60,
        seed: 3,
        flushes: Lie::Last(1),
    };
    let of = |log: &Vec<u8>| enumerate(|| Ok(Cursor::new(log.clone())), &asked).unwrap();
    assert_eq!(of(&whole).len(), 60);
    for state in of(&whole) {
        let mut replay = Replay::new(Cursor::new(&condensed), state.lying).unwrap();
        assert_eq!(replay.measured(state.clone()).unwrap(), state);
    }
}

#[test]
fn a_state_of_another_log_has_another_digest() {
    let (one, other) = (windowed(1), windowed(2));
    let state = states(&other, 40, 1, Lie::None).into_iter().max_by_key(|state| state.kept).unwrap();
    let mut replay = Replay::new(Cursor::new(&one), state.lying).unwrap();
    assert_ne!(replay.measured(state.clone()).unwrap().digest, state.digest);
    let mut replay = Replay::new(Cursor::new(&other), state.lying).unwrap();
    assert_eq!(replay.measured(state.clone()).unwrap(), state);
}

#[test]
fn the_content_of_a_state_of_another_log_or_choice_is_refused() {
    let (one, other) = (windowed(1), windowed(2));
    let state = states(&other, 40, 1, Lie::None).into_iter().max_by_key(|state| state.kept).unwrap();
    let made = |log: &[u8], state: &State| {
        Replay::new(Cursor::new(log.to_vec()), state.lying).unwrap().state(state, "d").map(|_| ())
    };
    assert!(made(&other, &state).is_ok());
    let foreign = made(&one, &state).unwrap_err().to_string();
    let expected = format!("the state at event {} is not of this log: its digest is ", state.cut);
    assert!(
        foreign.starts_with(&expected) && foreign.ends_with(&format!(" here, not {}", state.digest)),
        "{foreign}"
    );
    let chosen = Chosen { whole: Whole::Nothing, torn: Vec::new() };
    assert!(made(&other, &State { chosen, ..state.clone() }).is_err());
    assert!(made(&one, &State { digest: String::new(), ..state }).is_ok());
}

#[test]
fn what_is_volatile_when_the_window_begins_stays_volatile() {
    let mut log = Vec::new();
    let mut writer = Writer::new(&mut log).unwrap();
    let events = [
        Event::Added { name: "d".into(), size: 4096, nature: Nature::default() },
        Event::Write { offset: 0, fua: false, data: vec![1; 512] },
        Event::Mark { text: "begin".into() },
        Event::Mark { text: "end".into() },
    ];
    for (seq, event) in (1..).zip(events) {
        let disk = if matches!(event, Event::Mark { .. }) { EVERY } else { 0 };
        writer.write(&Record { seq, disk, event }).unwrap();
    }
    let mut condensed = Vec::new();
    condense(|| Ok(Cursor::new(log.clone())), "begin", "end", &mut condensed).unwrap();
    let mut replay = Replay::new(Cursor::new(&condensed), Lying::default()).unwrap();
    replay.advance(3).unwrap();
    assert_eq!(replay.volatile().len(), 1);
}

fn json() -> impl Strategy<Value = Value> {
    let number = prop_oneof![any::<u64>(), 0..40u64, (0..64u32).prop_map(|bits| u64::MAX >> bits)].boxed();
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number.clone().prop_map(Value::from),
        number.prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "(nothing|everything|only|but|all|last|.{0,6})".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let name = "(whole|torn|seq|blocks|only|but|from|flushes|last|.{0,4})";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..4)
                .prop_map(|all| Value::Object(all.into_iter().collect())),
        ]
    })
}

fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(items) => items.values().map(size).sum(),
        _ => 0,
    }
}

/// Puts another value in the place of one within, counted from the outside; whether there was one.
fn replace(value: &mut Value, nth: &mut usize, by: &Value) -> bool {
    if *nth == 0 {
        *value = by.clone();
        return true;
    }
    *nth -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| replace(item, nth, by)),
        Value::Object(items) => items.values_mut().any(|item| replace(item, nth, by)),
        _ => false,
    }
}

fn replayed(log: &[u8], line: &str) {
    let Ok(state) = serde_json::from_str::<State>(line) else { return };
    let fresh = || Replay::new(Cursor::new(log), state.lying).unwrap();
    let _ = fresh().reaches(&state);
    let _ = fresh().measured(state.clone());
    let _ = fresh().changes(&state);
    let _ = fresh().state(&state, "d");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// A state is somebody else's input: whatever its line says, it is refused or replayed.
    #[test]
    fn no_line_of_a_state_brings_a_replay_down(
        acts in acts(30), which: prop::sample::Index, changes in prop::collection::vec((any::<prop::sample::Index>(), json()), 0..3),
        line in "\\PC{0,100}",
    ) {
        let log = history(&acts, Cache::Lost).log();
        replayed(&log, &line);
        let states = states(&log, 20, 1, Lie::None);
        prop_assume!(!states.is_empty());
        let mut value = serde_json::to_value(which.get(&states)).unwrap();
        for (place, by) in &changes {
            let mut nth = place.index(size(&value));
            prop_assert!(replace(&mut value, &mut nth, by));
        }
        replayed(&log, &value.to_string());
    }
}
