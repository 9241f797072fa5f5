"""Pressure stall information: the share of time in which something waited (Linux 4.20 and later)."""

from __future__ import annotations

from pgstrata.host.facts.source import read_file
from pgstrata.host.protocol import Host

RESOURCES = ("cpu", "io", "memory")


def parse_pressure(text: str) -> dict[str, dict[str, float]]:
    """By kind (`some`, `full`): avg10, avg60, avg300 in percent, total in microseconds."""
    return {
        words[0]: {key: float(value) for key, _, value in (word.partition("=") for word in words[1:])}
        for words in (line.split() for line in text.splitlines())
        if words
    }


def read_pressure(host: Host) -> dict[str, float]:
    """Percent of the last ten seconds in which something waited for cpu, io, memory; empty without PSI."""
    found = {name: read_file(host, f"/proc/pressure/{name}") for name in RESOURCES}
    return {name: parse_pressure(text)["some"]["avg10"] for name, text in found.items() if text}
