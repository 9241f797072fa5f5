"""Checks of free space for a campaign's data."""

from __future__ import annotations

from dataclasses import dataclass

from pgstrata.errors import PreflightError
from pgstrata.host.facts.system import parse_meminfo
from pgstrata.host.protocol import Host
from pgstrata.spec.units import render_size
from pgstrata.stack.tuning import overcommit

LEAST_FREE_SHARE = 0.10
"""A fuller filesystem slows down and would distort the measurement."""


@dataclass(frozen=True)
class Wanted:
    """Required size of a stack's volume, and the OS user that must reach it (None: the user of pgstrata)."""

    stack: str
    size_bytes: int
    user: str | None = None
    alike_bytes: int = 0
    """Required size of all volumes of the stack on that kind of filesystem: those in memory share it."""


def require_free(host: Host, path: str, needed_bytes: int, free_bytes: int, total_bytes: int) -> None:
    """Raise PreflightError when a filesystem would keep too little free space."""
    left = free_bytes - needed_bytes
    if left < LEAST_FREE_SHARE * total_bytes:
        raise PreflightError(
            f"too little space in {path} on {host.name}: up to {render_size(needed_bytes)} are needed, "
            f"{render_size(free_bytes)} are free, and {LEAST_FREE_SHARE:.0%} must stay free",
            hint="lower workload.scale, name another scratch folder, or free some space",
        )


def require_memory(host: Host, stack: str, what: str, needed_bytes: int) -> None:
    """Raise PreflightError when data in memory would leave too little for programs."""
    available = parse_meminfo(host.read_text("/proc/meminfo"))["MemAvailable"]
    if needed_bytes + overcommit.ROOM_BYTES > available:
        raise PreflightError(
            f"too little memory on {host.name} for {what} of stack {stack}: about {render_size(needed_bytes)} and "
            f"{render_size(overcommit.ROOM_BYTES)} for programs are needed, {render_size(available)} are available",
            hint="lower workload.scale or max_wal_size",
        )


def require_size(wanted: Wanted, name: str, size_bytes: int, needed_bytes: int) -> None:
    """Raise PreflightError when a device, or its substitute, is too small."""
    if size_bytes < needed_bytes:
        raise PreflightError(
            f"{name} of stack {wanted.stack} is too small: it has {render_size(size_bytes)}, "
            f"about {render_size(needed_bytes)} are needed",
            hint="lower workload.scale or max_wal_size, or give it more space",
        )
