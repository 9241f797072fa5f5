"""All facts of a host, in words."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from pgstrata.host.facts.activity import read_busy, read_load, read_pressure, read_servers, render_busy
from pgstrata.host.facts.cpu import (
    Cpu,
    read_cpu,
    read_energy_preferences,
    read_governors,
    read_smt,
    read_throttle_count,
    read_turbo,
    read_virtualisation,
)
from pgstrata.host.facts.system import (
    read_clock_source,
    read_file,
    read_huge_pages,
    read_kernel_parameters,
    read_kernel_release,
    read_memory,
    read_os_release,
    read_sysctls,
)
from pgstrata.host.facts.tools import read_tools
from pgstrata.host.protocol import Host

UNKNOWN = "unknown"
BUSY, NOBODY = "busy processes", "none"
"""The fact about others at work, and its value when nobody is."""


@dataclass(frozen=True)
class Facts:
    """`checked`: results with different values are not compared. `told`: shown beside the results."""

    checked: dict[str, str] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)


def gather(host: Host, *, sample_s: float = 0.5) -> Facts:
    """Asks the host for everything; takes `sample_s` longer than the commands, to see who is busy.

    Never fails over a fact: one that cannot be read is `unknown`, one in a form that is not understood says so.
    """
    return Facts(_gather_checked(host), _gather_told(host, sample_s))


def _gather_checked(host: Host) -> dict[str, str]:
    cpu = read_cpu(host)
    memory = read_memory(host).get("MemTotal", 0)
    return {
        "machine id": read_machine_id(host, cpu, memory),
        "kernel": read_kernel_release(host) or UNKNOWN,
        "CPU model": cpu.model if cpu else UNKNOWN,
        "CPUs": str(cpu.count) if cpu else UNKNOWN,
        "architecture": cpu.architecture if cpu else UNKNOWN,
        # Rounded, because what the kernel keeps for itself differs a little from boot to boot.
        "memory": f"{memory / 2**30:.1f} GiB" if memory else UNKNOWN,
        "virtualisation": read_virtualisation(host, cpu),
        "clock source": read_clock_source(host) or UNKNOWN,
        "CPU governor": ", ".join(read_governors(host)) or "not governed",
        "turbo": read_turbo(host) or UNKNOWN,
    }


def _gather_told(host: Host, sample_s: float) -> dict[str, str]:
    readers: dict[str, Callable[[], str | None]] = {
        "operating system": lambda: read_os_release(host).pretty,
        "kernel parameters": lambda: read_kernel_parameters(host),
        "SMT": lambda: read_smt(host),
        "energy preference": lambda: ", ".join(read_energy_preferences(host)) or None,
        "swap": lambda: f"{read_memory(host).get('SwapTotal', 0) / 2**30:.1f} GiB",
        "transparent huge pages": lambda: read_huge_pages(host),
        "thermal throttling": lambda: _text(read_throttle_count(host), "{} times since boot"),
        "load average": lambda: _text(read_load(host), "{:.2f}"),
        "pressure": lambda: ", ".join(f"{n} {v:.1f} %" for n, v in read_pressure(host).items()) or None,
        BUSY: lambda: render_busy(read_busy(host, sample_s)) or NOBODY,
        "PostgreSQL servers running": lambda: str(len(read_servers(host))),
    }
    found = {name: _told(reader) for name, reader in readers.items()}
    found.update(read_sysctls(host))
    found.update({f"version of {name}": version for name, version in read_tools(host).items()})
    return {name: text for name, text in found.items() if text is not None}


def _text(value: float | None, form: str) -> str | None:
    return None if value is None else form.format(value)


def _told(reader: Callable[[], str | None]) -> str | None:
    try:
        return reader()
    except (ValueError, KeyError, IndexError) as error:  # a parser met something new; the trial is not worse for it
        return f"not understood: {error}"


def machine_id(host: Host) -> str:
    """The same for every name and every program by which one machine is reached."""
    return read_machine_id(host, read_cpu(host), read_memory(host).get("MemTotal", 0))


def read_machine_id(host: Host, cpu: Cpu | None, memory_bytes: int) -> str:
    """Tells whether two results come from the same machine, without telling which one it is.

    From /etc/machine-id, else the mainboard's UUID, else from what does not change at a boot.
    """
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id", "/sys/class/dmi/id/product_uuid"):
        text = read_file(host, path)
        if text and text != "uninitialized":
            return _render_machine_id(text)
    name = read_file(host, "/proc/sys/kernel/hostname") or ""
    parts = (name, cpu.model if cpu else "", str(cpu.count if cpu else 0), str(memory_bytes >> 27))
    return _render_machine_id("|".join(parts))


def _render_machine_id(secret: str) -> str:
    """A hash for this application: machine-id(5) asks not to show the id itself."""
    return hashlib.sha256(f"pgstrata:{secret}".encode()).hexdigest()[:16]
