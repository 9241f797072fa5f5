"""The clock that timestamps are taken from."""

from __future__ import annotations

from pgstrata.host.facts.source import read_file
from pgstrata.host.protocol import Host

_DIRECTORY = "/sys/devices/system/clocksource/clocksource0"

FAST_CLOCKS = frozenset({"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "xen"})
"""Readable without a system call or at little more; hpet and acpi_pm cost microseconds a reading."""


def read_clock_source(host: Host) -> str | None:
    return read_file(host, f"{_DIRECTORY}/current_clocksource")


def read_clock_sources(host: Host) -> tuple[str, ...]:
    """Those that could be chosen."""
    return tuple((read_file(host, f"{_DIRECTORY}/available_clocksource") or "").split())
