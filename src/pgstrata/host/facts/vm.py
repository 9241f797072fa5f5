"""Kernel settings that storage benchmarks depend on: sysctls, transparent huge pages."""

from __future__ import annotations

import re

from pgstrata.host.facts.source import read_file
from pgstrata.host.protocol import Host

SYSCTLS = (
    "vm.dirty_background_bytes",
    "vm.dirty_background_ratio",
    "vm.dirty_bytes",
    "vm.dirty_ratio",
    "vm.dirty_expire_centisecs",
    "vm.dirty_writeback_centisecs",
    "vm.swappiness",
    "vm.overcommit_memory",
    "vm.nr_hugepages",
    "vm.zone_reclaim_mode",
    "kernel.numa_balancing",
)


def parse_choice(text: str) -> str:
    """The chosen word of `always [madvise] never`; the text itself when nothing is in brackets."""
    found = re.search(r"\[([^\]]+)\]", text)
    return found[1] if found else text.strip()


def read_sysctls(host: Host) -> dict[str, str]:
    """Values of those that this kernel has."""
    found = {name: read_file(host, "/proc/sys/" + name.replace(".", "/")) for name in SYSCTLS}
    return {name: value for name, value in found.items() if value is not None}


def read_huge_pages(host: Host) -> str | None:
    """Transparent huge pages: always, madvise or never."""
    text = read_file(host, "/sys/kernel/mm/transparent_hugepage/enabled")
    return None if text is None else parse_choice(text)
