"""The baseline of a medium: what is asked of fio and pg_test_fsync, in which files, and what is told when they lack."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fake_host import FakeHost, completed
from pgstrata.host.protocol import Command, Completed, Space
from pgstrata.workload.medium import MediumBaseline, measure_device, measure_medium

FIXTURES = Path(__file__).parents[2] / "fixtures"
FSYNC = (FIXTURES / "pg_test_fsync" / "15.txt").read_text()
FOLDER = "/var/tmp/pgstrata-medium-1"


def fio(read_iops: float, write_iops: float, error: int = 0) -> str:
    job = {"error": error, "read": {"iops": read_iops}, "write": {"iops": write_iops}, "sync": {}}
    return json.dumps({"fio version": "fio-3.33", "jobs": [job]})


class Disk(FakeHost):
    """Has the programs that it is given."""

    def __init__(self, *programs: str, error: int = 0) -> None:
        super().__init__(files={"/bin15/pg_test_fsync": ""}, answer=self.reply)
        self.make_directory(FOLDER)
        self.programs, self.error = programs, error

    def reply(self, command: Command) -> Completed | None:
        program = command.argv[0].rpartition("/")[2]
        if program not in self.programs:
            return replace(completed(command.argv), exit_code=127)
        if program == "pg_test_fsync":
            return completed(command.argv, FSYNC)
        return completed(command.argv, fio(1000.0, 500.0, self.error))


def rates_asked(host: FakeHost) -> list[Command]:
    return [c for c in host.asked if c.argv[0] != "fio" or "--version" not in c.argv]


def test_everything_is_measured_in_files_of_the_folder() -> None:
    host = Disk("fio", "pg_test_fsync")
    found = measure_medium(host, FOLDER, "/bin15")
    assert found == MediumBaseline(
        flushes_per_s=found.flushes_per_s,
        flushes_by="pg_test_fsync",
        random_reads_per_s=1000.0,
        random_writes_per_s=500.0,
        sequential_read_bytes_per_s=1000.0 * 2**20,
        sequential_write_bytes_per_s=500.0 * 2**20,
    )
    assert f"{found.flushes_per_s:.3f} ops/sec" in FSYNC
    named = {a.partition("=")[2] for c in rates_asked(host) for a in c.argv if a.startswith("--filename=")}
    assert named == {f"{FOLDER}/flushed", f"{FOLDER}/rates"}
    patterns = [a for c in rates_asked(host) for a in c.argv if a.startswith("--rw=")]
    assert patterns[0] == "--rw=write", "what is read was written before"


def test_a_short_baseline_asks_fio_for_the_flushes() -> None:
    host = Disk("fio", "pg_test_fsync")
    found = measure_medium(host, FOLDER, "/bin15", seconds=0.1)
    assert (found.flushes_by, found.flushes_per_s) == ("fio", 500.0)
    assert "--fdatasync=1" in rates_asked(host)[0].argv


@pytest.mark.parametrize(
    ("programs", "binaries", "missing", "by"),
    [
        (("pg_test_fsync",), "/bin15", ("random and sequential rates: fio is not installed",), "pg_test_fsync"),
        (("fio",), None, (), "fio"),
        (("fio",), "/bin16", (), "fio"),
        ((), None, ("flushes: neither fio nor pg_test_fsync is installed",
                    "random and sequential rates: fio is not installed"), ""),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(
    programs: tuple[str, ...], binaries: str | None, missing: tuple[str, ...], by: str
) -> None:
    found = measure_medium(Disk(*programs), FOLDER, binaries)
    assert (found.missing, found.flushes_by) == (missing, by)
    assert (found.random_reads_per_s is None) == ("fio" not in programs)


def test_what_fails_is_told_and_ends_nothing() -> None:
    found = measure_medium(Disk("fio", "pg_test_fsync", error=22), FOLDER, "/bin15")
    assert found.flushes_per_s is not None
    assert [line.partition(":")[0] for line in found.missing] == [
        "sequential writes", "sequential reads", "random reads", "random writes",
    ]  # fmt: skip
    assert all("fio failed with error 22" in line for line in found.missing)


def test_nothing_is_written_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Disk("fio")
    monkeypatch.setattr(host, "space", lambda path: Space(total_bytes=1 << 30, free_bytes=1 << 20))
    found = measure_medium(host, FOLDER, None)
    assert "has no room" in found.missing[0]
    assert host.asked == []


def test_a_device_is_only_read() -> None:
    host = Disk("fio")
    found = measure_device(host, "/dev/sdx", 1 << 40)
    assert (found.random_reads_per_s, found.random_writes_per_s, found.flushes_per_s) == (1000.0, None, None)
    assert "nothing is written to a device" in found.missing[0]
    asked = rates_asked(host)
    assert len(asked) == 2
    assert all("--readonly" in c.argv for c in asked)
    assert {a for c in asked for a in c.argv if a.startswith("--rw=")} == {"--rw=read", "--rw=randread"}
