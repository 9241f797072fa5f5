"""The size of a device that the kernel takes away while it is read."""

from __future__ import annotations

import errno
import os
from typing import cast

import pytest

from pgstrata.host.protocol import Host
from pgstrata.stack.block.loop import shown_size_bytes
from pgstrata.stack.nodes import read_size_bytes


class Going:
    """Opens the file in sysfs, and has lost the device when it is read."""

    def __init__(self, number: int) -> None:
        self.number = number

    def read_text(self, path: str) -> str:
        raise OSError(self.number, os.strerror(self.number), "")


def going(number: int) -> Host:
    return cast(Host, Going(number))


@pytest.mark.parametrize("number", [errno.ENODEV, errno.ENOENT])
def test_a_device_that_goes_away_is_gone(number: int) -> None:
    with pytest.raises(FileNotFoundError):
        read_size_bytes(going(number), "/dev/ublkb0")
    assert shown_size_bytes(going(number), "/dev/ublkb0") == ""


def test_another_error_is_not_taken_for_a_device_that_is_gone() -> None:
    with pytest.raises(OSError, match="Input/output error"):
        shown_size_bytes(going(errno.EIO), "/dev/ublkb0")
