"""A device whose filesystem cannot be filled is named, with the step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fake_host import FakeHost
from pgstrata.errors import TrialError
from pgstrata.host.protocol import Completed
from pgstrata.trial.steps.precondition import FILL, _steady

MOUNTED = "36 35 253:3 / /mnt/x rw,relatime - ext4 /dev/dm-3 rw\n"


def test_a_medium_that_fails_before_the_filesystem_is_full_is_named() -> None:
    def fill(*, check: bool = True) -> Completed:
        return Completed(("dd",), 1, "", "dd: fsync failed for 'pgstrata-filler': Input/output error", 1.0)

    context = SimpleNamespace(
        host=FakeHost(files={"/proc/self/mountinfo": MOUNTED}), executor=SimpleNamespace(run_next=fill)
    )
    with pytest.raises(TrialError) as refused:
        _steady(cast(Any, context), places=("/mnt/x",))
    assert refused.value.message == (
        f"device /dev/dm-3 on fake could not be filled in step {FILL!r}: "
        "dd: fsync failed for 'pgstrata-filler': Input/output error"
    )
    assert "lsblk -s /dev/dm-3" in refused.value.hint
