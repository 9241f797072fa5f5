"""Stale reads on standbys: what asks for them, and what it found. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pgstrata.errors import parser_of
from pgstrata.host.protocol import Command, marked

PATIENCE_S = 10.0
"""A read that is stale for longer is given up; it counts with that time."""
HANGS_AFTER_S = 120.0

_READER = Path(__file__).with_name("stale_reader.py")


@dataclass(frozen=True)
class Stale:
    """Reads on one standby, each right after the acknowledgement of a commit."""

    checked: int
    stale: int
    """Number of them that lacked that commit."""
    median_ms: float | None
    max_ms: float | None
    """Time from the acknowledgement until a stale read had the commit."""


def plan_reader(
    psql: str, port: int, table: str, addresses: Mapping[str, str], *, seconds: float, user: str, os_user: str,
    passfile: str, marker: str,
) -> Command:  # fmt: skip
    """`addresses` are those of the primary, which comes first, and of the standbys by their names."""
    (_, primary), *standbys = addresses.items()
    return Command(
        (
            "python3", "-I", "-",
            "--psql", psql,
            "--port", str(port),
            "--user", user,
            "--database", "postgres",
            "--table", table,
            "--primary", primary,
            "--seconds", f"{seconds:g}",
            "--patience", f"{PATIENCE_S:g}",
            *(word for name, address in standbys for word in ("--standby", f"{name}={address}")),
        ),
        timeout_s=seconds + PATIENCE_S + HANGS_AFTER_S,
        stdin=_READER.read_text(encoding="utf-8"),
        user=os_user,
        env=(*marked(marker), ("PGPASSFILE", passfile)),
        cwd="/",
    )  # fmt: skip


@parser_of("the reader of standbys")
def parse_reads(text: str) -> dict[str, Stale]:
    """By the names of the standbys that were read."""
    rows = [json.loads(line) for line in text.splitlines()]
    names = dict.fromkeys(str(row["standby"]) for row in rows)
    return {name: _stale(row for row in rows if row["standby"] == name) for name in names}


def _stale(rows: Iterable[Mapping[str, object]]) -> Stale:
    reads = [(bool(row["stale"]), float(str(row["ms"]))) for row in rows]
    late_ms = [ms for stale, ms in reads if stale]
    return Stale(len(reads), len(late_ms), median(late_ms) if late_ms else None, max(late_ms, default=None))
