"""Output of programs that is not what it should be: an error that names the program."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pgstrata.errors import NotUnderstood, PgstrataError
from pgstrata.host.facts.block import parse_findmnt, parse_lsblk
from pgstrata.postgres.fetch import parse_links
from pgstrata.stack.block.loop import parse_losetup
from pgstrata.stack.block.lvm import parse_lvs, parse_pvs
from pgstrata.stack.fs.zfs_status import parse_zpool_status
from pgstrata.stack.mounts import parse_mountinfo
from pgstrata.stack.safety import parse_wipefs
from pgstrata.workload.medium import parse_fio, parse_pg_test_fsync
from pgstrata.workload.pgbench_output import PgbenchOutputError, parse_init, parse_progress, parse_result

PARSERS: dict[str, tuple[Callable[[str], object], str]] = {
    "findmnt": (parse_findmnt, '{"filesystems": ['),
    "fio": (parse_fio, '{"jobs": [{"error": 0}]}'),
    "npm pack": (parse_links, '[{"source": 1}]'),
    "losetup": (parse_losetup, '{"loopdevices": 5}'),
    "lsblk": (parse_lsblk, '{"blockdevices": [7]}'),
    "lvs": (parse_lvs, '{"report": [{"lv": [1]}]}'),
    "pvs": (parse_pvs, "[" * 100_000),
    "mountinfo": (parse_mountinfo, "36 35 98:0 / /mnt rw"),
    "wipefs": (parse_wipefs, "[]"),
    "zpool": (parse_zpool_status, "  pool: x"),
    "pg_test_fsync": (
        parse_pg_test_fsync,
        "Compare file sync methods using one 8kB write:\n  fdatasync  1..2 ops/sec  5 usecs/op\n",
    ),
}


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_the_program_is_named(name: str) -> None:
    parse, text = PARSERS[name]
    with pytest.raises(PgstrataError, match=f"output of .*{name} is not understood: ") as error:
        parse(text)
    assert isinstance(error.value, NotUnderstood)


@pytest.mark.parametrize(
    ("parse", "line"),
    [
        (parse_progress, "progress: 1.0.0 s, 5 tps, lat 1 ms stddev 1"),
        (parse_progress, "progress: 1.0 s, 5..1 tps, lat 1 ms stddev 1"),
        (parse_progress, f"progress: 1{'0' * 400}.0 s, 5 tps, lat 1 ms stddev 1"),
        (parse_result, "tps = 1..2 (without initial connection time)"),
        (parse_result, f"scaling factor: {'9' * 5000}"),
        (parse_init, "done in 0.4 s (drop tables 0...1 s)."),
        (parse_init, "done in . s (drop tables 0.1 s)."),
    ],
)
def test_figures_of_pgbench_that_are_none(parse: Callable[[str], object], line: str) -> None:
    with pytest.raises(PgbenchOutputError):
        parse(line)
