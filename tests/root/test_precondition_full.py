"""A device that runs full while preconditioning writes is named, with the step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pgstrata.errors import TrialError
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Completed, command
from pgstrata.trial.context import TrialContext
from pgstrata.trial.steps import precondition
from recorded_log import run

MIB = 1 << 20


@contextmanager
def mounted(folder: Path, store_bytes: int) -> Iterator[tuple[str, str]]:
    """The place of an ext4 of 64 MiB and its loop device, whose file lies on a tmpfs of `store_bytes`."""
    store, place = folder / "store", folder / "place"
    store.mkdir()
    place.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size={store_bytes}", "tmpfs", store)
    try:
        run("truncate", "--size", str(64 * MIB), store / "file")
        node = run("losetup", "--find", "--show", store / "file").strip()
        try:
            run("mkfs.ext4", "-q", node)
            run("mount", node, place)
            try:
                yield str(place), node
            finally:
                run("umount", place)
        finally:
            run("losetup", "--detach", node)
    finally:
        run("umount", store)


def running(host: LocalHost, *commands: Any) -> TrialContext:
    """A context whose step has these commands."""
    planned = iter(commands)

    def run_next(*, stdin: str | None = None, check: bool = True) -> Completed:
        return host.run(command(*next(planned).resolve({}).argv, stdin=stdin or ""), check=check)

    return cast("TrialContext", SimpleNamespace(host=host, executor=SimpleNamespace(run_next=run_next)))


def steady(host: LocalHost, place: str) -> None:
    rounds = [precondition._plan_fill(place), precondition._sync(place)] * precondition.STEADY_ROUNDS
    precondition._steady(running(host, *rounds), places=(place,))


def test_a_full_filesystem_on_a_device_with_room_is_what_is_wanted(host: LocalHost, tmp_path: Path) -> None:
    with mounted(tmp_path, 128 * MIB) as (place, _):
        steady(host, place)
        assert not Path(precondition._filler(place)).exists()


def test_a_device_that_runs_full_is_named_with_its_step(host: LocalHost, tmp_path: Path) -> None:
    with mounted(tmp_path, 32 * MIB) as (place, node), pytest.raises(TrialError) as refused:
        steady(host, place)
    # The kernel tells the writer at once or the next sync: that depends on when it writes back.
    assert refused.value.message.startswith(
        f"device {node} on local could not be filled in step 'write the device full twice': "
    ), refused.value.message
    assert f"lsblk -s {node}" in refused.value.hint
