"""Rows 32 to 34: what is told of the slices themselves, with such effects and without."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from acceptance_table.checks import Check
from acceptance_table.outcome import mean
from acceptance_table.simulated import SlicedScenario, SliceNoise, simulated_turns
from pgstrata.analyze.stats.slice_effects import (
    AGE_LEVEL,
    OTHER_LEVEL,
    Turns,
    age_effects,
    block_memory,
    build_scatter,
    place_effect,
    predecessor_effects,
)

NOISE = SliceNoise()
AGEING = ((8, 6, 0.85), (4, 12, 0.4))
"""Turns and blocks, and the share of campaigns in which a trend of 3 % a turn must be told."""


def slice_effect_checks(count: int) -> Iterator[Check]:
    yield from _age_checks(count)
    yield from _build_checks(count)
    yield from _order_checks(count)


def _campaign(rng: np.random.Generator, stacks: int, blocks: int, noise: SliceNoise) -> Sequence[Turns]:
    scenario, machine, found = SlicedScenario((0.0,) * stacks, slices=noise), rng.normal(0, noise.machine_sd), []
    for _ in range(blocks):
        machine, rounds = simulated_turns(scenario, rng.permutation(stacks).tolist(), machine, rng)
        found.append(Turns(*(np.array([[turn[at] for turn in one] for one in rounds]) for at in (0, 1))))
    return found


def _age_checks(count: int) -> Iterator[Check]:
    for turns, blocks, least in AGEING:
        rng, noise = np.random.default_rng((32, turns)), replace(NOISE, turns=turns)
        ages = replace(noise, ageing=0.03)
        told = [age_effects(_campaign(rng, 3, blocks, ages), 3)[-1].is_told(AGE_LEVEL) for _ in range(count)]
        subject = f"slices, 3 stacks, {blocks} blocks of {turns} turns"
        yield Check("32", f"{subject}, one gains 3 % a turn", "told", mean(told), False, least, count)
    for turns, blocks in ((8, 6), (4, 12), (4, 24)):
        rng, noise = np.random.default_rng((32, turns, blocks)), replace(NOISE, turns=turns)
        told = [
            any(one.is_told(AGE_LEVEL) for one in age_effects(_campaign(rng, 3, blocks, noise), 3))
            for _ in range(count)
        ]
        subject = f"slices, 3 stacks, {blocks} blocks of {turns} turns"
        yield Check("32", subject, "one is told to gain or lose", mean(told), True, 0.05, count)


def _build_checks(count: int) -> Iterator[Check]:
    for turns in (4, 8):
        for blocks in (6, 12):
            for scatter in (0.0, 0.03, 0.06):
                rng = np.random.default_rng((33, turns, blocks, round(100 * scatter)))
                noise = replace(NOISE, turns=turns, build_sd=scatter)
                found = [build_scatter(_campaign(rng, 2, blocks, noise), 2) for _ in range(count)]
                covers = [one is not None and one.low <= scatter <= one.high for one in found]
                subject = f"slices, 2 stacks, {blocks} blocks of {turns} turns, builds scatter {scatter:.0%}"
                yield Check("33", subject, "90 % interval covers", mean(covers), False, 0.88, count)
    for scatter, at_most, bound in ((0.05, True, 0.02), (0.15, False, 0.9)):
        rng, noise = np.random.default_rng((33, round(100 * scatter))), replace(NOISE, build_sd=scatter)
        found = [build_scatter(_campaign(rng, 3, 12, noise), 3) for _ in range(count)]
        told = [one is not None and one.p is not None and one.p < OTHER_LEVEL for one in found]
        subject = f"slices, 3 stacks, 12 blocks of 4 turns, builds scatter {scatter:.0%}"
        yield Check("33", subject, "builds told to differ", mean(told), at_most, bound, count)


def _order_checks(count: int) -> Iterator[Check]:
    for stacks in (2, 3, 4):
        rng = np.random.default_rng((34, stacks))
        found = [_campaign(rng, stacks, 12, NOISE) for _ in range(count)]
        subject = f"slices, {stacks} stacks, 12 blocks of 4 turns"
        told = [place_effect(one, stacks).is_told(OTHER_LEVEL) for one in found]
        yield Check("34", subject, "place told to matter", mean(told), True, 0.02, count)
        told = [any(k.is_told(OTHER_LEVEL) for k in predecessor_effects(one, stacks)) for one in found]
        yield Check("34", subject, "predecessor told to matter", mean(told), True, 0.02, count)
        told = [any(k.is_told(OTHER_LEVEL) for k in block_memory(one, stacks)) for one in found]
        yield Check("34", subject, "a stack told to resemble itself", mean(told), True, 0.02, count)
    for stacks in (3, 4):
        rng, noise = np.random.default_rng((34, stacks, 10)), replace(NOISE, carry_over=math.log(0.9))
        told = [
            predecessor_effects(_campaign(rng, stacks, 12, noise), stacks)[-1].is_told(OTHER_LEVEL)
            for _ in range(count)
        ]
        subject = f"slices, {stacks} stacks, 12 blocks of 4 turns, one slows the turn after it by 10 %"
        yield Check("34", subject, "told", mean(told), False, 0.85, count)
