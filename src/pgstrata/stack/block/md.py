"""Linux software RAID (md). The actual state is read from /sys/block/mdN/md, not derived from the mdadm call.

Files there: https://docs.kernel.org/admin-guide/md.html. Tested with mdadm 4.2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pgstrata.errors import TrialError
from pgstrata.host.capabilities import Capability, Need, everywhere, kernel_has, program
from pgstrata.host.facts.tools import raid_available
from pgstrata.host.protocol import Host, command
from pgstrata.spec.layers.md import Md
from pgstrata.stack.kind import Below, BlockLayerKind, Geometry, PlannedLayer
from pgstrata.stack.place import Place
from pgstrata.stack.step import (
    Argument,
    Attested,
    FreePath,
    Ref,
    Stage,
    Step,
    compare_or_record,
    planned,
    resolve,
    told,
)
from pgstrata.stack.undo import Undo
from pgstrata.stack.undoing import blank_member, list_members, require_ours

DEFAULT_CHUNK_BYTES = 512 * 1024
"""mdadm's default (mdadm(8) --chunk), passed explicitly so that filesystems can be aligned to it."""
RESYNC_TIMEOUT_S = 6 * 3600.0
"""A first resync reads and writes every sector: a terabyte at 100 MB/s takes three hours."""
CREATE_TIMEOUT_S = 120.0
LONGEST_NAME = 32
"""The superblock has 32 bytes for the name (md_p.h: set_name)."""

_DATA_DISKS = {"raid0": lambda n: n, "raid10": lambda n: n // 2, "raid5": lambda n: n - 1, "raid6": lambda n: n - 2}

LINK_WAIT_S = 60.0
PAUSE_S = 0.5
SETTLED_LOOKS, SETTLED_PAUSE_S = 30, 1.0
"""The kernel may start a resync some seconds after the array appears."""


def array_name(place: Place) -> str:
    """Return a name that fits into the superblock and is unique to trial and role."""
    return f"pgstrata-{hashlib.sha256(place.name.encode()).hexdigest()[:16]}"


def plan_md(layer: Md, below: Below, place: Place) -> PlannedLayer:
    """Plan one array over all nodes below; binds `ROLE.md`."""
    node = Ref(f"{place.role}.md")
    array = f"/dev/md/{array_name(place)}"
    chunk_bytes = None if layer.level == "raid1" else layer.chunk or DEFAULT_CHUNK_BYTES
    geometry = None
    if chunk_bytes is not None:
        geometry = Geometry(chunk_bytes, _DATA_DISKS[layer.level](len(below.nodes)))
    steps = (
        _plan_create(layer, chunk_bytes, below, array, place),
        *_plan_settle(layer, below, array, place),
        _plan_find(array, node),
    )
    above = Below(nodes=(node,), media=below.media, geometry=geometry)
    check = MdCheck(place.role, node, layer, chunk_bytes, below.nodes)
    return PlannedLayer(steps, above, (check,), _notes(layer), stages=(_plan_again(layer, below, array, node),))


def _plan_create(layer: Md, chunk_bytes: int | None, below: Below, array: str, place: Place) -> Step:
    missing = layer.state != "clean"
    members: list[Argument] = [*below.nodes[:-1], "missing"] if missing else list(below.nodes)
    name = array.rsplit("/", 1)[-1]
    options = ["--name", name, "--homehost", "any", "--run", "--metadata", "1.2"]
    options += ["--level", layer.level, "--raid-devices", str(len(below.nodes))]
    options += ["--chunk", str(chunk_bytes // 1024)] if chunk_bytes else []
    options += ["--bitmap", layer.bitmap] if layer.level != "raid0" else []
    options += ["--assume-clean"] if layer.assume_clean and layer.level != "raid0" else []
    return Step(
        name=f"array {name} for {place.role}",
        commands=(planned("mdadm", "--create", array, options, members, timeout_s=CREATE_TIMEOUT_S),),
        undo=(StopMd(array=array, devices=below.ids),),
        requires=(FreePath(array, "array"),),
        awaits=(Linked(array),),
    )


def _plan_settle(layer: Md, below: Below, array: str, place: Place) -> tuple[Step, ...]:
    """Wait for the first resync; a rebuild is started after it and left running."""
    steps = []
    if layer.level != "raid0" and not layer.assume_clean:
        settled = Settled(array, missing=0 if layer.state == "clean" else 1)
        steps.append(Step(name=f"wait for the resync for {place.role}", commands=(), awaits=(settled,)))
    # what an earlier array of the same layout carried shows through again
    steps.append(Step(name=f"wipe the array for {place.role}", commands=(planned("wipefs", "--all", array),)))
    if layer.state == "rebuilding":
        add = planned("mdadm", "--manage", array, "--add", below.nodes[-1])
        steps.append(Step(name=f"begin the rebuild for {place.role}", commands=(add,)))
    return tuple(steps)


@dataclass(frozen=True)
class Linked:
    """Waits for the link to an array: udev creates it, and mdadm does not wait long enough on a busy machine."""

    array: str

    @property
    def told(self) -> str:
        return f"wait for {self.array}"

    def require(self, host: Host, bindings: Mapping[str, str]) -> None:
        for _ in range(round(LINK_WAIT_S / PAUSE_S)):
            if host.status(self.array) is not None:
                return
            host.pause(PAUSE_S)
        raise TrialError(f"there is no link {self.array} to the array on {host.name}", hint="udevadm settle")


@dataclass(frozen=True)
class Settled:
    """Waits until no rebuild of an array runs and at most `missing` members are missing.

    mdadm --wait returns immediately if the kernel has not started yet (raid5 first starts with its last member
    missing). The state is therefore checked, not the exit code.
    """

    array: str
    missing: int

    @property
    def told(self) -> str:
        return f"wait until nothing of {self.array} is being rebuilt"

    def require(self, host: Host, bindings: Mapping[str, str]) -> None:
        node = host.run(command("readlink", "--canonicalize-existing", self.array)).stdout.strip()
        folder = f"/sys/class/block/{node.rsplit('/', 1)[-1]}/md"
        degraded, idle = 0, 0
        while idle < SETTLED_LOOKS:
            host.run(command("mdadm", "--wait", self.array, timeout_s=RESYNC_TIMEOUT_S), check=False)
            state = [host.read_text(f"{folder}/{name}").strip() for name in ("sync_action", "resync_start")]
            if state == ["idle", "none"]:
                degraded = int(host.read_text(f"{folder}/degraded"))
                if degraded <= self.missing:
                    return
                idle += 1
            host.pause(SETTLED_PAUSE_S)
        raise TrialError(
            f"array {self.array} on {host.name} has {degraded} members missing, and nothing is being rebuilt",
            hint=f"mdadm --detail {self.array}",
        )


def _plan_find(array: str, node: Ref) -> Step:
    find = planned("readlink", "--canonicalize-existing", array)
    return Step(name=f"find array {node.name}", commands=(find,), binds=node.name)


def _plan_again(layer: Md, below: Below, array: str, node: Ref) -> Stage:
    """Plan the restart from the array's own members only. `--run` refuses an array with parity that lacked a member and
    was being written to at the power cut; it is then forced to start, as an administrator would do."""
    members = below.nodes[:-1] if layer.state == "degraded" else below.nodes
    start = planned("mdadm", "--assemble", "--run", array, members, timeout_s=CREATE_TIMEOUT_S)
    stop = planned("mdadm", "--stop", array)
    wait = planned("udevadm", "settle", f"--exit-if-exists={array}", f"--timeout={LINK_WAIT_S:.0f}")
    return Stage(
        name=f"assemble array {array.rsplit('/', 1)[-1]}",
        up=(start, wait, *_plan_find(array, node).commands),
        down=(stop,),
        mend=(
            planned("mdadm", "--assemble", "--run", "--force", array, members, timeout_s=CREATE_TIMEOUT_S),
            stop,
        ),
        binds=node.name,
        alone=True,
        undo=(StopMd(array=array),),
    )


def _notes(layer: Md) -> tuple[str, ...]:
    if layer.state == "rebuilding":
        return ("the array rebuilds while it is measured; how fast is up to dev.raid.speed_limit_*",)
    if layer.assume_clean and layer.level in ("raid5", "raid6"):
        return ("assume_clean: parity was never computed, so a check would find mismatches",)
    return ()


@dataclass(frozen=True)
class ArrayState:
    """Content of /sys/block/mdN/md; a file that this level does not have is empty."""

    level: str
    chunk_bytes: int
    raid_disks: int
    degraded: int
    sync_action: str
    array_state: str
    bitmap: str
    members: tuple[str, ...]


def parse_array(files: Mapping[str, str], members: tuple[str, ...]) -> ArrayState:
    """Parse file contents by name; ValueError when a number is malformed."""
    value = {name: text.strip() for name, text in files.items()}
    return ArrayState(
        level=value["level"],
        chunk_bytes=int(value["chunk_size"]),
        raid_disks=int(value["raid_disks"].split()[0]),
        degraded=int(value["degraded"] or 0),
        sync_action=value["sync_action"] or "idle",
        array_state=value["array_state"],
        bitmap=value["bitmap/location"] or "none",
        members=members,
    )


_FILES = ("level", "chunk_size", "raid_disks", "degraded", "sync_action", "array_state", "bitmap/location")


def read_array(host: Host, node: str) -> ArrayState:
    """Read the state of an array by its node, /dev/mdN."""
    folder = f"/sys/class/block/{node.rsplit('/', 1)[-1]}"
    files = {name: _read(host, f"{folder}/md/{name}") for name in _FILES}
    members = tuple(f"/dev/{name}" for name in host.list_directory(f"{folder}/slaves"))
    return parse_array(files, members)


def _read(host: Host, path: str) -> str:
    try:
        return host.read_text(path)
    except FileNotFoundError:
        return ""


def parse_array_name(text: str) -> str:
    """Return the array's name without its home host, from `mdadm --detail --export` or `mdadm --examine --export`;
    empty when it has none."""
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return fields.get("MD_NAME", "").rsplit(":", 1)[-1]


def find_arrays(host: Host, name: str) -> tuple[str, ...]:
    """Find the nodes of running arrays by name, whatever node udev or a reboot assigned."""
    nodes = [f"/dev/{entry}" for entry in host.list_directory("/sys/class/block") if entry.startswith("md")]
    found = []
    for node in nodes:
        detail = host.run(command("mdadm", "--detail", "--export", node), check=False)
        if parse_array_name(detail.stdout) == name:
            found.append(node)
    return tuple(found)


@dataclass(frozen=True)
class MdCheck:
    """Checks level, members and state of the array, and that it does not synchronise unless it should."""

    role: str
    node: Ref
    layer: Md
    chunk_bytes: int | None
    nodes: tuple[Argument, ...]

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        node = self.node.resolve(bindings)
        if host.status(f"/sys/class/block/{node.rsplit('/', 1)[-1]}/md") is None:
            return (Attested(f"{self.role} md array", node, "missing"),)
        return self.compare(read_array(host, node), tuple(resolve(n, bindings) for n in self.nodes))

    def compare(self, found: ArrayState, nodes: tuple[str, ...]) -> tuple[Attested, ...]:
        """Compare configured with actual values. After assume_clean, `idle` proves that no resync started anyway."""
        layer = self.layer
        members = nodes[:-1] if layer.state == "degraded" else nodes
        bitmap = "none" if found.bitmap == "none" else "internal"
        rows = (
            compare_or_record("level", layer.level, found.level),
            compare_or_record("chunk_bytes", self.chunk_bytes, found.chunk_bytes),
            compare_or_record("raid_disks", len(nodes), found.raid_disks),
            compare_or_record("members", " ".join(sorted(members)), " ".join(sorted(found.members))),
            compare_or_record("degraded", 0 if layer.state == "clean" else 1, found.degraded),
            compare_or_record("sync_action", "recover" if layer.state == "rebuilding" else "idle", found.sync_action),
            compare_or_record("bitmap", layer.bitmap if layer.level != "raid0" else "none", bitmap),
            told("array_state", found.array_state),
        )
        return tuple(Attested(f"{self.role} md {r.what}", r.expected, r.actual) for r in rows)


class StopMd(Undo):
    """Stop the md array called `array` and wipe its superblocks, also from the real `devices` (ids)."""

    kind: Literal["stop_md"] = "stop_md"
    array: str
    devices: tuple[str, ...] = ()


def _stop_md(host: Host, undo: StopMd) -> str:
    require_ours(undo.array)
    name, done = undo.array.rsplit("/", 1)[-1], []
    for node in find_arrays(host, name):
        host.run(command("mdadm", "--stop", node))
        done.append(f"stopped {undo.array} ({node})")
    for node, _ in list_members(host, undo.devices, "linux_raid_member"):
        member_of = parse_array_name(host.run(command("mdadm", "--examine", "--export", node), check=False).stdout)
        if member_of == name:
            host.run(command("mdadm", "--zero-superblock", node))
            blank_member(host, node)
            done.append(f"wiped the md superblock of {node}")
        else:
            done.append(f"left {node} alone: it has become a member of array {member_of or 'unknown'}")
    return "; ".join(done)


_MDADM = program("mdadm", everywhere("mdadm"))


def _raid(level: str) -> Need:
    return kernel_has(lambda host: raid_available(host, level), f"md {level}")


KIND = BlockLayerKind(
    Md,
    plan_md,
    capabilities=tuple(
        Capability(f"block.md.{level}", f"build md {level}", (_raid(level), _MDADM))
        for level in ("raid0", "raid1", "raid10", "raid456")
    ),
    undos={StopMd: _stop_md},
)
