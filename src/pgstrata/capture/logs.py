"""Capture of a server's logs as a load, by strata-load on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pgstrata.errors import PgstrataError, PreflightError, parser_of
from pgstrata.host.delivery import BUILDING, load_call
from pgstrata.host.protocol import Command, Host

PATIENCE_S = 24 * 3600.0
NOT_FOUND = 127
LONGEST_SUMMARY = 65_536
"""Bytes at the end of a load that hold its summary."""

_HINTS = {
    "--prefix": "read it from the server with SHOW log_line_prefix, and repeat the command with --prefix",
    "is off": "log_min_duration_statement = 0 logs every statement with its duration",
    "--database": "repeat the command with --database NAME",
    "compressed": "gunzip, unxz or unzstd it into a file, and name that",
}


class CaptureError(PgstrataError):
    """The logs hold no load, or cannot be read."""


@dataclass(frozen=True)
class Captured:
    """The summary of a load."""

    statements: int
    sessions: int
    digests: int
    first_us: int
    last_us: int
    without_duration: int
    """Statements without a logged duration."""
    whole_seconds: bool
    """The log has times of whole seconds: shorter gaps are unknown."""
    literals: str
    """keep, text or all."""
    database: str | None
    left_out: Mapping[str, int]
    """Number of statements that the load lacks, by reason."""
    bytes: int
    """Bytes of the logs."""

    @property
    def duration_s(self) -> float:
        return (self.last_us - self.first_us) / 1e6

    @property
    def lines(self) -> list[str]:
        """The summary for people."""
        database = f" of the database {self.database}" if self.database else ""
        rate = self.statements / self.duration_s if self.duration_s > 0 else 0.0
        found = [
            f"{self.statements} statements{database} in {self.sessions} sessions, {self.duration_s:.1f} s, "
            f"{rate:.0f} a second, {self.digests} different ones"
        ]
        if self.whole_seconds:
            found.append("times have whole seconds: shorter gaps are unknown (log_line_prefix with %m instead of %t)")
        if self.without_duration:
            found.append(f"{self.without_duration} statements have no duration in the log")
        found += [f"left out: {count} {why}" for why, count in sorted(self.left_out.items(), key=lambda one: -one[1])]
        return found


def plan_capture(
    logs: Sequence[Path], out: Path, *, prefix: str | None, database: str | None, literals: str
) -> Command:
    """Return the call that writes the load of some logs. Paths are absolute."""
    chosen = (("--prefix", prefix), ("--database", database))
    options = [f"{option}={value}" for option, value in chosen if value is not None]
    files = [str(log.absolute()) for log in logs]
    return load_call(
        "capture", "--out", str(out.absolute()), "--literals", literals, *options, "--", *files, timeout_s=PATIENCE_S
    )  # fmt: skip


@parser_of("strata-load")
def parse_captured(text: str) -> Captured:
    """Return the summary that `strata-load capture` prints as JSON."""
    found: dict[str, Any] = json.loads(text)
    return Captured(**{field.name: found[field.name] for field in fields(Captured)})


def summary_of(load: Path) -> Captured | None:
    """Return the summary at the end of a load; None for a file without one."""
    try:
        with load.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LONGEST_SUMMARY))
            return parse_captured(file.read().splitlines()[-1].decode())
    except (OSError, IndexError, UnicodeDecodeError, PgstrataError):
        return None


def run_capture(host: Host, call: Command) -> Captured:
    """Capture; CaptureError if the logs hold no load, PreflightError without strata-load."""
    done = host.run(call, check=False)
    if done.exit_code == NOT_FOUND:
        raise PreflightError("strata-load is not installed", hint=BUILDING)
    if done.exit_code != 0:
        why = done.stderr.strip().removeprefix("error: ")
        raise CaptureError(why, hint=next((hint for word, hint in _HINTS.items() if word in why), ""))
    return parse_captured(done.stdout)
