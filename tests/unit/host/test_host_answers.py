"""A far host may be anybody's: what it answers is no way to files, memory or disk of this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgstrata.errors import PgstrataError
from pgstrata.host.agent import wire
from pgstrata.host.agent.operations import OPERATIONS
from pgstrata.host.agent_schema import ANSWERS, WrongAnswer, checked, read_answer
from pgstrata.host.protocol import Command, Host, HostLost
from pgstrata.host.ssh import SshHost
from pgstrata.spec.hosts.targets import parse_target

EVIL = Path(__file__).with_name("evil_ssh.py")

Connect = Callable[[str], Host]


@pytest.fixture
def connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Connects to an agent that gives this answer to everything; see evil_ssh.py."""
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I {EVIL} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    made: list[Host] = []

    def to(answer: str) -> Host:
        monkeypatch.setenv("EVIL", answer)
        made.append(SshHost(parse_target("ssh://evil")))
        return made[-1]

    yield to
    for host in made:
        host.close()


@pytest.mark.parametrize(
    "line",
    [
        "'this is no JSON'",
        "'[1, 2]'",
        "'{}'",
        "'null'",
        '\'{"id": {}, "value": 1}\'',
        '\'{"id": true, "value": 1}\'',
        "'{\"id\": 2}'",
        '\'{"id": 2, "error": 5}\'',
        '\'{"id": 2, "error": {"kind": "os", "errno": "x", "message": "m", "path": "p"}}\'',
        '\'{"id": 2, "error": {"kind": 1, "message": []}}\'',
        '\'{"id": 2, "value": {"base64": 7}}\'',
        '\'{"id": 2, "value": {"base64": "x"}}\'',
        "'[' * 200_000",
        "'1' * 200_000",
        "bytes(256)",
        "b'x' * (100 << 20)",
    ],
)
def test_a_line_that_is_no_answer_ends_the_connection(connect: Connect, line: str) -> None:
    with pytest.raises(HostLost, match="connection to ssh://evil was lost: its agent sent a line"):
        connect(line + " + b'\\n'" if line.startswith("bytes") else line).read_text("/etc/hostname")


@pytest.mark.parametrize("answer", ["5", "None", "[]", "{}", "{'base64': ''} if 0 else [1]", "1.5", "True"])
def test_another_type_than_asked_for_is_refused(connect: Connect, answer: str) -> None:
    host = connect(answer)
    with pytest.raises(PgstrataError, match="not ours"):
        host.read_text("/etc/hostname")
    with pytest.raises(PgstrataError, match="not ours"):
        host.run(Command(("true",)))
    with pytest.raises(PgstrataError, match="not ours"):
        host.start(Command(("true",)), stdout="/a", stderr="/b")
    with pytest.raises(PgstrataError, match="not ours"):
        host.space("/")


@pytest.mark.parametrize(
    "name", ["../up", "/etc/passwd", "a/b", "..", ".", "", "nul\0", "x" * 5000, 5, None, ["x"], {"a": 1}]
)
def test_a_name_that_leads_out_of_its_folder_is_refused(name: object) -> None:
    with pytest.raises(WrongAnswer):
        checked("list_directory", ["fine", name])


def test_more_names_than_are_read_are_refused() -> None:
    assert checked("list_directory", ["x"] * 1000) == ["x"] * 1000
    with pytest.raises(WrongAnswer):
        checked("list_directory", ["x"] * 1_000_001)


def test_an_endless_file_ends_at_what_may_be_fetched(connect: Connect, tmp_path: Path) -> None:
    host = connect("value(b'x' * (1 << 20))")
    with pytest.raises(OSError, match="longer than"):
        host.fetch("/there", str(tmp_path / "here"), most_bytes=3 << 20)
    assert (tmp_path / "here").stat().st_size <= 3 << 20
    with pytest.raises(PgstrataError, match="not ours"):
        connect("value(b'x' * (2 << 20))").fetch("/there", str(tmp_path / "again"))
    assert (tmp_path / "again").stat().st_size == 0


def test_what_is_no_number_is_no_number() -> None:
    run = {"exit_code": 0, "stdout": b"", "stderr": b"", "duration_s": 0.5, "timed_out": False}
    assert checked("run", run) == run
    changes: tuple[dict[str, object], ...] = (
        {"duration_s": float("nan")}, {"duration_s": float("inf")}, {"exit_code": True}, {"exit_code": 1 << 70},
        {"timed_out": 0}, {"stdout": "text"}, {"more": 1},
    )  # fmt: skip
    for change in changes:
        with pytest.raises(WrongAnswer):
            checked("run", {**run, **change})


def test_every_operation_that_answers_something_is_known() -> None:
    assert set(ANSWERS) <= OPERATIONS
    silent = {
        "append",
        "cancel",
        "close",
        "close_device",
        "forget",
        "forget_ended",
        "make_directory",
        "read_ahead",
        "remove",
    }
    silent |= {"supersede", "unlock", "write", "write_chunk", "write_new", "zero"}
    assert OPERATIONS - set(ANSWERS) == silent
    with pytest.raises(WrongAnswer):
        checked("remove", "done")


def test_an_error_over_there_is_an_error_here() -> None:
    line = wire.encode({"id": 1, **wire.call(lambda: Path("/nothing/there").read_text())})
    with pytest.raises(FileNotFoundError):
        wire.result(read_answer(line))
