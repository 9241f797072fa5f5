"""The fewest lost and torn writes with which a state still fails: delta debugging over the blocks that the state lacks.
Pure.

Method: ddmin, Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE Transactions on Software
Engineering 28 (2002). A state at a cut is the durable content and a part of the volatile writes. It is therefore
defined by the blocks that it lacks, and fewer of them make another legal state of the same cut. First whole writes are
restored, then single blocks of the remaining ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pgstrata.errors import parser_of

MOST_BLOCKS = 1024
"""Maximum number of blocks restored one by one; beyond it, neighbours are lost or restored together."""


@dataclass(frozen=True, order=True)
class LostRun:
    """Neighbouring blocks of one write that a state lacks, from `start` up to `end`."""

    seq: int
    start: int
    end: int


@dataclass(frozen=True)
class ChangedBlocks:
    """A write that may be lost at the cut: its effective blocks, and those that the state has."""

    seq: int
    disk: str
    blocks: tuple[tuple[int, int], ...]
    kept: tuple[tuple[int, int], ...]

    @property
    def lost(self) -> tuple[LostRun, ...]:
        return tuple(LostRun(self.seq, start, end) for start, end in without(self.blocks, self.kept))


@parser_of("strata-disk changes")
def parse_changes(text: str) -> tuple[ChangedBlocks, ...]:
    return tuple(_parse_change(json.loads(line)) for line in text.splitlines())


def _parse_change(given: dict[str, Any]) -> ChangedBlocks:
    blocks, kept = (tuple((int(start), int(end)) for start, end in given[name]) for name in ("blocks", "kept"))
    return ChangedBlocks(int(given["seq"]), str(given["disk"]), blocks, kept)


def without(ranges: Iterable[tuple[int, int]], taken: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The ranges without the blocks of others; both are in order."""
    left = list(ranges)
    for start, end in taken:
        left = [part for a, b in left for part in ((a, min(b, start)), (max(a, end), b)) if part[0] < part[1]]
    return tuple(left)


def render_state(state: str, changes: Sequence[ChangedBlocks], lost: Iterable[LostRun], number: int) -> str:
    """The line of a state at the same cut that lacks exactly these blocks; its digest is not yet measured."""
    whole: list[int] = []
    torn = []
    runs: dict[int, list[tuple[int, int]]] = {}
    for run in sorted(lost):
        runs.setdefault(run.seq, []).append((run.start, run.end))
    for change in changes:
        if change.seq in runs:
            kept = without(change.blocks, runs[change.seq])
            if kept:
                torn.append({"seq": change.seq, "blocks": [list(part) for part in kept]})
            else:
                whole.append(change.seq)
    chosen = {"whole": {"but": whole} if whole else "everything", "torn": torn}
    how = "the fewest writes lost" if whole or torn else "everything kept"
    return json.dumps(json.loads(state) | {"id": number, "chosen": chosen, "how": how})


Lost = tuple[LostRun, ...]
Try = Callable[[Sequence[Lost]], Sequence[bool] | None]
"""Tests states that lack these blocks, up to the first that fails; None if no time is left for them."""


@dataclass(frozen=True)
class Smallest:
    """The smallest set of blocks; `proven` if no further block can be restored, as far as single blocks are tried."""

    lost: Lost
    proven: bool


def minimise(changes: Sequence[ChangedBlocks], fails: Try) -> Smallest:
    """The fewest blocks that must be missing for the state to fail, starting with those that it lacks."""
    tried = _Tried(fails)
    if tried.first([()]) == 0:
        return Smallest((), proven=True)
    writes = [change.lost for change in changes if change.lost]
    left = _reduced(writes, tried)
    blocks = _reduced([(run,) for run in _singly([run for write in left for run in write])], tried)
    return Smallest(joined(run for part in blocks for run in part), proven=not tried.exhausted)


def _singly(runs: Sequence[LostRun]) -> Iterator[LostRun]:
    if sum(run.end - run.start for run in runs) > MOST_BLOCKS:
        yield from runs
        return
    for run in runs:
        yield from (LostRun(run.seq, block, block + 1) for block in range(run.start, run.end))


def joined(runs: Iterable[LostRun]) -> Lost:
    """Sorts the runs and joins neighbours."""
    made: list[LostRun] = []
    for run in sorted(runs):
        if made and (made[-1].seq, made[-1].end) == (run.seq, run.start):
            made[-1] = LostRun(run.seq, made[-1].start, run.end)
        else:
            made.append(run)
    return tuple(made)


class _Tried:
    """Results of earlier attempts; `exhausted` once no time is left."""

    def __init__(self, fails: Try) -> None:
        self._fails = fails
        self._held: set[Lost] = set()
        self.exhausted = False

    def first(self, candidates: Sequence[Lost]) -> int | None:
        """Index of the first candidate that fails."""
        new = [number for number, lost in enumerate(candidates) if lost not in self._held]
        if not new or self.exhausted:
            return None
        answers = self._fails([candidates[number] for number in new])
        if answers is None:
            self.exhausted = True
            return None
        for number, failed in zip(new, answers, strict=False):
            if failed:
                return number
            self._held.add(candidates[number])
        return None


def _reduced(parts: list[Lost], tried: _Tried) -> list[Lost]:
    """ddmin: while one of `count` portions fails alone, or their rest without it, continues with that; else splits
    finer.
    """
    count = 2
    while len(parts) > 1 and not tried.exhausted:
        size = -(-len(parts) // count)
        portions = [parts[at : at + size] for at in range(0, len(parts), size)]
        rests = [[part for part in parts if part not in portion] for portion in portions]
        candidates = [*portions, *(rests if len(portions) > 2 else [])]
        found = tried.first([joined(run for part in candidate for run in part) for candidate in candidates])
        if found is not None:
            parts = candidates[found]
            count = 2 if found < len(portions) else max(len(portions) - 1, 2)
        elif size == 1:
            return parts
        else:
            count = min(2 * count, len(parts))
    return parts
