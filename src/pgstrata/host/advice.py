"""Advice on settings of a host that spoil benchmarks: readings first, then pure rules over them.

A rule says what was found, what it does to a measurement, and the command that changes it. Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pgstrata.host.facts.activity import Server, read_busy, read_load, read_servers, render_busy
from pgstrata.host.facts.block import BlockDevice, read_block_devices, read_write_cache
from pgstrata.host.facts.cpu import (
    CPU_DIRECTORY,
    METAL,
    read_cpu,
    read_energy_preferences,
    read_governors,
    read_throttle_count,
    read_turbo,
    read_virtualisation,
)
from pgstrata.host.facts.system import (
    FAST_CLOCKS,
    read_clock_source,
    read_clock_sources,
    read_huge_pages,
    read_memory,
    read_sysctls,
)
from pgstrata.host.protocol import Busy, Host, Space

Weight = Literal["warning", "note"]
"""A warning can turn a verdict over; a note is to be known."""

FREE_SHARE_NEEDED = 0.10
"""Below this share of free space a run is refused; filesystems slow down when they are full."""
SHM_SHARE_NEEDED = 0.25
DIRTY_NOTICED_BYTES = 2 << 30


@dataclass(frozen=True)
class Readings:
    """Facts that the rules look at. None where the host does not say."""

    cpus: int = 1
    governors: tuple[str, ...] = ()
    energy_preferences: tuple[str, ...] = ()
    turbo: str | None = None
    throttle_count: int | None = None
    virtualisation: str = METAL
    clock_source: str | None = None
    clock_sources: tuple[str, ...] = ()
    memory_bytes: int = 0
    swap_bytes: int = 0
    swap_used_bytes: int = 0
    huge_pages: str | None = None
    sysctls: tuple[tuple[str, str], ...] = ()
    shm: Space | None = None
    scratch: str = "/"
    scratch_space: Space | None = None
    volatile_disks: tuple[str, ...] = ()
    """Disks whose write cache the kernel believes to be volatile."""
    load: float | None = None
    busy: tuple[Busy, ...] = ()
    servers: tuple[Server, ...] = ()


@dataclass(frozen=True)
class Advice:
    topic: str
    weight: Weight
    found: str
    effect: str
    fix: str
    """A command or change; empty when there is nothing to do but know it."""


def read_for_advice(host: Host, scratch: str, *, sample_s: float = 1.0) -> Readings:
    """Takes the readings; `scratch` is the folder that loop files would go to."""
    cpu, memory = read_cpu(host), read_memory(host)
    return Readings(
        cpus=cpu.count if cpu else 1,
        governors=read_governors(host),
        energy_preferences=read_energy_preferences(host),
        turbo=read_turbo(host),
        throttle_count=read_throttle_count(host),
        virtualisation=read_virtualisation(host, cpu),
        clock_source=read_clock_source(host),
        clock_sources=read_clock_sources(host),
        memory_bytes=memory.get("MemTotal", 0),
        swap_bytes=memory.get("SwapTotal", 0),
        swap_used_bytes=memory.get("SwapTotal", 0) - memory.get("SwapFree", 0),
        huge_pages=read_huge_pages(host),
        sysctls=tuple(read_sysctls(host).items()),
        shm=_space(host, "/dev/shm"),
        scratch=scratch,
        scratch_space=_space(host, scratch),
        volatile_disks=tuple(d.path for d in read_block_devices(host) if _is_volatile(host, d)),
        load=read_load(host),
        busy=read_busy(host, sample_s),
        servers=read_servers(host),
    )


def _is_volatile(host: Host, device: BlockDevice) -> bool:
    return device.kind == "disk" and read_write_cache(host, device.name) == "write back"


def _space(host: Host, path: str) -> Space | None:
    try:
        return host.space(path)
    except OSError:
        return None


def advise(readings: Readings) -> tuple[Advice, ...]:
    """Everything worth saying, warnings first. Pure."""
    found = [advice for rule in RULES if (advice := rule(readings)) is not None]
    return tuple(sorted(found, key=lambda advice: advice.weight != "warning"))


def _governor(r: Readings) -> Advice | None:
    slow = [g for g in r.governors if g not in ("performance", "userspace")]
    if not slow:
        return None
    return Advice(
        "CPU governor",
        "warning",
        f"governor {', '.join(slow)}",
        "the clock follows the load, so a stack that waits more for storage also computes more slowly",
        "cpupower frequency-set --governor performance",
    )


def _energy(r: Readings) -> Advice | None:
    saving = [p for p in r.energy_preferences if p not in ("performance", "balance_performance", "default")]
    if not saving:
        return None
    return Advice(
        "power saving",
        "warning",
        f"energy preference {', '.join(saving)}",
        "processors fall asleep between commits, which adds to every fsync",
        f"echo performance | tee {CPU_DIRECTORY}/cpufreq/policy*/energy_performance_preference",
    )


def _turbo(r: Readings) -> Advice | None:
    if r.turbo != "on":
        return None
    return Advice(
        "turbo",
        "note",
        "turbo is on",
        "the clock falls as processors warm up, which looks like a trend; random order evens it out only partly",
        f"echo 1 > {CPU_DIRECTORY}/intel_pstate/no_turbo  (Intel), echo 0 > {CPU_DIRECTORY}/cpufreq/boost  (others)",
    )


def _thermal(r: Readings) -> Advice | None:
    if not r.throttle_count:
        return None
    return Advice(
        "temperature",
        "warning",
        f"cores were throttled {r.throttle_count} times since boot",
        "a hot processor slows down for a while, in whichever stack runs then",
        "look at cooling, or turn turbo off",
    )


def _virtual(r: Readings) -> Advice | None:
    if r.virtualisation == METAL:
        return None
    return Advice(
        "virtualisation",
        "note",
        f"this is a virtual machine or container ({r.virtualisation})",
        "neighbours share CPU and disk, and the host below may cache writes: figures hold for this machine alone",
        "",
    )


def _clock(r: Readings) -> Advice | None:
    if r.clock_source is None or r.clock_source in FAST_CLOCKS:
        return None
    better = next((source for source in r.clock_sources if source in FAST_CLOCKS), None)
    path = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    return Advice(
        "clock source",
        "warning",
        f"clock source {r.clock_source}",
        "reading it is slow, which costs pgbench and track_io_timing several microseconds a call",
        f"echo {better} > {path}" if better else "boot with tsc=reliable if the processor's tsc is constant",
    )


def _swap(r: Readings) -> Advice | None:
    if r.swap_used_bytes == 0 and (r.swap_bytes == 0 or dict(r.sysctls).get("vm.swappiness") in ("0", "1")):
        return None
    used = r.swap_used_bytes > 0
    return Advice(
        "swap",
        "warning" if used else "note",
        f"{r.swap_bytes / 2**30:.1f} GiB of swap" + (f", {r.swap_used_bytes / 2**20:.0f} MiB in use" if used else ""),
        "memory of the server may be paged out to a disk that is being measured",
        "swapoff --all, or sysctl vm.swappiness=1",
    )


def _huge_pages(r: Readings) -> Advice | None:
    if r.huge_pages != "always":
        return None
    return Advice(
        "transparent huge pages",
        "warning",
        "transparent huge pages: always",
        "compaction stalls backends now and then; PostgreSQL asks for huge pages by itself",
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    )


def _dirty(r: Readings) -> Advice | None:
    values = dict(r.sysctls)
    if values.get("vm.dirty_bytes", "0") != "0" or not values.get("vm.dirty_ratio", "").isdigit():
        return None
    limit_bytes = r.memory_bytes * int(values["vm.dirty_ratio"]) // 100
    if limit_bytes < DIRTY_NOTICED_BYTES:
        return None
    return Advice(
        "write-back limits",
        "note",
        f"up to {limit_bytes / 2**30:.1f} GiB of dirty memory (vm.dirty_ratio={values['vm.dirty_ratio']})",
        "checkpoints end in one long burst of writes; short runs may not see any of it",
        "sysctl vm.dirty_background_bytes=67108864 vm.dirty_bytes=536870912, or as kernel settings of a stack",
    )


def _cache(r: Readings) -> Advice | None:
    if not r.volatile_disks:
        return None
    return Advice(
        "disk write cache",
        "note",
        f"write back, volatile as far as the kernel knows: {', '.join(r.volatile_disks)}",
        "a commit waits for a flush of this cache; a drive with power-loss protection answers at once, one that "
        "ignores flushes loses commits",
        "",
    )


def _busy(r: Readings) -> Advice | None:
    if not r.busy:
        return None
    return Advice(
        "other services",
        "warning",
        render_busy(r.busy),
        "they take CPU and disk from the stack that runs at that moment",
        "stop them for the time of the run",
    )


def _load(r: Readings) -> Advice | None:
    if r.load is None or r.load < max(0.5, 0.25 * r.cpus):
        return None
    return Advice(
        "load",
        "warning",
        f"load average {r.load:.2f} on {r.cpus} CPUs",
        "the machine was not idle in the last minute",
        "wait, or stop what runs",
    )


def _servers(r: Readings) -> Advice | None:
    if not r.servers:
        return None
    return Advice(
        "PostgreSQL servers",
        "note",
        ", ".join(f"pid {server.pid} of {server.user}" for server in r.servers),
        "even an idle server wakes up for checkpoints and autovacuum",
        "stop them for the time of the run; pgstrata starts servers of its own",
    )


def _shm(r: Readings) -> Advice | None:
    if r.shm is None or r.shm.total_bytes >= SHM_SHARE_NEEDED * r.memory_bytes:
        return None
    return Advice(
        "shared memory",
        "warning",
        f"/dev/shm has {r.shm.total_bytes / 2**20:.0f} MiB",
        "parallel queries fail with `could not resize shared memory segment`",
        "mount -o remount,size=50% /dev/shm  (containers: --shm-size)",
    )


def _scratch(r: Readings) -> Advice | None:
    space = r.scratch_space
    if space is None or space.total_bytes == 0 or space.free_bytes >= FREE_SHARE_NEEDED * space.total_bytes:
        return None
    return Advice(
        "free space",
        "warning",
        f"{space.free_bytes / 2**30:.1f} GiB of {space.total_bytes / 2**30:.1f} GiB free at {r.scratch}",
        f"runs are refused below {FREE_SHARE_NEEDED:.0%}: filesystems slow down when they are nearly full",
        "free some, or name another folder with --scratch",
    )


RULES: tuple[Callable[[Readings], Advice | None], ...] = (
    _governor, _energy, _turbo, _thermal, _clock, _busy, _load, _servers, _swap, _huge_pages, _dirty, _cache, _shm,
    _scratch, _virtual,
)  # fmt: skip
