"""A command that says that something is busy is tried again; any other end stays."""

from __future__ import annotations

import pytest

from pgstrata.host.protocol import Completed
from pgstrata.stack import undoing
from pgstrata.stack.undoing import BUSY_ATTEMPTS, again_while_busy

DONE = Completed(("umount", "/m"), 0, "", "", 0.0)
BUSY = Completed(("umount", "/m"), 32, "", "umount: /m: target is busy.", 0.0)
OTHER = Completed(("umount", "/m"), 32, "", "umount: /m: not mounted.", 0.0)


@pytest.mark.parametrize(
    ("ends", "last", "tries"),
    [
        ([DONE], DONE, 1),
        ([OTHER, DONE], OTHER, 1),
        ([BUSY, BUSY, DONE], DONE, 3),
        ([BUSY, OTHER, DONE], OTHER, 2),
        ([BUSY] * (BUSY_ATTEMPTS + 5), BUSY, BUSY_ATTEMPTS),
    ],
)
def test_it_is_tried_until_it_is_not_busy(
    ends: list[Completed], last: Completed, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undoing, "BUSY_PAUSE_S", 0.0)
    left = iter(ends)
    made = []

    def attempt() -> Completed:
        made.append(next(left))
        return made[-1]

    assert again_while_busy(attempt(), attempt) is last
    assert len(made) == tries
