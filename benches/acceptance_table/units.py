"""Rows 25 and on: claims whose unit of evidence is no run: hosts, sessions, nights and turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import numpy as np
import scipy

from acceptance_table.checks import Check
from acceptance_table.factors import choice_checks, effect_checks, power_checks
from acceptance_table.outcome import mean
from acceptance_table.slice_effects import slice_effect_checks
from pgstrata.analyze.sessions.comparison import Session, compare_sessions
from pgstrata.analyze.stats.fit import fit_blocks
from pgstrata.analyze.stats.hosts import HostTable, OverHosts, over_hosts
from pgstrata.analyze.stats.interval import ALPHA, CONFIRM_G, interval
from pgstrata.analyze.stats.shifts import find_shifts

SIGMA = 0.03
NIGHTS = 200
UNCHANGED = {
    "normal": 0.05,
    "t3": 0.05,
    "scatter that grows eight-fold": 0.05,
    "one in ten loses 9 SD": 0.12,
    "AR(1) of 0.4": 0.15,
    "AR(1) of 0.6": 0.30,
}
"""False changes at most: three bad nights in a row are a new level, and a slow wander is one too."""


def _hosts(rng: np.random.Generator, shifts: np.ndarray, blocks: int, sigmas: np.ndarray) -> OverHosts:
    """Two stacks in blocks of hosts, whose runs scatter so much and one of which is ahead by so much on each."""
    tables = [rng.normal([[shift], [0.0]], sigma, (2, blocks)) for shift, sigma in zip(shifts, sigmas, strict=True)]
    fits = tuple(fit_blocks(y) for y in tables)
    names, runs = tuple(f"h{k}" for k in range(len(tables))), np.full((2, len(tables)), blocks)
    return over_hosts(HostTable(names, np.array([fit.level for fit in fits]).T, fits, runs), 0, 1)


def odd_host_checks(count: int) -> Iterator[Check]:
    """Row 25: hosts that are alike, in few blocks."""
    for number, (hosts, blocks, noisier, bound) in enumerate(
        ((3, 3, 0, 0.05), (6, 3, 0, 0.05), (6, 4, 1, 0.05), (12, 3, 0, 0.05), (12, 4, 0, 0.05), (12, 4, 1, 0.06))
    ):
        rng, sigmas = np.random.default_rng((25, number)), SIGMA * np.where(np.arange(hosts) < noisier, 3, 1)
        told = [
            any(host.disagrees for host in _hosts(rng, np.zeros(hosts), blocks, sigmas).hosts) for _ in range(count)
        ]
        odd = f", {noisier} of which scatters 3 times as much" if noisier else ""
        yield Check("25", f"{hosts} alike hosts of {blocks} blocks{odd}", "one differs", mean(told), True, bound, count)


def few_host_checks(count: int) -> Iterator[Check]:
    """Row 26: a kind of machine of which half of the hosts are 20 % ahead and half 20 % behind."""
    for hosts in (3, 5, 6, 9):
        rng = np.random.default_rng((26, hosts))
        told = []
        for _ in range(count):
            shifts = 0.2 * rng.choice((-1.0, 1.0), hosts)
            claimed = _hosts(rng, shifts, 8, np.full(hosts, SIGMA)).claimed()
            told.append(interval(claimed, ALPHA, CONFIRM_G).excludes_zero())
        yield Check(
            "26", f"{hosts} hosts of two kinds, 20 % to either side", "better or worse", mean(told), True, 0.05, count
        )


def session_checks(count: int) -> Iterator[Check]:
    """Row 27: two sessions of 20 blocks, in which each stack, or the reference alone, lies 3 % apart."""
    for stacks, moving in (
        (2, "each stack"),
        (3, "each stack"),
        (4, "each stack"),
        (6, "each stack"),
        (4, "reference"),
    ):
        rng = np.random.default_rng((27, stacks, len(moving)))
        told = [_claims_a_change(rng, stacks, 1 if moving == "reference" else stacks) for _ in range(count)]
        subject = f"{stacks} stacks in common, {moving} 3 % apart between sessions"
        yield Check("27", subject, "more or less than the reference", mean(told), True, 0.05, count)


def _claims_a_change(rng: np.random.Generator, stacks: int, moving: int) -> bool:
    names = tuple(f"s{k}" for k in range(stacks))

    def session(name: str) -> Session:
        levels = np.where(np.arange(stacks) < moving, rng.normal(0, 0.03, stacks), 0.0)
        runs = rng.normal(levels[:, None], SIGMA, (stacks, 20))
        values = {s: {"cell": dict(enumerate(own.tolist()))} for s, own in zip(names, runs, strict=True)}
        at = datetime(2026, 1, 1, tzinfo=UTC)
        return Session(name, at, "tps", 0.02, paired=True, specs={s: s for s in names}, values=values, facts={})

    found = compare_sessions(session("a"), session("b"), "s0")
    return any(one.verdict in ("higher", "lower") for one in found.moved)


def _nights(rng: np.random.Generator, kind: str) -> np.ndarray:
    """200 nights of one level."""
    normal = rng.normal(0, 1, NIGHTS)
    match kind:
        case "t3":
            return rng.standard_t(3, NIGHTS)
        case "scatter that grows eight-fold":
            return normal * np.geomspace(1, 8, NIGHTS)
        case "one in ten loses 9 SD":
            return normal - 9.0 * (rng.random(NIGHTS) < 0.1)
        case "AR(1) of 0.4" | "AR(1) of 0.6":
            return np.asarray(scipy.signal.lfilter([1], [1, -float(kind[-3:])], normal))
        case _:
            return normal


def history_checks(count: int) -> Iterator[Check]:
    """Row 28: a level that does not change, looked at after every night."""
    for kind, bound in UNCHANGED.items():
        rng = np.random.default_rng((28, len(kind)))
        told = [bool(find_shifts(_nights(rng, kind).tolist(), ALPHA)) for _ in range(count)]
        yield Check("28", f"200 nights without a change, {kind}", "a change is told", mean(told), True, bound, count)


UNITS: dict[str, Callable[[int], Iterator[Check]]] = {
    "odd hosts": odd_host_checks,
    "few hosts": few_host_checks,
    "sessions": session_checks,
    "nights": history_checks,
    "slice effects": slice_effect_checks,
    "effects of factors": effect_checks,
    "power over factors": power_checks,
    "combinations of factors": choice_checks,
}


def unit_checks(count: int) -> Iterator[Check]:
    for checks in UNITS.values():
        yield from checks(count)
