"""vm.overcommit_memory=2 forbids to commit more than a limit: on a host that is past it, every fork would fail."""

from __future__ import annotations

from collections.abc import Mapping

from pgstrata.errors import PreflightError
from pgstrata.host.facts.system import parse_meminfo
from pgstrata.host.protocol import Host
from pgstrata.spec.units import render_size

OVERCOMMIT_MEMORY = "/proc/sys/vm/overcommit_memory"
STRICT = "2"

ROOM_BYTES = 512 * 2**20
"""Bytes that must be left for the host's own programs."""


def commit_limit_bytes(meminfo: Mapping[str, int], *, ratio: int, kbytes: int) -> int:
    """CommitLimit as the kernel computes it: `kbytes` or `ratio` percent of the memory without huge pages, and swap.

    See vm_commit_limit() and Documentation/mm/overcommit-accounting.rst.
    """
    huge_bytes = meminfo.get("HugePages_Total", 0) * meminfo.get("Hugepagesize", 0)
    allowed = kbytes * 1024 if kbytes else (meminfo["MemTotal"] - huge_bytes) * ratio // 100
    return allowed + meminfo["SwapTotal"]


def require_room_to_commit(host: Host, path: str, value: str) -> None:
    """PreflightError when `value` is the strict mode and the host has committed too much for it; reads it now."""
    if path != OVERCOMMIT_MEMORY or value != STRICT:
        return
    meminfo = parse_meminfo(host.read_text("/proc/meminfo"))
    problem = room_problem(meminfo["CommitLimit"], meminfo["Committed_AS"], 0)
    if problem:
        raise PreflightError(f"vm.overcommit_memory=2 is refused on {host.name}: {problem}", hint=HINT)


HINT = "raise vm.overcommit_ratio (100 or more) in the stack's kernel settings, or stop other services"


def room_problem(limit_bytes: int, committed_bytes: int, wanted_bytes: int) -> str:
    """Return why so much cannot be committed in addition; empty if it can."""
    if committed_bytes + wanted_bytes + ROOM_BYTES <= limit_bytes:
        return ""
    return (
        f"{render_size(committed_bytes)} are committed and {render_size(wanted_bytes + ROOM_BYTES)} are needed, "
        f"the limit would be {render_size(limit_bytes)}"
    )
