"""Files of the kernel on a device that goes away between opening them and reading them."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator

import pytest

from pgstrata.host.agent import files
from pgstrata.host.local import LocalHost
from pgstrata.stack.block.loop import backing_file_of, shown_size_bytes
from pgstrata.stack.place import read_size_bytes


class Going(io.RawIOBase):
    """Opened, and without its device when it is read: the error has no path."""

    number = 0

    def __init__(self, path: str, *_: object, **__: object) -> None:
        super().__init__()

    def read(self, size: int = -1) -> bytes:
        raise OSError(self.number, os.strerror(self.number))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHost]:
    monkeypatch.setattr(files, "open", Going, raising=False)
    local = LocalHost()
    yield local
    local.close()


@pytest.mark.parametrize("number", [errno.ENODEV, errno.ESRCH])
def test_what_goes_away_is_gone(host: LocalHost, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(Going, "number", number)
    with pytest.raises(FileNotFoundError) as gone:
        read_size_bytes(host, "/dev/ublkb0")
    assert gone.value.filename == "/sys/class/block/ublkb0/size"
    assert shown_size_bytes(host, "/dev/ublkb0") == ""
    assert backing_file_of(host, "/dev/loop7") is None


def test_another_error_is_not_taken_for_a_device_that_is_gone(host: LocalHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Going, "number", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        backing_file_of(host, "/dev/loop7")


def test_a_file_that_is_none_of_the_kernel_s_is_not_gone(host: LocalHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Going, "number", errno.ENODEV)
    with pytest.raises(OSError, match="No such device"):
        host.read_text("/mnt/data/file")
