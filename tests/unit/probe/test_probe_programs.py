"""The host probe finds the programs under test by their names and arguments, and sums up their tasks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pgstrata.probe import sampler
from pgstrata.probe.sampler import Program, Sampler, Server

WAITING = "import sys, threading; threading.Thread(target=sys.stdin.read).start(); print('up', flush=True)"
PARENT = """
import os, sys
child = os.fork()
if not child:
    open('/proc/self/comm', 'w').write('of server')
print('up', flush=True) if not child else None
sys.stdin.read()
"""


@contextmanager
def running(folder: Path, name: str, script: str, argument: str) -> Iterator[None]:
    """A program of that name, which waits with that argument."""
    program = folder / name
    if not program.exists():
        program.symlink_to(sys.executable)
    argv = [str(program), "-I", "-S", "-c", script, argument]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield


def test_a_program_is_known_by_name_and_argument(tmp_path: Path) -> None:
    place = str(tmp_path)
    client = Program("pgbench", place)
    assert client.sample() is None
    with running(tmp_path, "pgbench", WAITING, f"{place}2"), running(tmp_path, "other", WAITING, place):
        assert client.sample() is None
        with running(tmp_path, "pgbench", WAITING, place):
            first = client.sample()
            assert first is not None
            assert first["tasks"] == 2
            assert first["cpu_s"] > 0
            assert Program("pgbench", "").sample() is None
    assert client.sample() == {**first, "tasks": 0}


def test_of_two_that_look_alike_neither_is_taken(tmp_path: Path) -> None:
    place = str(tmp_path)
    with running(tmp_path, "pgbench", WAITING, place), running(tmp_path, "pgbench", WAITING, place):
        assert Program("pgbench", place).sample() is None


def test_nodes_of_a_cluster_have_their_own_sums_and_network(tmp_path: Path) -> None:
    with running(tmp_path, "postgres", PARENT, str(tmp_path)):
        nodes = Sampler([], nodes={"primary": str(tmp_path), "standby1": f"{tmp_path}/other"}).sample()["nodes"]
    assert nodes.keys() == {"primary"}
    assert nodes["primary"]["tasks"] == 2
    assert nodes["primary"].get("sent_bytes", 0) >= 0


def test_a_network_is_all_links_but_the_loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = b"Inter-| Receive\n face |bytes\n" + b"".join(
        b"  %s: %d 1 0 0 0 0 0 0 %d 2 0 0 0 0 0 0\n" % (name, received, sent)
        for name, received, sent in ((b"lo", 5, 5), (b"eth0", 70, 900), (b"eth1", 7, 1))
    )
    monkeypatch.setattr(sampler, "read_path", lambda path: shown)
    assert Program("postgres", "x").network() == {"received_bytes": 77, "sent_bytes": 901}
    monkeypatch.setattr(sampler, "read_path", lambda path: b"")
    assert Program("postgres", "x").network() == {}


def test_a_server_is_its_children_too(tmp_path: Path) -> None:
    with running(tmp_path, "postgres", PARENT, str(tmp_path)):
        found = Server("postgres", str(tmp_path)).sample()
        assert found is not None
        assert found["tasks"] == 2
        line = Sampler([], server=str(tmp_path)).sample()
        assert line["server"]["tasks"] == 2
        assert "client" not in line
