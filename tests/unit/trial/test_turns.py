"""Trials side by side: their turns are balanced, one that fails leaves the others, an error ends all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from itertools import pairwise

import pytest

from pgstrata.record.schema import TrialVerdict
from pgstrata.trial.outcome import Turns, take_turns


def trial(name: str, turns: int, seen: list[str], fails_at: int = -1, error: BaseException | None = None) -> Turns:
    """Notes each turn, and its undo."""

    def run() -> Generator[None, None, TrialVerdict]:
        try:
            for turn in range(turns):
                if turn == fails_at and error is not None:
                    raise error
                if turn == fails_at:
                    return TrialVerdict(trial_id=name, status="failed")
                seen.append(name)
                yield
            return TrialVerdict(trial_id=name, status="ok")
        finally:
            seen.append(f"undo {name}")

    return run()


@pytest.mark.parametrize("names", ["ab", "abc", "abcd"])
def test_every_trial_follows_every_other_equally_often(names: str) -> None:
    seen: list[str] = []
    verdicts = take_turns([trial(name, 8, seen) for name in names])
    assert [v.trial_id for v in verdicts] == list(names)
    turns = [name for name in seen if not name.startswith("undo")]
    assert "".join(turns[: 2 * len(names)]) == names + names[::-1]
    assert Counter(turns) == dict.fromkeys(names, 8)
    after_each_other = Counter(pairwise(turns))
    for (before, after), count in after_each_other.items():
        assert abs(count - after_each_other[after, before]) <= 1


def test_one_that_fails_leaves_the_turns_of_the_others() -> None:
    seen: list[str] = []
    verdicts = take_turns([trial("a", 4, seen), trial("b", 4, seen, fails_at=1), trial("c", 4, seen)])
    assert [v.status for v in verdicts] == ["ok", "failed", "ok"]
    assert (seen.count("a"), seen.count("b"), seen.count("c")) == (4, 1, 4)
    assert seen.index("undo b") < seen.index("undo a")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("the host is gone")])
def test_an_error_of_one_undoes_all(error: BaseException) -> None:
    seen: list[str] = []
    trials = [trial("a", 4, seen), trial("b", 4, seen, fails_at=2, error=error), trial("c", 4, seen)]
    with pytest.raises(type(error)) as raised:
        take_turns(trials)
    assert raised.value is error
    assert not getattr(error, "__notes__", [])
    assert {name for name in seen if name.startswith("undo")} == {"undo a", "undo b", "undo c"}


def test_an_error_before_the_first_turn_of_another_begins_none_of_it() -> None:
    seen: list[str] = []
    with pytest.raises(OSError, match="early"):
        take_turns([trial("a", 4, seen, fails_at=0, error=OSError("early")), trial("b", 4, seen)])
    assert seen == ["undo a"]


def test_what_an_undo_says_is_a_note_of_the_error() -> None:
    def stubborn() -> Generator[None, None, TrialVerdict]:
        try:
            yield
        finally:
            raise ValueError("umount: busy")

    seen: list[str] = []
    with pytest.raises(OSError, match="first") as raised:
        take_turns([stubborn(), trial("b", 2, seen, fails_at=1, error=OSError("first"))])
    assert any("umount: busy" in note for note in raised.value.__notes__)
