"""Evidence of a campaign on its slices: what the order, the age of builds and their luck did to them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from pgstrata.analyze.campaign.evidence import Evidence, Run
from pgstrata.analyze.campaign.statements import AgeingBuilds, Statement, TurnOrder, UnlikeBuilds
from pgstrata.analyze.findings import SliceEffect, SlicesFinding
from pgstrata.analyze.stats.slice_effects import (
    AGE_LEVEL,
    MOST_BETWEEN,
    OTHER_LEVEL,
    READINGS,
    Effect,
    Turns,
    age_effects,
    block_memory,
    build_scatter,
    place_effect,
    predecessor_effects,
)
from pgstrata.record.decision import COMPARISON

What = Literal["age", "place", "predecessor", "memory"]


def slices_finding(evidence: Evidence, cell: str) -> SlicesFinding | None:
    """Return the evidence on one cell; None if no block of it has slices of two stacks."""
    runs = [run for name in evidence.stacks for run in evidence.of(name, cell, COMPARISON) if run.data.result.slices]
    names = list(dict.fromkeys(run.data.stack for run in runs))
    blocks = tuple(measured_turns(runs, names))
    if not blocks or evidence.emulated:
        return None
    count = len(names)
    builds = build_scatter(blocks, count)
    return SlicesFinding(
        cell=cell,
        blocks=len(blocks),
        slices=len(blocks[0].y),
        next_reading=next((reading for reading in READINGS if reading > len(blocks)), None),
        effects=(
            *_of_stacks("age", names, age_effects(blocks, count)),
            _effect("place", "", place_effect(blocks, count)),
            *_of_stacks("predecessor", names, predecessor_effects(blocks, count)),
            *_of_stacks("memory", names, block_memory(blocks, count)),
        ),
        between=builds.between if builds else None,
        between_low=builds.low if builds else None,
        between_high=builds.high if builds else None,
        within=builds.within if builds else None,
        unlike_builds=builds is not None and builds.p is not None and builds.p < OTHER_LEVEL,
    )


def slice_statements(found: SlicesFinding) -> Iterator[Statement]:
    """Yield a statement on each test that failed, of several stacks the one that stands out most. A stack that
    resembles itself has its own statement, by the pairs of the leader."""
    for what in ("age", "place", "predecessor"):
        told = [one for one in found.effects if one.what == what and one.told and one.amount]
        if not told:
            continue
        most = min(told, key=lambda one: (one.p, -abs(math.log(one.amount or 1.0))))
        ratio = most.amount or 1.0
        if most.what == "age":
            yield AgeingBuilds(subject=most.stack, ratio=ratio, slices=found.slices)
        elif most.what != "memory":
            yield TurnOrder(effect=most.what, subject=most.stack, ratio=ratio)
    if found.unlike_builds:
        yield UnlikeBuilds(
            between=found.between or 0.0,
            low=found.between_low or 0.0,
            high=found.between_high or 0.0,
            most=MOST_BETWEEN,
        )


def measured_turns(runs: Sequence[Run], names: Sequence[str]) -> Iterator[Turns]:
    """Yield the turns of each block, in the order of the clock, over the rounds that are complete. Blocks with a turn
    without transactions, or in another order than rounds, are left out."""
    blocks: dict[tuple[int, str], list[Run]] = {}
    for run in runs:
        blocks.setdefault((run.data.block, run.trial.trial.host), []).append(run)
    for _, own in sorted(blocks.items()):
        count = min(len(run.data.result.slices) for run in own)
        turns = sorted(
            (one.began_epoch_s, names.index(run.data.stack), one.transactions, one.measured_s + one.sync_s)
            for run in own
            for one in run.data.result.slices[:count]
        )
        if len(own) < 2 or count < 2 or not all(transactions and seconds for _, _, transactions, seconds in turns):
            continue
        stack = np.array([turn[1] for turn in turns]).reshape(count, len(own))
        y = np.array([math.log(turn[2] / turn[3]) for turn in turns]).reshape(stack.shape)
        if (np.sort(stack, axis=1) == np.sort(stack[0])).all() and np.unique(stack[0]).size == len(own):
            yield Turns(stack, y)


def _of_stacks(what: What, names: Sequence[str], own: Sequence[Effect]) -> Iterator[SliceEffect]:
    return (_effect(what, name, one) for name, one in zip(names, own, strict=True))


def _effect(what: What, stack: str, own: Effect) -> SliceEffect:
    level = AGE_LEVEL if what == "age" else OTHER_LEVEL
    amount = own.value if what == "memory" else math.exp(own.value)
    known = amount if math.isfinite(amount) else None
    return SliceEffect(what=what, stack=stack, amount=known, p=own.p, level=level, told=own.is_told(level))
