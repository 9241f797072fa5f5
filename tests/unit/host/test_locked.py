"""A lock that is waited for."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest

from pgstrata.errors import PreflightError
from pgstrata.host.delivery import locked
from pgstrata.host.local import LocalHost


def test_one_after_the_other_and_who_does_not_wait_is_told_the_holder(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with closing(LocalHost(state_directory=str(tmp_path))) as host:
            with (
                pytest.raises(PreflightError, match="the files on local are locked by another pgstrata: first"),
                locked(host, "it", "second", what="the files", wait_s=0),
            ):
                order.append("never")
            refused.set()
            with locked(host, "it", "second", what="the files", wait_s=60):
                order.append("second")

    refused = threading.Event()
    with closing(LocalHost(state_directory=str(tmp_path))) as host:
        with locked(host, "it", "first", what="the files", wait_s=0):
            other = threading.Thread(target=second)
            other.start()
            assert refused.wait(60)
            order.append("first")
        other.join(60)
        assert order == ["first", "second"]
        assert host.lock_holder("it") is None
