"""Whether caches can be dropped on a host is looked at before anything is built."""

from __future__ import annotations

import pytest

from fake_host import FakeHost, completed
from pgstrata.host.protocol import Command, Completed
from pgstrata.trial.survey.survey import caches_kept


@pytest.mark.parametrize(
    ("uid", "said", "kept"),
    [
        (0, "", ""),
        (
            0,
            "dd: failed to open '/proc/sys/vm/drop_caches': Read-only file system\n",
            "/proc/sys/vm/drop_caches cannot be written (Read-only file system)",
        ),
        (1000, "", "that takes root"),
    ],
)
def test_root_that_is_refused_keeps_caches_as_others_do(uid: int, said: str, kept: str) -> None:
    def answer(asked: Command) -> Completed:
        return completed(asked.argv, exit_code=1 if said else 0, stderr=said)

    assert caches_kept(FakeHost(answer=answer), uid) == kept
