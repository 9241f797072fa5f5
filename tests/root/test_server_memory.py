"""What a killed server leaves in shared memory is taken back, and nobody else's is."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from servers import NO_SYNC, ready

from awaiting import is_running, wait_until
from pgstrata.errors import PgstrataError
from pgstrata.host.agent.processes import processes
from pgstrata.host.local import LocalHost
from pgstrata.postgres.server import Server, plan_initdb
from pgstrata.stack.dead_server import KEY_LINE, SEGMENTS
from pgstrata.stack.journal import Journal, clean
from pgstrata.stack.undo import RemoveServerMemory, StopProcesses
from pgstrata.stack.undoing import run_undo

ONE_MAJOR = pytest.mark.parametrize("installation", [18], indirect=True)


def group_of(server: Server) -> list[int]:
    """All processes of a server, the first one first."""
    pid = server.postmaster_pid()
    assert pid is not None
    return [pid, *(child for child, parent in processes() if parent == pid)]


def segments() -> set[str]:
    return {line.split()[1] for line in Path(SEGMENTS).read_text().splitlines()[1:]}


@dataclass(frozen=True)
class Memory:
    """What the processes of a server have mapped: System V segments, by their ids, and files in /dev/shm."""

    segments: frozenset[str]
    files: frozenset[Path]

    @classmethod
    def of(cls, server: Server) -> Memory:
        maps = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in group_of(server))
        files = frozenset(Path(name) for name in re.findall(r"/dev/shm/PostgreSQL\.\d+", maps))
        return cls(frozenset(re.findall(r" (\d+) +/SYSV", maps)), files)

    @property
    def left(self) -> bool:
        """All of it; an assertion that it is all or nothing."""
        found = [*(one in segments() for one in self.segments), *(file.exists() for file in self.files)]
        assert len(set(found)) == 1, found
        return found[0]


def kill(server: Server) -> None:
    """SIGKILL to all its processes at once, so that no child sees its parent gone and cleans up."""
    group = group_of(server)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in group:
            os.kill(pid, number)
    wait_until(lambda: not any(map(is_running, group)), "the server is gone")


def undo_of(server: Server) -> RemoveServerMemory:
    return RemoveServerMemory(user=server.user, data_directory=server.layout.data_directory)


@pytest.mark.parametrize("kind", ["posix", "sysv", "mmap"])
@pytest.mark.parametrize("memory", ["mmap", "sysv"])
def test_the_memory_of_a_killed_server_is_removed(host: LocalHost, server: Server, kind: str, memory: str) -> None:
    ready(server, dynamic_shared_memory_type=kind, shared_memory_type=memory)
    made = Memory.of(server)
    # beside the control segment the launchers of the server make one of their own, sooner or later
    assert len(made.segments) in ((2, 3) if kind == "sysv" else (1,))
    assert len(made.files) in ((1, 2) if kind == "posix" else (0,))
    kill(server)
    assert made.left
    assert run_undo(host, undo_of(server), same_boot=True).startswith("removed ")
    assert not made.left
    assert run_undo(host, undo_of(server), same_boot=True) == ""


@ONE_MAJOR
def test_clean_removes_the_memory_of_a_killed_server(host: LocalHost, server: Server) -> None:
    ready(server)
    made = Memory.of(server)
    journal = Journal.create(host, "killed")
    journal.register(undo_of(server), StopProcesses(marker=server.marker))
    host.unlock("trial-killed")  # as if its owner were gone
    kill(server)
    assert made.left
    cleaned = clean(host)
    assert not cleaned.failed
    (line,) = cleaned.lines
    assert line.startswith("killed: removed /dev/shm/PostgreSQL."), line
    assert line.endswith(f" of the server in {server.layout.data_directory}")
    assert not made.left


@ONE_MAJOR
def test_the_memory_of_a_killed_initdb_is_removed(host: LocalHost, server: Server) -> None:
    """Where a run is interrupted, the command that it waits for is killed."""
    server.make_directories()
    data = Path(server.layout.data_directory)
    argv = plan_initdb(server.installation, server.layout, None, NO_SYNC)
    process = host.start(server.as_user(*argv), stdout=f"{data.parent}/out", stderr=f"{data.parent}/err")
    found = ""
    while not found:  # its servers have a segment for a fraction of a second
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGSTOP)
        noted = data / "postmaster.pid"
        lines = noted.read_text().split("\n") if noted.exists() else []
        noted_id = lines[KEY_LINE - 1].split()[1] if len(lines) > KEY_LINE else ""
        found = noted_id if noted_id in segments() else ""  # a server that ends removes its note last
        os.killpg(process.pid, signal.SIGKILL if found else signal.SIGCONT)
    process.wait(60)
    wait_until(lambda: not is_running(abs(int(lines[0]))), "its server is gone")
    assert found in segments()
    assert run_undo(host, undo_of(server), same_boot=True).startswith("removed ")
    assert found not in segments()


@ONE_MAJOR
def test_the_memory_of_a_server_that_runs_is_left_alone(host: LocalHost, server: Server) -> None:
    ready(server)
    made = Memory.of(server)
    with pytest.raises(PgstrataError, match=f"processes use shared memory segment {''.join(made.segments)}"):
        run_undo(host, undo_of(server), same_boot=True)
    assert made.left
    assert server.value("SELECT 1 AS one") == 1


@ONE_MAJOR
@pytest.mark.parametrize("line", [0, 6])
def test_what_another_server_made_is_left_alone(host: LocalHost, server: Server, line: int) -> None:
    """The file may be old, or say anything: it is the server's user who can write it."""
    ready(server)
    made = Memory.of(server)
    kill(server)
    noted = Path(server.layout.data_directory, "postmaster.pid")
    said = noted.read_text()
    lines = said.split("\n")
    lines[line] = str(os.getpid()) if line == 0 else f"1 {lines[6].split()[1]}"
    noted.write_text("\n".join(lines))
    assert run_undo(host, undo_of(server), same_boot=True) == ""
    assert made.left
    noted.write_text(said)
    assert run_undo(host, undo_of(server), same_boot=True) != ""


@ONE_MAJOR
def test_a_server_that_ended_well_has_left_nothing(host: LocalHost, server: Server) -> None:
    assert run_undo(host, undo_of(server), same_boot=True) == ""
    ready(server)
    server.stop()
    assert run_undo(host, undo_of(server), same_boot=True) == ""
