"""The fewest lost and torn writes with which a state still fails: delta debugging over what the state lacks. Pure.

Method: ddmin, Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE Transactions on Software
Engineering 28 (2002). A state at a cut is what is durable there and a part of what is not; so it is told by the blocks
that it lacks, and fewer of them make another legal state of the same cut. First whole writes are given back, then
single blocks of those that are left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pgstrata.errors import parser_of

MOST_BLOCKS = 1024
"""That are given back one by one; where more are left, neighbours are lost or there together."""


@dataclass(frozen=True, order=True)
class LostRun:
    """Neighbouring blocks of one write that a state does not have, from `start` up to `end`."""

    seq: int
    start: int
    end: int


@dataclass(frozen=True)
class ChangedBlocks:
    """A write that may be lost at the cut: the blocks on which it counts, and those that the state has."""

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
    """The line of a state at the same cut that lacks these blocks and no other; its digest is yet to be measured."""
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
"""Whether states that lack these blocks fail, as far as the first that does; None when there is no time for them."""


@dataclass(frozen=True)
class Smallest:
    """The fewest blocks that were found; `proven` when nothing more could be given back, as far as one at a time is
    tried."""

    lost: Lost
    proven: bool


def minimise(changes: Sequence[ChangedBlocks], fails: Try) -> Smallest:
    """The fewest blocks that must be missing for the state to fail, beginning with those that it lacks."""
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
    """In order, neighbours as one."""
    made: list[LostRun] = []
    for run in sorted(runs):
        if made and (made[-1].seq, made[-1].end) == (run.seq, run.start):
            made[-1] = LostRun(run.seq, made[-1].start, run.end)
        else:
            made.append(run)
    return tuple(made)


class _Tried:
    """What was tried already; `exhausted` once there is no time left."""

    def __init__(self, fails: Try) -> None:
        self._fails = fails
        self._held: set[Lost] = set()
        self.exhausted = False

    def first(self, candidates: Sequence[Lost]) -> int | None:
        """The place of the first that fails."""
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
    """ddmin: while one of `count` portions fails alone, or their rest without it, go on with that; else cut finer."""
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
