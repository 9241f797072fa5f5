"""What is mounted where: findmnt."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pgstrata.errors import parser_of
from pgstrata.host.facts.source import read_output
from pgstrata.host.protocol import Host

COLUMNS = "TARGET,SOURCE,FSTYPE,OPTIONS"


@dataclass(frozen=True)
class Mount:
    target: str
    source: str
    """As findmnt gives it; a subvolume or bind mount in brackets behind the device is cut off."""
    filesystem: str
    options: tuple[str, ...]


@parser_of("findmnt")
def parse_findmnt(text: str) -> tuple[Mount, ...]:
    """From `findmnt -J -o COLUMNS`, parents before children."""
    found: list[Mount] = []

    def walk(entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            source = (entry["source"] or "").partition("[")[0]
            found.append(Mount(entry["target"], source, entry["fstype"], tuple((entry["options"] or "").split(","))))
            walk(entry.get("children", []))

    walk(json.loads(text)["filesystems"])
    return tuple(found)


def read_mount_of(host: Host, path: str) -> Mount | None:
    """The mount that holds a path, or will hold it once it is made."""
    while host.status(path) is None and path not in ("/", ""):
        path = path.rstrip("/").rpartition("/")[0] or "/"
    text = read_output(host, "findmnt", "-J", "-o", COLUMNS, "-T", path)
    return parse_findmnt(text)[-1] if text else None
