//! The state machine against the reference model, over random histories.

mod reference;

use proptest::prelude::*;
use reference::{Event, Reference};
use std::collections::{BTreeMap, BTreeSet};
use strata_disk::durability::{Keep, Lie, Machine, Seq};
use strata_disk::rng::Rng;

const BLOCKS: u64 = 8;

#[derive(Debug, Clone)]
enum Act {
    Change {
        start: u64,
        length: u64,
        fua: bool,
    },
    Flush,
    /// The n-th of those under way completes.
    Complete(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let change = (0..BLOCKS, 1..4u64, prop::bool::weighted(0.2))
        .prop_map(|(start, length, fua)| Act::Change { start, length, fua });
    let act = prop_oneof![4 => change, 1 => Just(Act::Flush), 5 => (0..8usize).prop_map(Act::Complete)];
    prop::collection::vec(act, 0..40)
}

/// A machine, the reference, and the content that the driver of the machine holds to be durable.
struct Run {
    machine: Machine<()>,
    reference: Reference,
    durable: BTreeMap<u64, Seq>,
    settled: BTreeSet<Seq>,
}

fn run(acts: &[Act]) -> Run {
    let mut run = Run {
        machine: Machine::new(true),
        reference: Reference::default(),
        durable: BTreeMap::new(),
        settled: BTreeSet::new(),
    };
    let mut open: Vec<(Seq, bool)> = Vec::new();
    for (number, act) in acts.iter().enumerate() {
        let seq = number as Seq + 1;
        match act {
            Act::Change { start, length, fua } => {
                let blocks = *start..(start + length).min(BLOCKS);
                run.machine.submit_change(seq, blocks.clone(), *fua, ());
                run.reference.events.push(Event::Change { seq, blocks, fua: *fua });
                open.push((seq, false));
            }
            Act::Flush => {
                run.machine.submit_flush(seq);
                run.reference.events.push(Event::Flush { seq });
                open.push((seq, true));
            }
            Act::Complete(_) if open.is_empty() => {}
            Act::Complete(which) => {
                let (done, flush) = open.remove(which % open.len());
                run.reference.events.push(Event::Completed { seq: done, at: seq });
                let settled = if flush {
                    run.machine.complete_flush(done)
                } else {
                    run.machine.complete_change(done, seq).into_iter().collect()
                };
                for change in settled {
                    run.settled.insert(change.seq);
                    run.durable
                        .extend(change.effective().into_iter().flatten().map(|block| (block, change.seq)));
                }
            }
        }
    }
    run
}

/// Every change that is not durable.
fn unsettled(reference: &Reference) -> BTreeSet<Seq> {
    let durable = reference.durable();
    let changes = reference.events.iter().filter_map(|event| match event {
        Event::Change { seq, .. } => Some(*seq),
        _ => None,
    });
    changes.filter(|seq| !durable.contains(seq)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn durable_and_volatile_agree_with_the_reference(acts in acts()) {
        let run = run(&acts);
        let volatile: BTreeSet<Seq> = run.machine.volatile().map(|change| change.seq).collect();
        prop_assert_eq!(volatile, unsettled(&run.reference));
        prop_assert_eq!(run.settled, run.reference.durable());
    }

    #[test]
    fn every_cut_leaves_a_legal_state(acts in acts(), seed: u64, torn: bool) {
        let mut run = run(&acts);
        let mut state = run.durable.clone();
        for survivor in run.machine.cut(&Keep::Random, torn.then_some(1), &mut Rng::new(seed)) {
            state.extend(survivor.blocks.into_iter().flatten().map(|block| (block, survivor.change.seq)));
        }
        for block in 0..BLOCKS {
            let seen = state.get(&block).copied().unwrap_or(0);
            let legal = run.reference.legal(block);
            prop_assert!(legal.contains(&seen), "block {} shows {}, legal are {:?}", block, seen, legal);
        }
    }

    #[test]
    fn a_cut_can_keep_any_one_change(acts in acts()) {
        let run = run(&acts);
        for change in run.machine.volatile() {
            let kept = run.machine.clone().cut(&Keep::Only(vec![change.seq]), None, &mut Rng::new(0));
            prop_assert_eq!(kept.len(), 1);
            prop_assert_eq!(&kept[0].blocks, &change.effective());
        }
        prop_assert!(run.machine.clone().cut(&Keep::Nothing, Some(1), &mut Rng::new(0)).is_empty());
    }

    #[test]
    fn a_disk_that_lies_holds_back_the_last_flushes(count in 1..5usize, flushes in 0..8usize) {
        let mut machine = Machine::new(true);
        machine.set_lie(Lie::Last(count));
        for round in 0..flushes as u64 {
            machine.submit_change(4 * round + 1, round..round + 1, false, ());
            machine.complete_change(4 * round + 1, 4 * round + 2);
            machine.submit_flush(4 * round + 3);
            machine.complete_flush(4 * round + 3);
        }
        prop_assert_eq!(machine.volatile().len(), flushes.min(count));
    }
}

fn one_flushed_write(machine: &mut Machine<()>) {
    machine.submit_change(1, 0..1, false, ());
    machine.complete_change(1, 2);
    machine.submit_flush(3);
    machine.complete_flush(3);
}

#[test]
fn a_disk_that_ignores_flushes_keeps_nothing() {
    let mut machine = Machine::new(true);
    machine.set_lie(Lie::All);
    one_flushed_write(&mut machine);
    assert_eq!(machine.volatile().len(), 1);
}

#[test]
fn a_protected_cache_keeps_what_completed() {
    let mut machine = Machine::new(false);
    machine.submit_change(1, 0..1, false, ());
    assert_eq!(machine.complete_change(1, 2).map(|change| change.seq), Some(1));
}

#[test]
fn a_full_cache_writes_back_its_oldest_completed_change() {
    let mut machine = Machine::new(true);
    machine.submit_change(1, 0..1, false, ());
    machine.submit_change(2, 0..1, false, ());
    machine.complete_change(2, 3);
    assert_eq!(machine.write_back().map(|change| change.seq), Some(2));
    let hidden = machine.cut(&Keep::Everything, None, &mut Rng::new(0));
    assert!(hidden[0].blocks.is_empty(), "the older write may not come back over the newer one");
}
