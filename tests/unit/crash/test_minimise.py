"""The fewest lost writes: delta debugging against made-up states that are known to fail."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgstrata.crash.reduction import (
    ChangedBlocks,
    Lost,
    LostRun,
    Smallest,
    joined,
    minimise,
    parse_changes,
    render_state,
    without,
)

pytestmark = pytest.mark.slow

STATE = json.dumps({"id": 3, "cut": 90, "chosen": {"whole": "nothing"}, "volatile": 4, "kept": 0, "digest": "ab"})


def written(*sizes: int) -> list[ChangedBlocks]:
    """Writes of so many blocks, all of them lost."""
    return [ChangedBlocks(10 + n, "data-0", ((100 * n, 100 * n + size),), ()) for n, size in enumerate(sizes)]


def blocks_of(lost: Lost) -> set[tuple[int, int]]:
    return {(run.seq, block) for run in lost for block in range(run.start, run.end)}


class Judge:
    """States that fail where all of `guilty` are lost; it is asked so many times at most."""

    def __init__(self, guilty: set[tuple[int, int]], patience: int = 10_000) -> None:
        self.guilty = guilty
        self.patience = patience
        self.asked: list[Lost] = []

    def __call__(self, candidates: Sequence[Lost]) -> list[bool] | None:
        answers = []
        for lost in candidates:
            if len(self.asked) >= self.patience:
                return None
            self.asked.append(lost)
            answers.append(self.guilty <= blocks_of(lost))
            if answers[-1]:
                break
        return answers


@given(st.lists(st.integers(1, 20), min_size=1, max_size=30), st.data())
def test_exactly_the_guilty_blocks_are_left(sizes: list[int], data: st.DataObject) -> None:
    changes = written(*sizes)
    every = sorted(blocks_of(tuple(run for change in changes for run in change.lost)))
    guilty = set(data.draw(st.lists(st.sampled_from(every), min_size=1, max_size=4)))
    judge = Judge(guilty)
    found = minimise(changes, judge)
    assert found.proven
    assert blocks_of(found.lost) == guilty
    assert found.lost == joined(found.lost)
    assert len(judge.asked) == len(set(judge.asked))


def test_a_state_that_fails_with_everything_written_needs_no_loss() -> None:
    judge = Judge(set())
    assert minimise(written(3, 3), judge) == Smallest((), proven=True)
    assert judge.asked == [()]


def test_without_time_the_best_so_far_is_told_and_nothing_is_claimed() -> None:
    guilty = {(12, 205)}
    found = minimise(written(16, 16, 16, 16), Judge(guilty, patience=6))
    assert not found.proven
    assert guilty < blocks_of(found.lost)
    assert len(blocks_of(found.lost)) < 64


def test_too_many_blocks_are_given_back_by_runs() -> None:
    changes = [ChangedBlocks(7, "data-0", ((0, 1 << 20), (1 << 21, 1 << 22)), ())]
    found = minimise(changes, Judge({(7, 5)}))
    assert found.lost == (LostRun(7, 0, 1 << 20),)


def test_a_state_keeps_all_that_is_not_lost() -> None:
    changes = written(8, 8, 8)
    line = json.loads(render_state(STATE, changes, [LostRun(11, 102, 104), LostRun(12, 200, 208)], 5))
    assert line["chosen"] == {"whole": {"but": [12]}, "torn": [{"seq": 11, "blocks": [[100, 102], [104, 108]]}]}
    assert (line["id"], line["cut"]) == (5, 90)
    everything = json.loads(render_state(STATE, changes, [], 6))
    assert everything["chosen"] == {"whole": "everything", "torn": []}


def test_changes_tell_what_a_state_lacks() -> None:
    text = '{"seq":4,"disk":"wal-0","blocks":[[8,16],[20,24]],"kept":[[10,12],[20,24]]}\n'
    (change,) = parse_changes(text)
    assert change.disk == "wal-0"
    assert change.lost == (LostRun(4, 8, 10), LostRun(4, 12, 16))


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_ranges_without_others_are_sets_without_others(left: set[int], taken: set[int]) -> None:
    def ranges(blocks: set[int]) -> tuple[tuple[int, int], ...]:
        return tuple((run.start, run.end) for run in joined(LostRun(0, b, b + 1) for b in blocks))

    found = without(ranges(left), ranges(taken))
    assert {block for start, end in found for block in range(start, end)} == left - taken
