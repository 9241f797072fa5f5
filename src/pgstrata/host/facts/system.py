"""Kernel, clock, memory and distribution of a host, and the settings that storage benchmarks depend on.

Sources of facts are files and commands, either of which a host may not have.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Literal

from pgstrata.host.protocol import Host, command

TIMEOUT_S = 20.0


def read_file(host: Host, path: str) -> str | None:
    """The file's text without surrounding white space; None when it is not there, may not be read, or has no value
    (sysfs answers some reads with an error)."""
    try:
        return host.read_text(path).strip()
    except OSError:
        return None


def read_names(host: Host, path: str) -> tuple[str, ...]:
    """Names in a directory; none when it is not there."""
    try:
        return host.list_directory(path)
    except OSError:
        return ()


def read_output(host: Host, *argv: str) -> str | None:
    """Output of a command; None when it is not installed or failed."""
    done = host.run(command(*argv, timeout_s=TIMEOUT_S), check=False)
    return done.stdout if done.exit_code == 0 else None


def read_kernel_release(host: Host) -> str | None:
    return read_file(host, "/proc/sys/kernel/osrelease")


SPEED_PARAMETERS = frozenset({
    "mitigations", "isolcpus", "nohz_full", "rcu_nocbs", "elevator", "transparent_hugepage", "hugepages", "idle",
    "intel_idle.max_cstate", "processor.max_cstate", "intel_pstate", "amd_pstate", "scsi_mod.use_blk_mq", "nosmt",
    "clocksource", "tsc", "preempt", "iommu", "intel_iommu", "amd_iommu", "nvme_core.default_ps_max_latency_us",
})  # fmt: skip
"""Only these are told: the rest of a command line may say where a machine boots from, and with which secrets."""


def parse_command_line(text: str) -> str:
    """The parameters that matter to speed, as they were given."""
    return " ".join(word for word in text.split() if word.partition("=")[0] in SPEED_PARAMETERS)


def read_kernel_parameters(host: Host) -> str | None:
    return parse_command_line(read_file(host, "/proc/cmdline") or "") or None


# ---------------------------------------------------------------- the clock that timestamps are taken from

_DIRECTORY = "/sys/devices/system/clocksource/clocksource0"

FAST_CLOCKS = frozenset({"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "xen"})
"""Readable without a system call or at little more; hpet and acpi_pm cost microseconds a reading."""


def read_clock_source(host: Host) -> str | None:
    return read_file(host, f"{_DIRECTORY}/current_clocksource")


def read_clock_sources(host: Host) -> tuple[str, ...]:
    """Clock sources that could be chosen."""
    return tuple((read_file(host, f"{_DIRECTORY}/available_clocksource") or "").split())


# ---------------------------------------------------------------- memory

_LINE = re.compile(r"([^:]+):\s+(\d+)( kB)?")


def parse_meminfo(text: str) -> dict[str, int]:
    """Bytes by name; counts of pages (HugePages_Total, ...) as they are. ValueError on a line of another form."""
    values: dict[str, int] = {}
    for line in text.splitlines():
        found = _LINE.fullmatch(line.strip())
        if found is None:
            raise ValueError(f"not a line of /proc/meminfo: {line}")
        values[found[1]] = int(found[2]) * (1024 if found[3] else 1)
    return values


def read_memory(host: Host) -> dict[str, int]:
    return parse_meminfo(read_file(host, "/proc/meminfo") or "")


# ---------------------------------------------------------------- settings that storage benchmarks depend on

SYSCTLS = (
    "vm.dirty_background_bytes",
    "vm.dirty_background_ratio",
    "vm.dirty_bytes",
    "vm.dirty_ratio",
    "vm.dirty_expire_centisecs",
    "vm.dirty_writeback_centisecs",
    "vm.swappiness",
    "vm.overcommit_memory",
    "vm.nr_hugepages",
    "vm.zone_reclaim_mode",
    "kernel.numa_balancing",
)


def parse_choice(text: str) -> str:
    """The chosen word of `always [madvise] never`; the text itself when nothing is in brackets."""
    found = re.search(r"\[([^\]]+)\]", text)
    return found[1] if found else text.strip()


def read_sysctls(host: Host) -> dict[str, str]:
    """Values of those that this kernel has."""
    found = {name: read_file(host, "/proc/sys/" + name.replace(".", "/")) for name in SYSCTLS}
    return {name: value for name, value in found.items() if value is not None}


def read_huge_pages(host: Host) -> str | None:
    """Transparent huge pages: always, madvise or never."""
    text = read_file(host, "/sys/kernel/mm/transparent_hugepage/enabled")
    return None if text is None else parse_choice(text)


# ---------------------------------------------------------------- the distribution

Family = Literal["debian", "ubuntu", "fedora", "rhel", "suse", "alpine", "arch", "unknown"]


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
        "alpine": "alpine",
        "arch": "arch",
    }
    # ID_LIKE goes from the closest relative to the farthest: Rocky says "rhel centos fedora".
    for name in (id_, *like.split()):
        if name in known:
            return known[name]
    return "suse" if id_.startswith("opensuse") else "unknown"


def read_os_release(host: Host) -> OsRelease:
    text = read_file(host, "/etc/os-release") or read_file(host, "/usr/lib/os-release")
    return parse_os_release(text or "")
