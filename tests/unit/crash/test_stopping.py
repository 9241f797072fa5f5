"""The server of a recording, asked if it runs when its disk may be gone."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from pgstrata.crash.program import _runs


def server(error: int) -> Any:
    def running() -> bool:
        raise OSError(error, "")

    return SimpleNamespace(running=running)


def test_a_disk_that_is_gone_says_nothing_of_its_server() -> None:
    assert _runs(server(errno.EIO)) is False


def test_other_errors_are_told() -> None:
    with pytest.raises(PermissionError):
        _runs(server(errno.EACCES))
