"""A device that refuses to be wiped is named, with the step."""

from __future__ import annotations

import errno
import os

import pytest

from fake_host import FakeHost
from pgstrata.errors import TrialError
from pgstrata.host.protocol import OpenDevice
from pgstrata.stack.safety import DeviceState, wipe
from pgstrata.stack.undoing import blank


class _Full(FakeHost):
    def zero(self, handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_device_that_runs_full_is_named_with_its_step() -> None:
    state = DeviceState("thin-1", "/dev/dm-3", 1 << 30, (), (), None)
    with pytest.raises(TrialError) as refused:
        wipe(_Full(), state, OpenDevice(1, "/proc/1/fd/3", (253, 3), 1 << 30, 0), "format data")
    assert refused.value.message == (
        "device thin-1 (/dev/dm-3) on fake could not be wiped in step 'format data': No space left on device"
    )
    assert "lsblk -s /dev/dm-3" in refused.value.hint


def test_a_device_that_runs_full_in_the_undo_is_named() -> None:
    with pytest.raises(TrialError) as refused:
        blank(_Full(), "/dev/dm-3", OpenDevice(1, "/proc/1/fd/3", (253, 3), 1 << 30, 0))
    assert refused.value.message == "device /dev/dm-3 on fake could not be wiped in the undo: No space left on device"
    assert "lsblk -s /dev/dm-3" in refused.value.hint
