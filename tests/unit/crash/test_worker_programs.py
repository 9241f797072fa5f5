"""How a worker runs the server: its output, its end, and that it is not waited for after its last answer."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from pgstrata.crash import ledger, state_worker
from pgstrata.crash.ledger import LAST_ANSWER, parse_answers, render_check
from pgstrata.crash.state_worker import Daemon, Look, Loop, others, read_ahead, run

LONG_S = 300.0
NEVER_ENDS = "sleep 10000"


@pytest.fixture(autouse=True)
def given_back_timer() -> Iterator[None]:
    """A worker has the process's timer for itself; here it is also that of the tests."""
    handler, left = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    yield
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, *left)


def test_input_output_errors_and_exit_code_of_a_program() -> None:
    assert run(["sh", "-c", "cat; echo wrong >&2; exit 3"], LONG_S, "given") == (3, "given", "wrong\n")


def test_more_is_printed_than_a_pipe_holds() -> None:
    code, out, _ = run(["sh", "-c", "head --bytes=1000000 /dev/zero | tr '\\0' x"], LONG_S)
    assert (code, len(out)) == (0, 1_000_000)


def test_a_program_is_ended_after_its_last_answer() -> None:
    code, out, err = run(["sh", "-c", f"echo noted >&2; echo one; echo done; {NEVER_ENDS}"], LONG_S, until="done")
    assert (code, out, err) == (0, "one\ndone\n", "noted\n")


def test_the_last_answer_may_come_in_two_pieces() -> None:
    script = f"printf 'do'; cat >/dev/null; printf 'ne'; {NEVER_ENDS}"
    assert run(["sh", "-c", script], LONG_S, "given", until="done")[:2] == (0, "done")


def test_a_program_that_ends_before_its_last_answer_has_its_own_exit_code() -> None:
    assert run(["sh", "-c", "echo one; exit 2"], LONG_S, until="done")[:2] == (2, "one\n")


def test_a_program_whose_time_is_up_has_no_exit_code() -> None:
    assert run(["sh", "-c", NEVER_ENDS], 0.2, until="done")[:2] == (None, "")


@pytest.mark.parametrize("amcheck", [True, False])
def test_the_last_answer_is_that_of_the_last_statement(amcheck: bool) -> None:
    last = render_check(ledger.checks_of((ledger.AMCHECK,) if amcheck else (), major=18)).splitlines()[-1]
    assert last == ledger._END
    printed = f"\t 1: {LAST_ANSWER}\t(typeid = 25, len = -1, typmod = -1, byval = f)\n"
    assert parse_answers(printed, "").complete


def test_filesystems_of_loop_devices_are_left_but_for_those_that_are_needed() -> None:
    mountinfo = r"""
27 1 254:0 / / rw shared:1 - ext4 /dev/vda rw
40 27 7:1 / /var/lib rw - ext4 /dev/loop1 rw
41 40 0:30 / /var/lib/state/disks rw - fuse strata rw
42 27 7:2 / /mnt/of\040another rw shared:7 master:2 - xfs /dev/loop2 rw
43 42 7:3 / /mnt/of\040another/wal rw - xfs /dev/loop3 rw
44 27 7:4 / /var/li rw - xfs /dev/loop4 rw
""".strip()
    left = others(mountinfo, ["/var/lib/state", "/usr/bin/python3"])
    assert left == ["/var/li", "/mnt/of another/wal", "/mnt/of another"]


def test_of_the_newest_database_everything_is_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("base/1/1", "base/13000/2", "base/9/3", "global/4", "base/pgsql_tmp/5"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "base/13000/link").symlink_to("/etc/passwd")
    asked: list[str] = []

    def fadvise(file: int, *_: int) -> None:
        asked.append(os.path.relpath(os.readlink(f"/proc/self/fd/{file}"), tmp_path))

    monkeypatch.setattr(os, "posix_fadvise", fadvise)
    read_ahead(str(tmp_path))
    assert sorted(asked) == ["base/13000/2", "global/4"]


class NoDaemon:
    """Has every disk that it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, *, op: str, **_: Any) -> dict[str, Any]:
        self.asked.append(op)
        return {"nature": {"block": 512}}

    def largest_bytes(self) -> int:
        return 0


def left_up(device: Path, up: list[list[str]], patch: pytest.MonkeyPatch) -> tuple[dict[str, Any], list[str]]:
    """What is told of a state that is to be left up, on a file for a loop device, and what its daemon was asked."""

    def attach(_path: str, _block_bytes: int) -> Loop:
        file = os.open(device, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return Loop(str(device), file)

    patch.setattr(state_worker, "attach", attach)
    patch.setattr(state_worker, "detach", lambda loop, why="": os.close(loop.file))
    stage = {"up": up, "mend": [], "down": [["rm", str(device)]], "frees": [], "binds": None, "mount_point": None}
    stage["examine"] = []
    job = {"daemon": "/d", "log": "/l", "disks": [{"of": "data-0", "node": "data.0"}], "marks": ["begin", "end"]}
    daemon = NoDaemon()
    look = Look({**job, "stages": [stage], "server": None, "examined": []}, cast(Daemon, daemon))
    told = look.look({"id": 0})
    if device.exists():
        os.close(look.loops[0].file)
    return told, daemon.asked


def test_a_state_that_is_left_up_comes_up_while_its_devices_are_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = ["sh", "-c", "! flock --nonblock <data.0> true"]
    told, asked = left_up(tmp_path / "loop", [locked], monkeypatch)
    assert (told["mounted"], told["mount_error"], told["problem"]) == (0, "", "")
    assert told["server"] is None
    assert "take down" not in told["parts_s"]
    assert asked == ["add", "mark", "mark"]
    assert (tmp_path / "loop").exists()


def test_what_does_not_come_up_is_taken_down_also_where_it_was_to_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, asked = left_up(tmp_path / "loop", [["sh", "-c", "echo no such thing >&2; exit 3"]], monkeypatch)
    assert (told["mounted"], told["mount_error"]) == (3, "no such thing")
    assert asked == ["add", "mark", "mark", "remove"]
    assert not (tmp_path / "loop").exists()


@pytest.mark.parametrize("others_look", [0, 1, 3])
def test_a_device_stays_locked_until_nobody_else_has_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others_look: int
) -> None:
    """As with the kernel, asking marks what others have open, and what is gone cannot be asked for any more."""
    file = os.open(tmp_path / "loop", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    answers = [0] * (others_look + 1)

    def ioctl(asked: int, request: int) -> int:
        assert (asked, request) == (file, state_worker.LOOP_CLR_FD)
        if not answers:
            raise OSError(errno.ENXIO, "no such device")
        return answers.pop()

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    monkeypatch.setattr(state_worker, "BUSY_PAUSE_S", 0.0)
    state_worker.detach(Loop("/dev/loop-of-nobody", file))
    assert answers == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)
