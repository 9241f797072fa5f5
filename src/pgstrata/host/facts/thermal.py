"""How often processors were slowed down because they were too hot (Intel counts it)."""

from __future__ import annotations

import re

from pgstrata.host.facts.cpu import CPU_DIRECTORY
from pgstrata.host.facts.source import read_file, read_names
from pgstrata.host.protocol import Host


def read_throttle_count(host: Host) -> int | None:
    """Sum over the cores since boot; None where it is not counted."""
    cpus = [name for name in read_names(host, CPU_DIRECTORY) if re.fullmatch(r"cpu\d+", name)]
    counts = [read_file(host, f"{CPU_DIRECTORY}/{name}/thermal_throttle/core_throttle_count") for name in cpus]
    known = [int(count) for count in counts if count is not None]
    return sum(known) if known else None
