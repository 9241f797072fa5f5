"""The processors: lscpu, frequency governors, turbo, energy preferences, SMT, throttling."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from pgstrata.host.facts.system import read_file, read_names, read_output
from pgstrata.host.protocol import Host, command

CPU_DIRECTORY = "/sys/devices/system/cpu"


@dataclass(frozen=True)
class Cpu:
    model: str
    count: int
    """Online."""
    sockets: int
    threads_per_core: int
    architecture: str
    hypervisor: str | None


def parse_lscpu(text: str) -> Cpu:
    """From `lscpu -J` (nested since util-linux 2.38 for some fields, flat before)."""
    values: dict[str, str] = {}
    _collect(json.loads(text)["lscpu"], values)
    # On ARM and in some virtual machines there is no model name, and sockets are "-".
    return Cpu(
        model=values.get("Model name") or values.get("BIOS Model name") or values.get("Vendor ID") or "unknown",
        count=_count_list(values["On-line CPU(s) list"]) if "On-line CPU(s) list" in values else int(values["CPU(s)"]),
        sockets=_number(values.get("Socket(s)")),
        threads_per_core=_number(values.get("Thread(s) per core")),
        architecture=values["Architecture"],
        hypervisor=values.get("Hypervisor vendor"),
    )


def _collect(fields: Iterable[dict[str, object]], into: dict[str, str]) -> None:
    for field in fields:
        into[str(field["field"]).rstrip(":")] = str(field.get("data") or "")
        children = field.get("children")
        if isinstance(children, list):
            _collect(children, into)


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 1


def _count_list(text: str) -> int:
    """Number of CPUs that a list names, such as `0-3,8`."""
    ends = [part.split("-") for part in text.split(",")]
    return sum(int(end[-1]) - int(end[0]) + 1 for end in ends)


def read_cpu(host: Host) -> Cpu | None:
    text = read_output(host, "lscpu", "-J")
    return None if text is None else parse_lscpu(text)


def read_governors(host: Host) -> tuple[str, ...]:
    """The distinct frequency governors in use; none where the kernel does not govern (most virtual machines)."""
    names = [n for n in read_names(host, f"{CPU_DIRECTORY}/cpufreq") if n.startswith("policy")]
    found = {read_file(host, f"{CPU_DIRECTORY}/cpufreq/{name}/scaling_governor") for name in names}
    return tuple(sorted(governor for governor in found if governor))


def read_turbo(host: Host) -> str | None:
    """`on`, `off`, or None where it cannot be told."""
    no_turbo = read_file(host, f"{CPU_DIRECTORY}/intel_pstate/no_turbo")
    if no_turbo is not None:
        return "off" if no_turbo == "1" else "on"
    boost = read_file(host, f"{CPU_DIRECTORY}/cpufreq/boost")
    if boost is not None:
        return "on" if boost == "1" else "off"
    return None


def read_energy_preferences(host: Host) -> tuple[str, ...]:
    """The distinct energy preferences of processors that choose their own frequency."""
    names = [n for n in read_names(host, f"{CPU_DIRECTORY}/cpufreq") if n.startswith("policy")]
    found = {read_file(host, f"{CPU_DIRECTORY}/cpufreq/{name}/energy_performance_preference") for name in names}
    return tuple(sorted(preference for preference in found if preference))


def read_smt(host: Host) -> str | None:
    """`on`, `off`, `notsupported`, ..."""
    return read_file(host, f"{CPU_DIRECTORY}/smt/control")


def read_throttle_count(host: Host) -> int | None:
    """Number of times a core was slowed down for heat since boot; None where it is not counted (Intel counts it)."""
    cpus = [name for name in read_names(host, CPU_DIRECTORY) if re.fullmatch(r"cpu\d+", name)]
    counts = [read_file(host, f"{CPU_DIRECTORY}/{name}/thermal_throttle/core_throttle_count") for name in cpus]
    known = [int(count) for count in counts if count is not None]
    return sum(known) if known else None


# ---------------------------------------------------------------- whether the machine is real

METAL = "none"


def read_virtualisation(host: Host, cpu: Cpu | None) -> str:
    """`none` on metal, else the hypervisor or container, both when nested (`kvm, docker`)."""
    found = []
    for kind in ("--vm", "--container"):
        # Exit code 1 and "none" mean that there is none of that kind.
        done = host.run(command("systemd-detect-virt", kind), check=False)
        if done.exit_code == 0:
            found.append(done.stdout.strip())
    if cpu is not None and cpu.hypervisor and not any(name not in _CONTAINERS for name in found):
        found.insert(0, cpu.hypervisor.lower())
    return ", ".join(found) or METAL


_CONTAINERS = frozenset({"docker", "podman", "lxc", "lxc-libvirt", "systemd-nspawn", "openvz", "rkt", "wsl", "proot"})
