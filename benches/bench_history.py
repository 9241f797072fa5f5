"""How often a history shows a change that is none, and how soon one that is, in simulated sessions.

    python benches/bench_history.py [--histories 1000]

Every session is shifted as a whole (a random walk of SD 3 % a session, and -20 % for good after the middle: another
kernel), each block by SD 2 %, each stack within a session by SD 1 %, each run by SD 3 %. A stack is compared with the
reference after every session. Bound: a false change in at most 5 % of histories, placed rightly and held by the
interval in at least 95 % of those with one.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

import numpy as np

from pgstrata.analyze.sessions.comparison import Blocks, Session
from pgstrata.analyze.sessions.history import History, trace_history

BOUND_FALSE = 0.05
BOUND_HELD = 0.95
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
CELL = "made up"
Noise = Literal["normal", "t3", "slow runs"]


@dataclass(frozen=True)
class Past:
    """What is simulated."""

    sessions: int
    stacks: int = 1
    blocks: tuple[int, ...] = (4,)
    """Of each session, in turn."""
    noise: Noise = "normal"
    step: float = 1.0
    """Of the first stack, at `at`, for good."""
    at: int = 0


def make_sessions(past: Past, rng: np.random.Generator) -> list[Session]:
    """The last stack is the reference."""
    drift = np.cumsum(rng.normal(0, 0.03, past.sessions)) - 0.2 * (np.arange(past.sessions) >= past.sessions // 2)
    names = [*(f"s{number}" for number in range(past.stacks)), "reference"]
    made = []
    for number in range(past.sessions):
        block = drift[number] + rng.normal(0, 0.02, past.blocks[number % len(past.blocks)])
        values: dict[str, dict[str, Blocks]] = {}
        for name in names:
            y = block + (rng.normal(0, 0.01) if name != "reference" else 0.0) + runs(past.noise, block.size, rng)
            if name == names[0] and number >= past.at:
                y = y + math.log(past.step)
            values[name] = {CELL: dict(enumerate(y.tolist()))}
        at = BEGUN + timedelta(days=number)
        made.append(Session(at.isoformat(), at, "tps", 0.02, True, dict.fromkeys(names, "ext4"), values, {}))
    return made


def runs(noise: Noise, count: int, rng: np.random.Generator) -> np.ndarray:
    """Of SD 3 %; slow ones are eight in a hundred, which lose 5 to 25 %."""
    match noise:
        case "normal":
            return rng.normal(0, 0.03, count)
        case "t3":
            return 0.03 * rng.standard_t(3, count) / math.sqrt(3)
    return rng.normal(0, 0.03, count) - (rng.random(count) < 0.08) * rng.uniform(0.05, 0.25, count)


def histories(past: Past, count: int, *, by_reference: bool = True, seed: int = 1) -> list[History]:
    """Without the reference, a stack is held against one that nothing moves, as if there were no drift."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        sessions = make_sessions(past, rng)
        if not by_reference:
            for one in sessions:
                still = one.values["reference"][CELL]
                assert isinstance(still, dict)
                still.update(dict.fromkeys(still, 0.0))
        found.append(trace_history(sessions, "reference"))
    return found


def share_false(found: list[History]) -> float:
    return sum(any(one.changes for one in history.series) for history in found) / len(found)


@dataclass(frozen=True)
class Detected:
    """Of histories with one step."""

    told: float
    """Share of them."""
    placed: float
    """Of those told, the share whose days hold the step's."""
    held: float
    """... whose interval holds its size."""
    further: float
    """... that show another change besides."""


def detected(past: Past, found: list[History]) -> Detected:
    changes = [history.series[0].changes for history in found if history.series[0].changes]
    firsts = [one[0] for one in changes]
    least = max(1, len(firsts))
    return Detected(
        len(firsts) / len(found),
        sum(one.after < past.at <= one.before for one in firsts) / least,
        sum(one.low is not None and one.high is not None and one.low <= past.step <= one.high for one in firsts)
        / least,
        sum(len(one) > 1 for one in changes) / least,
    )


FALSE = (
    Past(10),
    Past(60),
    Past(60, stacks=4),
    Past(60, blocks=(3, 12)),
    Past(60, noise="t3"),
    Past(60, noise="slow runs"),
    Past(60, noise="slow runs", blocks=(3, 12)),
)
STEPS = tuple(Past(20 + after, step=step, at=20) for step in (0.9, 0.95) for after in (2, 3, 5, 10, 30))


def main() -> int:
    """Prints figure against bound; 1 when a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=1000)
    count = parser.parse_args().histories
    held = True
    print(f"histories that show a change where there is none, of {count}; bound {BOUND_FALSE:.0%}")
    for past in FALSE:
        share = share_false(histories(past, count))
        held &= share <= BOUND_FALSE
        blocks = " and ".join(str(one) for one in past.blocks)
        print(f"  {past.sessions} sessions of {blocks} blocks, {past.stacks} stacks, {past.noise:9} {share:7.2%}")
    share = share_false(histories(FALSE[1], count, by_reference=False))
    print(f"  60 sessions of 4 blocks, 1 stacks, without the reference {share:7.2%}")
    print(f"a step after 20 sessions: told, placed and held by its interval (bound {BOUND_HELD:.0%}), further ones")
    for past in STEPS:
        found = detected(past, histories(past, count))
        held &= found.told < 0.5 or min(found.placed, found.held) >= BOUND_HELD
        print(
            f"  {past.step - 1:.0%}, {past.sessions - past.at} sessions later"
            f" {found.told:7.1%} {found.placed:7.1%} {found.held:7.1%} {found.further:7.1%}"
        )
    return int(not held)


if __name__ == "__main__":
    sys.exit(main())
