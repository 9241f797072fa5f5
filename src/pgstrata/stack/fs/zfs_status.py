"""Parses output of `zpool` and `zfs`: scripted output (`-Hp`) if available, otherwise the tree of `zpool status`.

`zpool status --json` came with OpenZFS 2.3; servers run older ones. Tested with 2.1.11. Also finds what is left of zfs
on a disk: it partitions whole disks, and dozens of labels survive the destruction of a pool.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pgstrata.errors import parser_of
from pgstrata.host.protocol import Host, command
from pgstrata.stack.place import list_partitions
from pgstrata.stack.safety import find_again
from pgstrata.stack.undo import Undo
from pgstrata.stack.undoing import UNMOUNT_TIMEOUT_S, ask_tool, blank_member, require_ours

ARCSTATS = "/proc/spl/kstat/zfs/arcstats"
ROOT = "data"
_SECTIONS = ("special", "logs", "cache", "spares", "dedup")
_INDENT = 2


@dataclass(frozen=True)
class Vdev:
    """A top-level vdev of a pool: a single device (`disk`) or a group such as `mirror` or `raidz1`."""

    section: str
    kind: str
    devices: tuple[str, ...]
    states: tuple[str, ...]

    @property
    def shown(self) -> str:
        return "disk" if self.kind == "disk" else f"{self.kind}({len(self.devices)})"


@dataclass(frozen=True)
class _Line:
    depth: int
    name: str
    state: str


@parser_of("zpool")
def parse_zpool_status(text: str) -> tuple[Vdev, ...]:
    """Parse the vdevs in the `config:` part of `zpool status -P POOL`, a tree drawn by indentation."""
    found: list[Vdev] = []
    section = ROOT
    for line in _config_lines(text):
        if line.depth == 0:
            section = line.name if line.name in _SECTIONS else ROOT
        elif line.depth == 1 and line.name.startswith("/"):
            found.append(Vdev(section, "disk", (line.name,), (line.state,)))
        elif line.depth == 1:
            found.append(Vdev(section, line.name.rsplit("-", 1)[0], (), ()))
        elif found and line.depth == 2:
            last = found[-1]
            found[-1] = Vdev(section, last.kind, (*last.devices, line.name), (*last.states, line.state))
        else:
            raise ValueError(f"not a vdev of zpool status: {line.name!r}")
    return tuple(found)


def _config_lines(text: str) -> Iterable[_Line]:
    """Return the lines between `config:` and `errors:`, without the headline."""
    _, found, config = text.partition("config:\n")
    if not found:
        raise ValueError("zpool status printed no config")
    for line in config.partition("errors:")[0].splitlines():
        body = line.removeprefix("\t")
        words = body.split()
        if not words or words[0] == "NAME":
            continue
        depth = (len(body) - len(body.lstrip(" "))) // _INDENT
        yield _Line(depth, words[0], words[1] if len(words) > 1 else "")


def render_layout(vdevs: Iterable[Vdev], section: str = ROOT) -> str:
    """Render `mirror(2)+mirror(2)`; `none` if the pool has no such vdev."""
    return "+".join(v.shown for v in vdevs if v.section == section) or "none"


def parse_properties(text: str) -> dict[str, str]:
    """Parse `zfs get -Hp -o property,value` or `zpool get -Hp -o property,value`: a tab between name and value."""
    found = {}
    for line in text.splitlines():
        name, tab, value = line.partition("\t")
        if not tab:
            raise ValueError(f"not a property: {line!r}")
        found[name] = value
    return found


def parse_iostat(text: str) -> dict[str, int]:
    """Parse `zpool iostat -Hp POOL`: means over the time since the pool was imported."""
    fields = text.split()
    if len(fields) != 7:
        raise ValueError(f"not a line of zpool iostat: {text!r}")
    names = ("reads_per_s", "writes_per_s", "read_bytes_per_s", "written_bytes_per_s")
    return dict(zip(names, map(int, fields[3:]), strict=True))


def parse_kstat(text: str) -> dict[str, int]:
    """Parse a kstat file below /proc/spl/kstat: a headline of numbers, `name type data`, then one row per counter."""
    rows = [line.split() for line in text.splitlines()[2:]]
    return {row[0]: int(row[2]) for row in rows if len(row) == 3}


def read_arcstats(host: Host) -> dict[str, int]:
    """Read the counters of the ARC; `c_max` and `c_min` are the limits in effect."""
    return parse_kstat(host.read_text(ARCSTATS))


ZFS_MEMBER = "zfs_member"
PARTITION_TYPES = ("6a898cc3-1dd2-11b2-99a6-080020736631", "6a945a3b-1dd2-11b2-99a6-080020736631")
"""GPT types of the data partition made by zpool and of the small reserved one behind it."""


def wipe_member(host: Host, node: str, pool: str) -> bool:
    """Wipe a device that was a member of `pool`, with zpool's partitions; False when it was not a member.

    A disk with zfs partitions but no label was being made a member when its trial was killed.
    """
    partitions = [f"/dev/{name}" for name in list_partitions(host, node)]
    probed = [probe(host, n) for n in (node, *partitions)]
    whole_is_ours = _is_member(probed[0], pool)
    ours = partitions and all(_is_member(p, pool) or _is_unlabelled(p) for p in probed[1:])
    if not whole_is_ours and not ours:
        return False
    # in this order: with the partition table gone, the partitions are gone too
    host.run(command("wipefs", "--all", partitions, node))
    return True


def probe(host: Host, node: str) -> dict[str, str]:
    """Return the values that `blkid --probe` prints for a node and its partition entry. Given several nodes, it stops
    at an empty one."""
    printed = host.run(command("blkid", "--probe", ["--output", "export"], node), check=False)
    return dict(line.split("=", 1) for line in printed.stdout.splitlines() if "=" in line)


def _is_member(found: dict[str, str], pool: str) -> bool:
    return found.get("TYPE") == ZFS_MEMBER and found.get("LABEL") == pool


def _is_unlabelled(found: dict[str, str]) -> bool:
    return "TYPE" not in found and found.get("PART_ENTRY_TYPE") in PARTITION_TYPES


class DestroyPool(Undo):
    """Destroy a zfs pool, and wipe its labels and partitions from the real `devices` (ids)."""

    kind: Literal["destroy_pool"] = "destroy_pool"
    pool: str
    devices: tuple[str, ...] = ()


def destroy_pool(host: Host, undo: DestroyPool) -> str:
    """Destroy the pool, and wipe its remains from real devices."""
    require_ours(undo.pool)
    done = []
    if ask_tool(host, "zpool", "list", "-H", ["-o", "name"], undo.pool).exit_code == 0:
        host.run(command("zpool", "destroy", "-f", undo.pool, timeout_s=UNMOUNT_TIMEOUT_S))
        done.append(f"destroyed pool {undo.pool}")
    for id_ in undo.devices:
        node = find_again(host, id_)
        if node and wipe_member(host, node, undo.pool):
            blank_member(host, node)
            done.append(f"wiped the zfs labels of {id_}")
    return "; ".join(done)
