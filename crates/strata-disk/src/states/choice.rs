//! What of the volatile changes a state keeps.

use crate::durability::{Seq, count_units, units};
use crate::rng::Rng;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// So many volatile blocks are tried in all their combinations.
pub(crate) const EXHAUSTIVE_UNITS: u64 = 8;
/// So many volatile changes are tried in all their combinations, each whole.
pub(crate) const EXHAUSTIVE_CHANGES: usize = 6;
/// Larger changes, which only discards are, are torn at one place.
const SCATTERED_BLOCKS: u64 = 1 << 12;

/// A volatile change, and the blocks on which it still counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volatile {
    pub seq: Seq,
    pub blocks: Vec<Range<u64>>,
    /// Blocks of an aligned unit, within which it is not torn.
    pub unit: u64,
}

impl Volatile {
    fn units(&self) -> u64 {
        count_units(&self.blocks, self.unit)
    }
}

/// The volatile changes that are kept whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whole {
    Nothing,
    Everything,
    Only(Vec<Seq>),
    But(Vec<Seq>),
}

/// The blocks that are left of a torn change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Torn {
    pub seq: Seq,
    pub blocks: Vec<(u64, u64)>,
}

/// What is kept of the volatile changes; a torn one counts as torn alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chosen {
    pub whole: Whole,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub torn: Vec<Torn>,
}

impl Chosen {
    /// The blocks that are left of a change that still counts on `effective`.
    pub fn left(&self, seq: Seq, effective: Vec<Range<u64>>) -> Vec<Range<u64>> {
        if let Some(torn) = self.torn.iter().find(|torn| torn.seq == seq) {
            let wanted = torn.blocks.iter().flat_map(|(from, to)| {
                effective.iter().map(move |range| range.start.max(*from)..range.end.min(*to))
            });
            return wanted.filter(|range| !range.is_empty()).collect();
        }
        let kept = match &self.whole {
            Whole::Nothing => false,
            Whole::Everything => true,
            Whole::Only(seqs) => seqs.contains(&seq),
            Whole::But(seqs) => !seqs.contains(&seq),
        };
        if kept { effective } else { Vec::new() }
    }
}

/// How a state chooses, before it is known what there is to choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipe {
    Nothing,
    Everything,
    /// The blocks whose bits are set, of all volatile blocks in order.
    Blocks(u64),
    /// The changes whose bits are set.
    Changes(u64),
    Prefix(usize),
    Without(usize),
    Alone(usize),
    /// The changes whose number has this bit; with its opposite for every bit, all pairs occur in all four ways.
    Bit {
        bit: u32,
        set: bool,
    },
    /// One change in part, or two, and all others or none.
    Tear {
        index: usize,
        second: Option<usize>,
        others: bool,
    },
    /// Each change by lot: so many of eight are kept, and of these every other one in part.
    Lots {
        eighths: u64,
    },
}

impl Recipe {
    /// The name by which a state tells how it was chosen.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing kept",
            Self::Everything => "everything kept",
            Self::Blocks(_) => "some blocks kept",
            Self::Changes(_) => "some writes kept",
            Self::Prefix(_) => "the first writes kept",
            Self::Without(_) => "one write lost",
            Self::Alone(_) => "one write kept",
            Self::Bit { .. } => "half of the writes kept",
            Self::Tear { second: None, .. } => "one write torn",
            Self::Tear { .. } => "two writes torn",
            Self::Lots { .. } => "each write by lot",
        }
    }
}

/// Everything that is tried at one cut: all there is for small sets, otherwise a covering selection.
pub fn recipes(volatile: &[Volatile]) -> Vec<Recipe> {
    let blocks: u64 = volatile.iter().map(Volatile::units).sum();
    if blocks <= EXHAUSTIVE_UNITS {
        return (0..1 << blocks).map(Recipe::Blocks).collect();
    }
    let count = volatile.len();
    let mut found = if count <= EXHAUSTIVE_CHANGES {
        (0..1 << count).map(Recipe::Changes).collect()
    } else {
        let mut found = vec![Recipe::Nothing, Recipe::Everything];
        found.extend((1..count).map(Recipe::Prefix));
        found.extend((0..count).flat_map(|index| [Recipe::Without(index), Recipe::Alone(index)]));
        let bits = usize::BITS - (count - 1).leading_zeros();
        found.extend((0..bits).flat_map(|bit| [true, false].map(|set| Recipe::Bit { bit, set })));
        found
    };
    let torn = (0..count).filter(|index| volatile[*index].units() > 1);
    found.extend(
        torn.flat_map(|index| [true, false].map(|others| Recipe::Tear { index, second: None, others })),
    );
    found
}

/// One of them by lot, or half of the time, where they are a selection, a random subset of a random size. Which write is
/// torn is drawn by its size: a larger one is under way for longer, and beside the many small writes of a filesystem's own
/// the few large ones of a checkpoint would hardly ever be. Every other time a second one is.
pub fn drawn(recipes: &[Recipe], volatile: &[Volatile], lot: u64) -> Recipe {
    let mut rng = Rng::new(lot);
    if volatile.len() > EXHAUSTIVE_CHANGES && rng.coin() {
        return Recipe::Lots { eighths: 1 + rng.draw() % 7 };
    }
    match recipes[(rng.draw() % recipes.len() as u64) as usize] {
        Recipe::Tear { others, .. } => {
            let index = by_size(volatile, rng.draw());
            let again = by_size(volatile, rng.draw());
            Recipe::Tear { index, second: (again != index && rng.coin()).then_some(again), others }
        }
        recipe => recipe,
    }
}

/// How much a change of so many blocks counts by its size: a discard, which may be of any, as little as can be torn.
pub(crate) fn counted(blocks: u64) -> u64 {
    if blocks > SCATTERED_BLOCKS { 2 } else { blocks }
}

/// A write of several blocks.
fn by_size(volatile: &[Volatile], lot: u64) -> usize {
    let weight = |one: &Volatile| match one.units() {
        1 => 0,
        blocks => counted(blocks),
    };
    let mut at = lot % volatile.iter().map(weight).sum::<u64>();
    let holds = |one: &Volatile| {
        let found = at < weight(one);
        at = at.saturating_sub(weight(one));
        found
    };
    volatile.iter().position(holds).unwrap_or_default()
}

/// What a recipe chooses. `rng` decides where a write is torn.
pub fn choose(recipe: Recipe, volatile: &[Volatile], rng: &mut Rng) -> Chosen {
    let seqs = |wanted: &dyn Fn(usize) -> bool| -> Vec<Seq> {
        (0..volatile.len()).filter(|index| wanted(*index)).map(|index| volatile[index].seq).collect()
    };
    let whole = match recipe {
        Recipe::Nothing => Whole::Nothing,
        Recipe::Everything => Whole::Everything,
        Recipe::Blocks(bits) => return some_blocks(bits, volatile),
        Recipe::Changes(bits) => Whole::Only(seqs(&|index| bits >> index & 1 == 1)),
        Recipe::Prefix(length) => Whole::Only(seqs(&|index| index < length)),
        Recipe::Without(index) => Whole::But(vec![volatile[index].seq]),
        Recipe::Alone(index) => Whole::Only(vec![volatile[index].seq]),
        Recipe::Bit { bit, set } => Whole::Only(seqs(&|index| (index >> bit & 1 == 1) == set)),
        Recipe::Tear { index, second, others } => {
            let torn = [Some(index), second].into_iter().flatten().map(|index| torn(&volatile[index], rng));
            let whole = if others { Whole::Everything } else { Whole::Nothing };
            return Chosen { whole, torn: torn.collect() };
        }
        Recipe::Lots { eighths } => return lots(eighths, volatile, rng),
    };
    Chosen { whole, torn: Vec::new() }
}

fn lots(eighths: u64, volatile: &[Volatile], rng: &mut Rng) -> Chosen {
    let (mut whole, mut parts) = (Vec::new(), Vec::new());
    for change in volatile {
        if rng.draw() % 8 < eighths {
            match change.units() > 1 && rng.coin() {
                true => parts.push(torn(change, rng)),
                false => whole.push(change.seq),
            }
        }
    }
    Chosen { whole: Whole::Only(whole), torn: parts }
}

fn torn(change: &Volatile, rng: &mut Rng) -> Torn {
    Torn { seq: change.seq, blocks: tear(change, rng) }
}

fn some_blocks(bits: u64, volatile: &[Volatile]) -> Chosen {
    let mut number = 0;
    let mut torn = Vec::new();
    for change in volatile {
        let mut blocks = Vec::new();
        for (place, range) in units(&change.blocks, change.unit) {
            if bits >> (number + place) & 1 == 1 {
                blocks.push((range.start, range.end));
            }
        }
        number += change.units();
        torn.push(Torn { seq: change.seq, blocks });
    }
    Chosen { whole: Whole::Nothing, torn }
}

/// The first blocks, the last blocks, or each by the toss of a coin; at least one of them and not all.
fn tear(volatile: &Volatile, rng: &mut Rng) -> Vec<(u64, u64)> {
    let total = volatile.units();
    let at = 1 + rng.draw() % (total - 1);
    let coins = rng.draw();
    let ways = if total > SCATTERED_BLOCKS { 2 } else { 3 };
    let kept = |place: u64| match coins % ways {
        0 => place < at,
        1 => place >= at,
        _ => place != at && (place + 1 == at || Rng::new(coins ^ place).coin()),
    };
    let mut found: Vec<(u64, u64)> = Vec::new();
    for (_, range) in units(&volatile.blocks, volatile.unit).filter(|(place, _)| kept(*place)) {
        match found.last_mut().filter(|(_, end)| *end == range.start) {
            Some((_, end)) => *end = range.end,
            None => found.push((range.start, range.end)),
        }
    }
    found
}
