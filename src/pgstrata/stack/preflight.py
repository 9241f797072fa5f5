"""What must hold before a campaign may start: devices, space, memory, capabilities. Looks, and changes nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pgstrata.errors import PreflightError
from pgstrata.host.capabilities import missing, required_for
from pgstrata.host.facts.kernel import read_kernel_release
from pgstrata.host.facts.memory import parse_meminfo
from pgstrata.host.protocol import Command, Host, command
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.layers.existing import Existing
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.spec.layers.xfs import Xfs
from pgstrata.spec.stack import Stack, Volume
from pgstrata.spec.units import render_size
from pgstrata.stack import sizing
from pgstrata.stack.safety import refuse_or_allow
from pgstrata.stack.tuning import overcommit
from pgstrata.stack.tuning.holding import refuse_held
from pgstrata.stack.tuning.hugepage import TRANSPARENT_HUGEPAGE
from pgstrata.stack.tuning.setting import read_setting
from pgstrata.stack.tuning.sysctl import sysctl_path

LEAST_FREE_SHARE = 0.10
"""A filesystem that is fuller than this slows down, and so would measure itself."""


@dataclass(frozen=True)
class Unsupported:
    """A stack that this host cannot build, what is missing, and how to get it."""

    stack: str
    reason: str
    hint: str


@dataclass(frozen=True)
class Preflight:
    """The outcome for a campaign that may start."""

    unsupported: tuple[Unsupported, ...]
    loop_size_bytes: int
    scratch_bytes: int
    """The most that loop files and golden copies will take in the scratch folder."""
    free_bytes: int


def check_campaign(
    host: Host, campaign: Campaign, *, scratch: str, server_user: str | None = None, loaded_bytes: int | None = None
) -> Preflight:
    """Whether a campaign can run on a host; PreflightError when it must not start at all.

    A stack that the host cannot build is only left out (`unsupported`). `server_user` is who must reach existing
    directories, `loaded_bytes` the size of the user's own database where one is loaded instead of pgbench's.
    """
    unsupported = tuple(u for s in campaign.stacks if (u := _unsupported(host, s)) is not None)
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
            _check_volume(host, stack, volume, int(roles[role] / share), campaign.erase, server_user)
        _check_overcommit(host, stack)
        _check_held(host, stack)
    needed = sizing.scratch_bytes(possible, loop_bytes, loaded_bytes)
    free = _check_scratch(host, scratch, needed)
    return Preflight(unsupported, loop_bytes, needed, free)


def _unsupported(host: Host, stack: Stack) -> Unsupported | None:
    """All that is missing for a stack at once: nobody wants to learn of it piece by piece."""
    lacking = missing(host, required_for(stack))
    reasons = [one.text for one in lacking]
    hints = [one.install for one in lacking]
    for name in stack.kernel.sysctl:
        if host.status(sysctl_path(name)) is None:
            reasons.append(f"the kernel has no setting {name}")
            hints.append(f"remove {name} from the stack's kernel settings")
    for volume in stack.volumes.values():
        problem = _block_size_problem(host, volume)
        if problem:
            reasons.append(problem)
            hints.append("use a block size of at most the page size, or a newer kernel")
    if stack.kernel.transparent_hugepage is not None and host.status(TRANSPARENT_HUGEPAGE) is None:
        reasons.append("the kernel has no transparent huge pages")
        hints.append("remove transparent_hugepage from the stack's kernel settings")
    if not reasons:
        return None
    return Unsupported(stack.name, "; ".join(reasons), "; ".join(dict.fromkeys(hints)))


_BLOCKS_ABOVE_PAGES = {"xfs": (6, 12), "ext4": (6, 19)}
"""The first kernel whose filesystem can have blocks larger than a page."""


def _block_size_problem(host: Host, volume: Volume) -> str:
    fs = volume.fs.stores
    if not isinstance(fs, Ext4 | Xfs) or fs.block_size is None:
        return ""
    page_bytes = int(host.run(command("getconf", "PAGE_SIZE")).stdout)
    if fs.block_size <= page_bytes:
        return ""
    release = read_kernel_release(host) or ""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    first = _BLOCKS_ABOVE_PAGES[fs.kind]
    if numbers is not None and (int(numbers[1]), int(numbers[2])) >= first:
        return ""
    return (
        f"{fs.kind} with blocks of {render_size(fs.block_size)}, larger than a page, needs Linux "
        f"{first[0]}.{first[1]}, this is {release or 'unknown'}"
    )


def existing_parent(host: Host, path: str) -> str:
    """The path itself, or the nearest folder above it that is there already."""
    while host.status(path) is None and path not in ("", "/"):
        path = path.rstrip("/").rpartition("/")[0]
    return path or "/"


def _check_scratch(host: Host, scratch: str, needed_bytes: int) -> int:
    space = host.space(existing_parent(host, scratch))
    _require_free(host, scratch, needed_bytes, space.free_bytes, space.total_bytes)
    return space.free_bytes


def _require_free(host: Host, path: str, needed_bytes: int, free_bytes: int, total_bytes: int) -> None:
    left = free_bytes - needed_bytes
    if left < LEAST_FREE_SHARE * total_bytes:
        raise PreflightError(
            f"too little space in {path} on {host.name}: up to {render_size(needed_bytes)} are needed, "
            f"{render_size(free_bytes)} are free, and {LEAST_FREE_SHARE:.0%} must stay free",
            hint="lower workload.scale, name another scratch folder, or free some space",
        )


def _check_volume(
    host: Host, stack: Stack, volume: Volume, needed_bytes: int, erase: tuple[str, ...], user: str | None
) -> None:
    if isinstance(volume.fs, Existing):
        _check_directory(host, stack, volume.fs.path, needed_bytes, user)
    elif isinstance(volume.fs, Tmpfs):
        _check_memory(host, stack, volume.fs, needed_bytes)
    elif volume.needs_device:
        _check_devices(host, stack, volume, needed_bytes, erase)


def _check_devices(host: Host, stack: Stack, volume: Volume, needed_bytes: int, erase: tuple[str, ...]) -> None:
    """Every device may be overwritten, and is large enough."""
    each = sizing.device_bytes(volume, needed_bytes)
    for id_ in volume.device.stable_ids:
        _require_size(stack, id_, refuse_or_allow(host, id_, erase).size_bytes, each)
    if volume.device.each_bytes is not None:
        _require_size(stack, f"{volume.device.kind} device", volume.device.each_bytes, each)
    for device in volume.fs.own_devices.values():
        for id_ in device.stable_ids:
            refuse_or_allow(host, id_, erase)


def _require_size(stack: Stack, name: str, size_bytes: int, needed_bytes: int) -> None:
    if size_bytes < needed_bytes:
        raise PreflightError(
            f"{name} of stack {stack.name} is too small: it has {render_size(size_bytes)}, "
            f"about {render_size(needed_bytes)} are needed",
            hint="lower workload.scale or max_wal_size, or give it more space",
        )


def _check_directory(host: Host, stack: Stack, path: str, needed_bytes: int, user: str | None) -> None:
    status = host.status(path)
    if status is None or status.kind != "directory":
        raise PreflightError(f"{path} of stack {stack.name} is no directory on {host.name}", hint=f"mkdir {path}")
    access = ("test", "-x", path) if user else ("test", "-w", path)
    if host.run(Command(access, user=user), check=False).exit_code != 0:
        who = f"OS user {user}" if user else "this user"
        raise PreflightError(
            f"{who} cannot reach {path} of stack {stack.name} on {host.name}",
            hint=f"chmod o+x {path} and the folders above it, or name another directory",
        )
    space = host.space(path)
    _require_free(host, path, needed_bytes, space.free_bytes, space.total_bytes)


def _check_memory(host: Host, stack: Stack, fs: Tmpfs, needed_bytes: int) -> None:
    """What lies in tmpfs must fit into the memory that is free, with room for the server."""
    meminfo = parse_meminfo(host.read_text("/proc/meminfo"))
    size_bytes = fs.size or meminfo["MemTotal"] // 2
    _require_size(stack, "tmpfs", size_bytes, needed_bytes)
    available = meminfo["MemAvailable"]
    if needed_bytes + overcommit.ROOM_BYTES > available:
        raise PreflightError(
            f"too little memory on {host.name} for tmpfs of stack {stack.name}: about {render_size(needed_bytes)} and "
            f"{render_size(overcommit.ROOM_BYTES)} for programs are needed, {render_size(available)} are available",
            hint="lower workload.scale or max_wal_size",
        )


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
    if sysctl.get("vm.overcommit_memory") != overcommit.STRICT:
        return
    meminfo = parse_meminfo(host.read_text("/proc/meminfo"))
    ratio = sysctl.get("vm.overcommit_ratio") or read_setting(host, "/proc/sys/vm/overcommit_ratio")
    kbytes = sysctl.get("vm.overcommit_kbytes")
    if kbytes is None:  # setting a ratio turns the other off
        ratio_given = "vm.overcommit_ratio" in sysctl
        kbytes = "0" if ratio_given else read_setting(host, "/proc/sys/vm/overcommit_kbytes")
    limit = overcommit.commit_limit_bytes(meminfo, ratio=int(ratio), kbytes=int(kbytes))
    problem = overcommit.room_problem(limit, meminfo["Committed_AS"], sizing.shared_buffers_bytes(stack))
    if problem:
        raise PreflightError(
            f"vm.overcommit_memory=2 of stack {stack.name} is refused on {host.name}: {problem}", hint=overcommit.HINT
        )
