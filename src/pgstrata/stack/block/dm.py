"""Targets of the device mapper as the kernel has them, from the output of `dmsetup table` and `dmsetup status`."""

from __future__ import annotations

from dataclasses import dataclass

from pgstrata.errors import parser_of
from pgstrata.host.protocol import Host, command


@dataclass(frozen=True)
class Target:
    """One target of a mapped device: its kind, and its arguments or its status."""

    kind: str
    words: tuple[str, ...]

    def after(self, word: str) -> str:
        """Return the argument behind `word`; `missing` without it."""
        return self.words[self.words.index(word) + 1] if word in self.words[:-1] else "missing"


@parser_of("dmsetup")
def parse_target(text: str) -> Target:
    """Parse the only line of a device with one target: `START LENGTH KIND ARGUMENTS`; ValueError for anything else."""
    (line,) = text.splitlines()
    start, length, kind, *words = line.split()
    if int(start) != 0 or int(length) <= 0:
        raise ValueError(f"not the only target of a device: {line!r}")
    return Target(kind, tuple(words))


def read_target(host: Host, what: str, name: str) -> Target:
    """Read `table` or `status` of the mapped device called `name`; without keys, which dmsetup prints as zeroes."""
    return parse_target(host.run(command("dmsetup", what, name)).stdout)


def mapped_name(group: str, volume: str) -> str:
    """Return the device mapper's name of a logical volume, in which LVM doubles dashes."""
    return "-".join(part.replace("-", "--") for part in (group, volume))
