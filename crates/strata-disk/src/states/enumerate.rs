//! Which states are tried within a budget.
//!
//! One pass looks where power can be lost and how much is volatile there, a second one makes states at the chosen
//! numbers and keeps one of those with the same content: the last, by which most was acknowledged. Four kinds of cut are
//! chosen: right after the last mark before
//! a flush takes effect (all volatile changes lost: nothing that was acknowledged may depend on them), right before a
//! flush takes effect (most is volatile; those where changes overwrite most of what was there come first, and more often
//! than the others), around the two flushes after a write that ends within a page of PostgreSQL (a journal of data may
//! commit one half of a page, and until its next commit every state has that half alone), and anywhere. Beside these a stratum is drawn by lot alone: an event of the window, each as likely,
//! and every volatile change kept or lost, whole or torn; of a flush epoch only the first one drawn. Only of this stratum
//! a share of failing states can be bounded.

use super::choice::{Recipe, choose, counted, drawn, recipes};
use super::replay::{Replay, ReplayError};
use super::{Lying, State};
use crate::durability::{Lie, Seq};
use crate::log::Event;
use crate::rng::Rng;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;

/// A window of at most so many events is tried at each of them, with everything that can be chosen.
const EXHAUSTIVE_EVENTS: usize = 64;
/// So many times more choices are made than states are asked for: some leave the same content.
const SPARE: usize = 2;
/// Of the cuts right before a flush takes effect, the share that is tried again and again.
const RANKED_SHARE: usize = 4;
/// All of these, their first half, the first quarter and the first eighth have as many turns each: superblocks and logs are
/// overwritten all the time, and tables in a few moments.
const HALVINGS: usize = 4;
/// The share of states around writes that end within a page.
const SPLIT_SHARE: usize = 8;
const HALF_PAGE_BYTES: usize = 4096;
/// Size and layout version in the header of a page of 8192 bytes, and where: `pd_pagesize_version`.
const PAGE_MARK: [u8; 2] = [0x04, 0x20];
const PAGE_MARK_AT: usize = 18;
/// The first bytes of a journal's own blocks.
const JOURNAL_MARK: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];

/// Which states are asked for, and how many.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Cuts come after the mark of this text, and before that of the other one.
    pub after: Option<String>,
    pub until: Option<String>,
    pub states: usize,
    pub seed: u64,
    /// What flushes do from the first cut on.
    pub flushes: Lie,
}

/// A number at which power could be lost.
#[derive(Debug, Clone, Copy)]
struct Place {
    cut: Seq,
    /// Blocks, of changes that begin where something was written before the window.
    overwriting: u64,
    volatile: usize,
}

/// Where power can be lost within the window.
#[derive(Debug, Default)]
struct Places {
    from: Seq,
    /// Each event with its flush epoch.
    every: Vec<(Seq, u64)>,
    last_marks: Vec<Place>,
    before_flushes: Vec<Place>,
    /// Of the writes that end within a page, the number of those before flushes when they came.
    splits: Vec<usize>,
}

/// What is tried at one number: one recipe by lot, or a given one. The first of all in `priority` are kept.
#[derive(Debug, Clone, Copy)]
struct Draw {
    priority: usize,
    pick: Pick,
}

#[derive(Debug, Clone, Copy)]
enum Pick {
    Given(Recipe),
    Lot(u64),
    /// By lot alone, as the only one of this flush epoch.
    Drawn(u64),
    All,
}

/// The states of a log, in the order of their cuts. `open` gives the log from its beginning, each time it is called.
pub fn enumerate<R: Read>(
    open: impl Fn() -> Result<R, ReplayError>,
    asked: &Asked,
) -> Result<Vec<State>, ReplayError> {
    let start = find_start(open()?, asked)?;
    let lying = Lying { from: start, flushes: asked.flushes };
    let places = look(Replay::new(open()?, lying)?, start, asked)?;
    let draws = draw(&places, asked);
    let mut found = make(Replay::new(open()?, lying)?, &draws, asked.seed, lying)?;
    found.sort_by_key(|(priority, state)| (*priority, state.cut));
    found.truncate(asked.states);
    let mut states: Vec<State> = found.into_iter().map(|(_, state)| state).collect();
    states.sort_by(|a, b| (a.cut, &a.digest).cmp(&(b.cut, &b.digest)));
    for (id, state) in states.iter_mut().enumerate() {
        state.id = id;
    }
    Ok(states)
}

fn is_mark(event: &Event, wanted: &str) -> bool {
    matches!(event, Event::Mark { text } if text == wanted)
}

/// The number of the mark that the window begins with; 0 where none is asked for.
fn find_start<R: Read>(input: R, asked: &Asked) -> Result<Seq, ReplayError> {
    let Some(wanted) = &asked.after else { return Ok(0) };
    let mut reader = crate::log::native::Reader::new(input)?;
    while let Some(record) = reader.read()? {
        if is_mark(&record.event, wanted) {
            return Ok(record.seq);
        }
    }
    Err(ReplayError::Unfit(format!("no mark {wanted:?}")))
}

fn look<R: Read>(mut replay: Replay<R>, start: Seq, asked: &Asked) -> Result<Places, ReplayError> {
    let mut places = Places { from: start, ..Places::default() };
    let mut written = HashSet::new();
    let mut last_mark = None;
    while let Some(next) = replay.next() {
        if asked.until.as_deref().is_some_and(|until| is_mark(&next.event, until)) {
            break;
        }
        let (inside, marks) = (next.seq > start, matches!(next.event, Event::Mark { .. }));
        if inside && replay.settles() {
            places.last_marks.extend(last_mark.take());
            places.before_flushes.push(place(&replay, &written));
        }
        if let Some(Event::Write { offset, data, .. }) = replay.next().map(|next| &next.event) {
            if inside && splits_page(data) {
                places.splits.push(places.before_flushes.len());
            }
            if !inside {
                written.extend(pages(*offset, data.len()));
            }
        }
        replay.step()?;
        if inside {
            places.every.push((replay.at(), replay.epoch()));
            if marks {
                last_mark = Some(place(&replay, &HashSet::new()));
            }
        }
    }
    places.last_marks.extend(last_mark);
    Ok(places)
}

/// Whether a write has the first half of a page without the second one, as far as this can be seen.
fn splits_page(data: &[u8]) -> bool {
    let halves: Vec<&[u8]> = data.chunks_exact(HALF_PAGE_BYTES).collect();
    let first = |half: &[u8]| half[PAGE_MARK_AT..].starts_with(&PAGE_MARK);
    let alone = |next: Option<&&[u8]>| next.is_none_or(|next| first(next) || next.starts_with(&JOURNAL_MARK));
    halves.iter().enumerate().any(|(at, half)| first(half) && alone(halves.get(at + 1)))
}

fn pages(offset: u64, length: usize) -> impl Iterator<Item = u64> {
    offset / 4096..(offset + length as u64).div_ceil(4096)
}

fn place<R: Read>(replay: &Replay<R>, written: &HashSet<u64>) -> Place {
    let changes =
        replay.disks().flat_map(|image| image.volatile().map(|change| (image.nature().block, change)));
    let overwrites = |(block, change): &(u64, &crate::durability::Change<_>)| {
        written.contains(&(change.blocks.start * block / 4096))
    };
    let blocks =
        |(_, change): (u64, &crate::durability::Change<_>)| counted(change.blocks.end - change.blocks.start);
    let overwriting = if written.is_empty() { 0 } else { changes.filter(overwrites).map(blocks).sum() };
    Place {
        cut: replay.at(),
        overwriting,
        volatile: replay.disks().map(|image| image.volatile().len()).sum(),
    }
}

/// What is tried where. The same window, budget and seed give the same.
fn draw(places: &Places, asked: &Asked) -> BTreeMap<Seq, Vec<Draw>> {
    let mut draws: BTreeMap<Seq, Vec<Draw>> = BTreeMap::new();
    if places.every.len() <= EXHAUSTIVE_EVENTS {
        let all = Draw { priority: 0, pick: Pick::All };
        let cuts = places.every.iter().map(|(cut, _)| *cut).chain([places.from]);
        draws.extend(cuts.filter(|cut| *cut > 0).map(|cut| (cut, vec![all])));
        return draws;
    }
    let mut rng = Rng::new(asked.seed);
    let mut add = |cut: Seq, pick: Pick, priority: usize| {
        draws.entry(cut).or_default().push(Draw { priority, pick });
    };
    let mut marks: Vec<Seq> =
        places.last_marks.iter().filter(|place| place.volatile > 0).map(|place| place.cut).collect();
    shuffle(&mut marks, &mut rng);
    for (number, cut) in marks.iter().take(asked.states / 4).enumerate() {
        add(*cut, Pick::Given(Recipe::Nothing), 4 * number);
    }
    let mut splits = places.splits.clone();
    splits.dedup();
    shuffle(&mut splits, &mut rng);
    let after = |split: &usize| {
        let (commits, committed) =
            (places.before_flushes.get(split + 1), places.before_flushes.get(split + 2));
        [
            commits.map(|place| (place.cut, Recipe::Everything)),
            committed.map(|place| (place.cut, Recipe::Nothing)),
        ]
    };
    let around = splits.iter().flat_map(after).flatten().take(asked.states / SPLIT_SHARE);
    for (number, (cut, recipe)) in around.enumerate() {
        add(cut, Pick::Given(recipe), 4 * number);
    }
    let mut epochs = HashSet::new();
    for number in 0..asked.states {
        let (cut, epoch) = places.every[(rng.draw() % places.every.len() as u64) as usize];
        if epochs.insert(epoch) {
            add(cut, Pick::Drawn(epoch), 4 * number + 1);
        }
    }
    let mut ranked: Vec<Place> =
        places.before_flushes.iter().copied().filter(|place| place.volatile > 0).collect();
    ranked.sort_by_key(|place| std::cmp::Reverse((place.overwriting, place.volatile, place.cut)));
    ranked.truncate(ranked.len().div_ceil(RANKED_SHARE));
    for number in 0..asked.states * SPARE {
        let cut = match number % 4 {
            0 | 1 if !ranked.is_empty() => ranked[turn(number / 2, ranked.len())].cut,
            2 if !marks.is_empty() => marks[(rng.draw() % marks.len() as u64) as usize],
            _ => places.every[(rng.draw() % places.every.len() as u64) as usize].0,
        };
        add(cut, Pick::Lot(rng.draw()), 4 * (number / 2) + 2 + number % 2);
    }
    draws
}

/// Whose turn it is of so many that are ranked.
fn turn(number: usize, ranked: usize) -> usize {
    number / HALVINGS % ranked.div_ceil(1 << (number % HALVINGS))
}

fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, (rng.draw() % (last as u64 + 1)) as usize);
    }
}

fn make<R: Read>(
    mut replay: Replay<R>,
    draws: &BTreeMap<Seq, Vec<Draw>>,
    seed: u64,
    lying: Lying,
) -> Result<Vec<(usize, State)>, ReplayError> {
    let mut seen = HashMap::new();
    let mut found: Vec<(usize, State)> = Vec::new();
    let mut by_lot = Rng::new(seed);
    for (cut, draws) in draws {
        replay.advance(*cut)?;
        let volatile = replay.volatile();
        let recipes = recipes(&volatile);
        for draw in draws {
            let picked: Vec<Recipe> = match draw.pick {
                Pick::Given(recipe) => vec![recipe],
                Pick::Lot(lot) => vec![drawn(&recipes, &volatile, lot)],
                Pick::Drawn(_) => vec![Recipe::Lots { eighths: 4 }],
                Pick::All => recipes.clone(),
            };
            for recipe in picked {
                let mut rng = Rng::new(seed ^ cut.rotate_left(32) ^ draw.priority as u64);
                let whole_window = matches!(draw.pick, Pick::All);
                let priority = if whole_window { by_lot.draw() as usize } else { draw.priority };
                let chosen = choose(recipe, &volatile, &mut rng);
                let kept = volatile.iter().filter(|one| !chosen.left(one.seq, one.blocks.clone()).is_empty());
                let kept = kept.count();
                let digest = replay.digest(&chosen)?;
                let (id, volatile, how) = (0, volatile.len(), recipe.name().to_string());
                let drawn = if let Pick::Drawn(epoch) = draw.pick { Some(epoch) } else { None };
                let (disks, key) = (replay.natures(), digest.clone());
                let state = State { id, cut: *cut, chosen, lying, volatile, kept, how, drawn, disks, digest };
                match seen.entry(key) {
                    Entry::Vacant(new) => {
                        new.insert(found.len());
                        found.push((priority, state));
                    }
                    Entry::Occupied(before) => {
                        let (first, same) = &mut found[*before.get()];
                        *first = priority.min(*first);
                        *same = State { drawn: same.drawn.or(state.drawn), ..state };
                    }
                }
            }
        }
    }
    Ok(found)
}
