"""Which failing state is made smaller, and when another one fails in the same way."""

from __future__ import annotations

from typing import Any

from pgstrata.crash.job import Seen
from pgstrata.crash.reduction import LostRun, Patience, Reduction, failing_state, parts_of, same_way
from pgstrata.record.crash import StateRecord, StateVerdict
from pgstrata.trial.events import Notice


def state(id_: str, verdict: StateVerdict, lacking: int, interrupts: str | None = None) -> StateRecord:
    return StateRecord(
        id=id_, cut=1, how="", volatile=9, kept=9 - lacking, digest="", acknowledged=0, verdict=verdict,
        interrupts=interrupts,
    )  # fmt: skip


def test_the_worst_state_that_lacks_the_fewest_writes_is_taken() -> None:
    found = [state("1.0", "lost", 0), state("1.1", "corrupt", 5), state("1.2", "corrupt", 2), state("1.3", "held", 1)]
    chosen = failing_state(found)
    assert chosen is not None
    assert chosen.id == "1.2"
    assert failing_state([state("1.3", "held", 1), state("1.4", "unknown", 0)]) is None
    assert failing_state([state("1.3.1", "corrupt", 1, interrupts="1.3")]) is None


def test_failures_are_the_same_whatever_their_numbers() -> None:
    assert same_way(
        "invalid page in block 3 of relation base/5/16402", "invalid page in block 12 of relation base/5/1249"
    )
    assert not same_way("FATAL:  invalid page in block 3", "the filesystem cannot be mounted: 3")


class Untold:
    """A worker that could not mount the state that has everything written."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.executor = self

    def tell(self, event: Notice) -> None:
        self.notices.append(event.text)


def test_a_state_whose_files_cannot_be_told_is_recorded_with_blocks_of_unknown_files() -> None:
    context: Any = Untold()
    reduction = Reduction(context, lambda step: None, state("1.2", "lost", 1), "{}", Patience(states=1))
    blind = Seen(32, "mount: wrong fs type", None, "", "", "")
    assert reduction.told_layout(blind) is None
    assert context.notices == [
        "where the blocks lie that state 1.2 lacks cannot be read: mount: wrong fs type",
    ]
    (part,) = parts_of(None, "data-0", LostRun(7, 8, 10))
    assert (part.offset, part.length, part.file) == (8 * 512, 2 * 512, None)
