"""Conditions that must hold before a campaign may start: devices, space, memory, capabilities. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType

from pgstrata.errors import PreflightError
from pgstrata.host.capabilities import (
    FIRST,
    LAST,
    QUEUE_SETTINGS,
    WRITABLE,
    Capability,
    Missing,
    lacking_of,
    refused_write,
)
from pgstrata.host.facts.system import parse_meminfo
from pgstrata.host.protocol import Host
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack import network, sizing
from pgstrata.stack.disks import allow_or_list
from pgstrata.stack.kind import DEVICES, FILESYSTEMS, LAYERS, LayerKind
from pgstrata.stack.sizing import Wanted, require_free, require_memory, require_size
from pgstrata.stack.tuning import setting
from pgstrata.stack.tuning.kernel import TRANSPARENT_HUGEPAGE, sysctl_path
from pgstrata.stack.tuning.setting import read_setting, refuse_held


@dataclass(frozen=True)
class Unsupported:
    """A stack that this host cannot build, what is missing, and how to get it."""

    stack: str
    reason: str
    hints: tuple[str, ...]

    @property
    def hint(self) -> str:
        """All of them in one line."""
        return render_hints(self.hints)


def render_hints(hints: Iterable[str]) -> str:
    """Each once: one that several need stands behind the last of them, as it begins with `or`."""
    return "; ".join(reversed(dict.fromkeys(reversed([hint for hint in hints if hint]))))


@dataclass(frozen=True)
class Preflight:
    """The outcome for a campaign that may start."""

    unsupported: tuple[Unsupported, ...]
    loop_size_bytes: int
    scratch_bytes: int
    """The most that loop files and golden copies will take in the scratch folder."""
    free_bytes: int


def check_campaign(
    host: Host,
    campaign: Campaign,
    *,
    scratch: str,
    server_user: str | None = None,
    loaded_bytes: int | None = None,
    unserved: Mapping[str, Unsupported] = MappingProxyType({}),
) -> Preflight:
    """Check that a campaign can run on a host; PreflightError when it must not start at all.

    A stack that the host cannot build is only left out (`unsupported`). `server_user` must reach existing directories.
    `loaded_bytes` is the size of the user's own database if one is loaded instead of pgbench's. `unserved` contains the
    stacks known to lack their server.
    """
    unsupported = tuple(_unsupported(host, campaign.stacks, unserved))
    left_out = {u.stack for u in unsupported}
    stacks = tuple(s for s in campaign.stacks if s.name not in left_out)
    loop_bytes = sizing.loop_size_bytes(campaign, loaded_bytes)
    if not stacks:
        space = host.space(existing_parent(host, scratch))
        return Preflight(unsupported, loop_bytes, 0, space.free_bytes)
    possible = campaign.model_copy(update={"stacks": stacks})
    for stack in stacks:
        roles = sizing.bytes_by_role(possible, stack, sizing.content_of(possible, stack, loaded_bytes))
        for role, volume in stack.volumes.items():
            share = sizing.room_share(possible) if volume.needs_device else 1.0
            wanted = Wanted(stack.name, int(roles[role] / share), server_user, alike_bytes(stack, volume, roles))
            FILESYSTEMS[volume.fs.kind].require_room(host, volume.fs, wanted)
            if volume.needs_device:
                _check_devices(host, volume, wanted, campaign.erase)
        _check_memory(host, stack, roles)
        _check_overcommit(host, stack)
        _check_held(host, stack)
    needed = sizing.scratch_bytes(possible, loop_bytes, loaded_bytes)
    free = _check_scratch(host, scratch, needed)
    return Preflight(unsupported, loop_bytes, needed, free)


def alike_bytes(stack: Stack, volume: Volume, roles: Mapping[str, int]) -> int:
    """Return the bytes of all volumes of a stack with the same kind of filesystem."""
    return sum(roles[role] for role, other in stack.volumes.items() if other.fs.kind == volume.fs.kind)


def _unsupported(host: Host, stacks: Sequence[Stack], unserved: Mapping[str, Unsupported]) -> Iterator[Unsupported]:
    """Yield everything that each stack lacks, on the host and of its server, as one entry."""
    found = {one.stack: one for one in unsupported_on(host, stacks)}
    for stack in stacks:
        lacking = [u for u in (found.get(stack.name), unserved.get(stack.name)) if u is not None]
        if lacking:
            yield Unsupported(
                stack.name, "; ".join(u.reason for u in lacking), tuple(h for u in lacking for h in u.hints)
            )


def unsupported_on(host: Host, stacks: Sequence[Stack]) -> tuple[Unsupported, ...]:
    """Return the stacks that a host cannot build, each with everything missing at once."""
    needs = {stack.name: required_for(stack) for stack in stacks}
    lacking = {one.name: one for one in missing(host, (name for names in needs.values() for name in names))}
    setting_problem = cache(partial(_setting_problem, host))
    found = []
    for stack in stacks:
        missed = [lacking[name] for name in needs[stack.name] if name in lacking]
        settings = [setting_problem(name, path) for name, path in _host_settings(stack).items()]
        problems = [*((one.text, one.install) for one in missed), *filter(None, settings), *_filesystems(host, stack)]
        if problems:
            reasons, hints = zip(*problems, strict=True)
            further = (hint for one in missed for hint in one.further)
            found.append(Unsupported(stack.name, "; ".join(reasons), (*hints, *further)))
    return tuple(found)


def _host_settings(stack: Stack) -> dict[str, str]:
    """Return the file of each setting of the whole host that a stack changes."""
    huge = {} if stack.kernel.transparent_hugepage is None else {"transparent_hugepage": TRANSPARENT_HUGEPAGE}
    return {**{name: sysctl_path(name) for name in stack.kernel.sysctl}, **huge}


def _setting_problem(host: Host, name: str, path: str) -> tuple[str, str] | None:
    """Return why a setting cannot be changed, and a hint."""
    if host.status(path) is None:
        return f"the kernel has no setting {name}", f"remove {name} from the stack's kernel settings"
    refused = refused_write(host, path)
    return (f"{name} cannot be set: {path}: {refused}", WRITABLE) if refused else None


def _filesystems(host: Host, stack: Stack) -> Iterator[tuple[str, str]]:
    """Yield the properties of filesystems that the kernel does not know, each with a hint."""
    for volume in stack.volumes.values():
        fs = volume.fs.stores
        if problem := FILESYSTEMS[fs.kind].kernel_problem(host, fs):
            yield problem, "take it out of the stack, or boot a newer kernel"


def existing_parent(host: Host, path: str) -> str:
    """The path itself, or the nearest folder above it that is there already."""
    while host.status(path) is None and path not in ("", "/"):
        path = path.rstrip("/").rpartition("/")[0]
    return path or "/"


def _check_scratch(host: Host, scratch: str, needed_bytes: int) -> int:
    space = host.space(existing_parent(host, scratch))
    require_free(host, scratch, needed_bytes, space.free_bytes, space.total_bytes)
    return space.free_bytes


def _check_devices(host: Host, volume: Volume, wanted: Wanted, erase: tuple[str, ...]) -> None:
    """Every device may be overwritten, and is large enough."""
    each = sizing.device_bytes(volume, wanted.size_bytes)
    for id_ in volume.device.stable_ids:
        require_size(wanted, id_, allow_or_list(host, id_, erase).size_bytes, each)
    if volume.device.each_bytes is not None:
        require_size(wanted, f"{volume.device.kind} device", volume.device.each_bytes, each)
    for device in volume.own_devices.values():
        for id_ in device.stable_ids:
            allow_or_list(host, id_, erase)


def _check_memory(host: Host, stack: Stack, roles: Mapping[str, int]) -> None:
    """Check that what the disks in memory of a stack come to hold fits there, all volumes together."""
    in_memory = {role: v for role, v in stack.volumes.items() if v.needs_device and v.device.in_memory}
    needed = sum(sizing.device_bytes(v, roles[role]) * v.device.count for role, v in in_memory.items())
    if in_memory:
        require_memory(host, stack.name, "modelled disks", needed)


def _check_held(host: Host, stack: Stack) -> None:
    """No other run holds the settings of the whole host at other values."""
    wanted = [(sysctl_path(name), value) for name, value in stack.kernel.sysctl.items()]
    if stack.kernel.transparent_hugepage is not None:
        wanted.append((TRANSPARENT_HUGEPAGE, stack.kernel.transparent_hugepage))
    if wanted:
        refuse_held(host, wanted)


def _check_overcommit(host: Host, stack: Stack) -> None:
    """vm.overcommit_memory=2 would leave room for what is committed now, and the server."""
    sysctl = stack.kernel.sysctl
    if sysctl.get("vm.overcommit_memory") != setting.STRICT:
        return
    meminfo = parse_meminfo(host.read_text("/proc/meminfo"))
    ratio = sysctl.get("vm.overcommit_ratio") or read_setting(host, "/proc/sys/vm/overcommit_ratio")
    kbytes = sysctl.get("vm.overcommit_kbytes")
    if kbytes is None:  # setting a ratio turns the other off
        ratio_given = "vm.overcommit_ratio" in sysctl
        kbytes = "0" if ratio_given else read_setting(host, "/proc/sys/vm/overcommit_kbytes")
    limit = setting.commit_limit_bytes(meminfo, ratio=int(ratio), kbytes=int(kbytes))
    problem = setting.room_problem(limit, meminfo["Committed_AS"], sizing.shared_buffers_bytes(stack))
    if problem:
        raise PreflightError(
            f"vm.overcommit_memory=2 of stack {stack.name} is refused on {host.name}: {problem}", hint=setting.HINT
        )


def known_capabilities() -> dict[str, Capability]:
    """Return all capabilities by name, in report order."""
    kinds: tuple[LayerKind, ...] = (*DEVICES.values(), *LAYERS.values(), *FILESYSTEMS.values())
    of_kinds = (capability for kind in kinds for capability in kind.capabilities)
    return {capability.name: capability for capability in (*FIRST, *of_kinds, *network.CAPABILITIES, *LAST)}


def missing(host: Host, names: Iterable[str]) -> tuple[Missing, ...]:
    """Return the named capabilities that the host lacks."""
    known = known_capabilities()
    return lacking_of(host, [known[name] for name in dict.fromkeys(names)])


def required_for(stack: Stack) -> tuple[str, ...]:
    """Return the capabilities needed to build a stack, in build order. Pure."""
    names: list[str] = [*network.capabilities_of(stack)]
    for volume in stack.volumes.values():
        names += _volume_needs(volume)
    kernel = stack.kernel
    queue = kernel.queue != type(kernel.queue)()
    if kernel.sysctl or kernel.transparent_hugepage or queue:
        names.insert(0, "root")
    if queue:
        names.append(QUEUE_SETTINGS)
    return tuple(dict.fromkeys(names))


def _volume_needs(volume: Volume) -> list[str]:
    if not volume.fs.capabilities:
        return []
    devices = [device.capability for device in volume.devices]
    layers = [name for layer in volume.layers for name in layer.capabilities]
    return ["root", *devices, *layers, *volume.fs.capabilities]
