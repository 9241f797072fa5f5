"""fio and pg_test_fsync: arguments, and recorded output of fio 3.33 and of pg_test_fsync 15 and 18."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pgstrata.errors import PgstrataError
from pgstrata.workload.medium import parse_fio, parse_pg_test_fsync, plan_fio, plan_pg_test_fsync

FIXTURES = Path(__file__).parents[2] / "fixtures"
FIO = (FIXTURES / "fio" / "3.33-randwrite-fsync.json").read_text()


def test_fio_arguments() -> None:
    plain = plan_fio("/dev/loop9", pattern="randwrite", size_bytes=1 << 20)
    assert " ".join(plain.argv) == (
        "fio --name=pgstrata --filename=/dev/loop9 --rw=randwrite --size=1048576 --bs=8192 --iodepth=1 --direct=1"
        " --randseed=1 --ioengine=psync --output-format=json"
    )
    deep = plan_fio("/x", pattern="read", size_bytes=1, depth=32, fdatasync_every=4, runtime_s=2.5, read_only=True)
    assert deep.argv[-4:] == ("--fdatasync=4", "--runtime=2500ms", "--time_based", "--readonly")
    assert "--ioengine=libaio" in deep.argv
    by_path = plan_fio("/dev/disk/by-path/pci-0000:00:1f", pattern="read", size_bytes=1)
    assert r"--filename=/dev/disk/by-path/pci-0000\:00\:1f" in by_path.argv, "fio would take it for three files"


def test_fio_result() -> None:
    result = parse_fio("note: something for people\n" + FIO)
    job = json.loads(FIO)["jobs"][0]
    assert result == {"read": 0, "write": job["write"]["iops"]}
    assert result["write"] > 0


def test_fio_failures() -> None:
    with pytest.raises(PgstrataError, match="no JSON"):
        parse_fio("fio: it did not work\n")
    broken = json.loads(FIO)
    broken["jobs"][0]["error"] = 28
    with pytest.raises(PgstrataError, match="error 28"):
        parse_fio(json.dumps(broken))


@pytest.mark.parametrize("major", [15, 18])
def test_pg_test_fsync_result(major: int) -> None:
    text = (FIXTURES / "pg_test_fsync" / f"{major}.txt").read_text()
    first = text.index("fdatasync   ")
    rate = text[first:].split()[1]
    assert text.index("one 8kB write") < first < text.index("two 8kB writes")
    assert parse_pg_test_fsync(text) == float(rate) > 0


def test_pg_test_fsync_failures() -> None:
    for text in ("something else\n", "1 second per test\n", "using one 8kB write:\n  fsync  1.2 ops/sec  5 usecs/op\n"):
        with pytest.raises(PgstrataError, match="no rate of fdatasync"):
            parse_pg_test_fsync(text)


def test_pg_test_fsync_arguments() -> None:
    command = plan_pg_test_fsync("/b/pg_test_fsync", "/m/file", 2)
    assert command.argv == ("/b/pg_test_fsync", "--secs-per-test=2", "--filename=/m/file")
