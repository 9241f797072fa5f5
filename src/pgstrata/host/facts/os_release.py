"""The distribution: /etc/os-release."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

from pgstrata.host.facts.source import read_file
from pgstrata.host.protocol import Host

Family = Literal["debian", "ubuntu", "fedora", "rhel", "suse", "unknown"]


@dataclass(frozen=True)
class OsRelease:
    """`family` decides how packages are called and installed."""

    id: str
    version: str
    pretty: str
    family: Family


def parse_os_release(text: str) -> OsRelease:
    """From os-release(5): shell-like assignments."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        if "=" in line and not line.lstrip().startswith("#"):
            key, _, value = line.partition("=")
            values[key.strip()] = " ".join(shlex.split(value))
    id_ = values.get("ID", "linux")
    return OsRelease(
        id_, values.get("VERSION_ID", ""), values.get("PRETTY_NAME", id_), _family(id_, values.get("ID_LIKE", ""))
    )


def _family(id_: str, like: str) -> Family:
    known: dict[str, Family] = {
        "debian": "debian",
        "ubuntu": "ubuntu",
        "fedora": "fedora",
        "rhel": "rhel",
        "centos": "rhel",
        "suse": "suse",
        "opensuse": "suse",
        "sles": "suse",
    }
    # ID_LIKE goes from the closest relative to the farthest: Rocky says "rhel centos fedora".
    for name in (id_, *like.split()):
        if name in known:
            return known[name]
    return "suse" if id_.startswith("opensuse") else "unknown"


def read_os_release(host: Host) -> OsRelease:
    text = read_file(host, "/etc/os-release") or read_file(host, "/usr/lib/os-release")
    return parse_os_release(text or "")
