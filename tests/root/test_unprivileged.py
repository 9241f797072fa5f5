"""An existing directory is built on, attested and left again by somebody who is not root."""

from __future__ import annotations

import os
import pwd
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from standing import context_in

from built import differences, standing
from pgstrata.host.local import LocalHost
from pgstrata.spec.layers.not_built import Existing
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack.build import attest
from pgstrata.stack.plan import plan_stack


def _as_nobody(work: Callable[[], None]) -> str:
    """Runs `work` in a process of the OS user nobody; what it raised, empty if nothing."""
    entry = pwd.getpwnam("nobody")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        text = ""
        try:
            os.setgroups([])
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)
            work()
        except BaseException:
            text = traceback.format_exc()
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A folder of nobody's; not below pytest's own, which is closed to others."""
    with TemporaryDirectory(prefix="pgstrata-test-") as folder:
        os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
        yield Path(folder)


def test_an_existing_directory_needs_no_root(theirs: Path) -> None:
    def work() -> None:
        host = LocalHost(state_directory=str(theirs / "state"))
        plan = plan_stack(Stack(name="x", data=Volume(fs=Existing(path=str(theirs)))), context_in(theirs))
        with standing(host, plan) as built:
            attested = attest(host, plan, built)
            assert differences(attested) == {}
            assert [row.actual for row in attested if row.what == "data mount fstype"] != []
            (Path(plan.data_directory) / "file").write_text("written")
        host.close()

    assert _as_nobody(work) == ""
    assert [entry.name for entry in theirs.iterdir()] == ["state"]
