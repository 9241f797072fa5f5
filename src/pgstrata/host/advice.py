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


@dataclass(frozen=True)
class Rule:
    """One thing to look at: `found` says what is there, empty if there is nothing to say. `fix` may depend on it."""

    topic: str
    weight: Weight
    found: Callable[[Readings], str]
    effect: str
    fix: str | Callable[[Readings], str]


def advise(readings: Readings) -> tuple[Advice, ...]:
    """Everything worth saying, warnings first. Pure."""
    told = [
        Advice(
            rule.topic, rule.weight, found, rule.effect, rule.fix if isinstance(rule.fix, str) else rule.fix(readings)
        )
        for rule in RULES
        if (found := rule.found(readings))
    ]
    return tuple(sorted(told, key=lambda advice: advice.weight != "warning"))


def _others(what: str, found: tuple[str, ...], fine: tuple[str, ...]) -> str:
    other = [word for word in found if word not in fine]
    return f"{what} {', '.join(other)}" if other else ""


def _clock(r: Readings) -> str:
    return "" if r.clock_source is None or r.clock_source in FAST_CLOCKS else f"clock source {r.clock_source}"


def _better_clock(r: Readings) -> str:
    better = next((source for source in r.clock_sources if source in FAST_CLOCKS), None)
    path = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    return f"echo {better} > {path}" if better else "boot with tsc=reliable if the processor's tsc is constant"


def _swap(r: Readings) -> str:
    return f"{r.swap_bytes / 2**30:.1f} GiB of swap"


def _swap_used(r: Readings) -> str:
    return f"{_swap(r)}, {r.swap_used_bytes / 2**20:.0f} MiB in use" if r.swap_used_bytes else ""


def _swap_unused(r: Readings) -> str:
    quiet = r.swap_bytes == 0 or dict(r.sysctls).get("vm.swappiness") in ("0", "1")
    return "" if r.swap_used_bytes or quiet else _swap(r)


def _dirty(r: Readings) -> str:
    values = dict(r.sysctls)
    if values.get("vm.dirty_bytes", "0") != "0" or not values.get("vm.dirty_ratio", "").isdigit():
        return ""
    limit_bytes = r.memory_bytes * int(values["vm.dirty_ratio"]) // 100
    told = f"up to {limit_bytes / 2**30:.1f} GiB of dirty memory (vm.dirty_ratio={values['vm.dirty_ratio']})"
    return told if limit_bytes >= DIRTY_NOTICED_BYTES else ""


def _load(r: Readings) -> str:
    busy = r.load is not None and r.load >= max(0.5, 0.25 * r.cpus)
    return f"load average {r.load:.2f} on {r.cpus} CPUs" if busy else ""


def _shm(r: Readings) -> str:
    small = r.shm is not None and r.shm.total_bytes < SHM_SHARE_NEEDED * r.memory_bytes
    return f"/dev/shm has {r.shm.total_bytes / 2**20:.0f} MiB" if r.shm and small else ""


def _scratch(r: Readings) -> str:
    space = r.scratch_space
    if space is None or space.total_bytes == 0 or space.free_bytes >= FREE_SHARE_NEEDED * space.total_bytes:
        return ""
    return f"{space.free_bytes / 2**30:.1f} GiB of {space.total_bytes / 2**30:.1f} GiB free at {r.scratch}"


_SWAPPED = (
    "memory of the server may be paged out to a disk that is being measured",
    "swapoff --all, or sysctl vm.swappiness=1",
)

RULES: tuple[Rule, ...] = (
    Rule(
        "CPU governor", "warning", lambda r: _others("governor", r.governors, ("performance", "userspace")),
        "the clock follows the load, so a stack that waits more for storage also computes more slowly",
        "cpupower frequency-set --governor performance",
    ),
    Rule(
        "power saving", "warning",
        lambda r: _others(
            "energy preference", r.energy_preferences, ("performance", "balance_performance", "default")
        ),
        "processors fall asleep between commits, which adds to every fsync",
        f"echo performance | tee {CPU_DIRECTORY}/cpufreq/policy*/energy_performance_preference",
    ),
    Rule(
        "turbo", "note", lambda r: "turbo is on" if r.turbo == "on" else "",
        "the clock falls as processors warm up, which looks like a trend; random order evens it out only partly",
        f"echo 1 > {CPU_DIRECTORY}/intel_pstate/no_turbo  (Intel), echo 0 > {CPU_DIRECTORY}/cpufreq/boost  (others)",
    ),
    Rule(
        "temperature", "warning",
        lambda r: f"cores were throttled {r.throttle_count} times since boot" if r.throttle_count else "",
        "a hot processor slows down for a while, in whichever stack runs then",
        "look at cooling, or turn turbo off",
    ),
    Rule(
        "clock source", "warning", _clock,
        "reading it is slow, which costs pgbench and track_io_timing several microseconds a call",
        _better_clock,
    ),
    Rule(
        "other services", "warning", lambda r: render_busy(r.busy) if r.busy else "",
        "they take CPU and disk from the stack that runs at that moment",
        "stop them for the time of the run",
    ),
    Rule("load", "warning", _load, "the machine was not idle in the last minute", "wait, or stop what runs"),
    Rule(
        "PostgreSQL servers", "note",
        lambda r: ", ".join(f"pid {server.pid} of {server.user}" for server in r.servers),
        "even an idle server wakes up for checkpoints and autovacuum",
        "stop them for the time of the run; pgstrata starts servers of its own",
    ),
    Rule("swap", "warning", _swap_used, *_SWAPPED),
    Rule("swap", "note", _swap_unused, *_SWAPPED),
    Rule(
        "transparent huge pages", "warning",
        lambda r: "transparent huge pages: always" if r.huge_pages == "always" else "",
        "compaction stalls backends now and then; PostgreSQL asks for huge pages by itself",
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    ),
    Rule(
        "write-back limits", "note", _dirty,
        "checkpoints end in one long burst of writes; short runs may not see any of it",
        "sysctl vm.dirty_background_bytes=67108864 vm.dirty_bytes=536870912, or as kernel settings of a stack",
    ),
    Rule(
        "disk write cache", "note",
        lambda r: _others("write back, volatile as far as the kernel knows:", r.volatile_disks, ()),
        "a commit waits for a flush of this cache; a drive with power-loss protection answers at once, one that "
        "ignores flushes loses commits",
        "",
    ),
    Rule(
        "shared memory", "warning", _shm,
        "parallel queries fail with `could not resize shared memory segment`",
        "mount -o remount,size=50% /dev/shm  (containers: --shm-size)",
    ),
    Rule(
        "free space", "warning", _scratch,
        f"runs are refused below {FREE_SHARE_NEEDED:.0%}: filesystems slow down when they are nearly full",
        "free some, or name another folder with --scratch",
    ),
    Rule(
        "virtualisation", "note",
        lambda r: ""
        if r.virtualisation == METAL
        else f"this is a virtual machine or container ({r.virtualisation})",
        "neighbours share CPU and disk, and the host below may cache writes: figures hold for this machine alone",
        "",
    ),
)  # fmt: skip
