"""An identity for the machine: says whether two results come from the same one, without telling which it is."""

from __future__ import annotations

import hashlib

from pgstrata.host.facts.cpu import Cpu
from pgstrata.host.facts.source import read_file
from pgstrata.host.protocol import Host


def render_machine_id(secret: str) -> str:
    """A hash for this application: machine-id(5) asks not to show the id itself."""
    return hashlib.sha256(f"pgstrata:{secret}".encode()).hexdigest()[:16]


def read_machine_id(host: Host, cpu: Cpu | None, memory_bytes: int) -> str:
    """From /etc/machine-id, else the mainboard's UUID, else from what does not change at a boot."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id", "/sys/class/dmi/id/product_uuid"):
        text = read_file(host, path)
        if text and text != "uninitialized":
            return render_machine_id(text)
    name = read_file(host, "/proc/sys/kernel/hostname") or ""
    parts = (name, cpu.model if cpu else "", str(cpu.count if cpu else 0), str(memory_bytes >> 27))
    return render_machine_id("|".join(parts))
