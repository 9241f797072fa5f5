"""Whether the machine is real: systemd-detect-virt, else what lscpu says."""

from __future__ import annotations

from pgstrata.host.facts.cpu import Cpu
from pgstrata.host.protocol import Host, command

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
