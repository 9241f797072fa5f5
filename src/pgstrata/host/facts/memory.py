"""Memory and swap: /proc/meminfo."""

from __future__ import annotations

import re

from pgstrata.host.facts.source import read_file
from pgstrata.host.protocol import Host

_LINE = re.compile(r"([^:]+):\s+(\d+)( kB)?")


def parse_meminfo(text: str) -> dict[str, int]:
    """Bytes by name; counts of pages (HugePages_Total, ...) as they are. ValueError on a line of another form."""
    values: dict[str, int] = {}
    for line in text.splitlines():
        found = _LINE.fullmatch(line.strip())
        if found is None:
            raise ValueError(f"not a line of /proc/meminfo: {line}")
        values[found[1]] = int(found[2]) * (1024 if found[3] else 1)
    return values


def read_memory(host: Host) -> dict[str, int]:
    return parse_meminfo(read_file(host, "/proc/meminfo") or "")
