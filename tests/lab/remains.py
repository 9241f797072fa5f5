"""What a test has left on a lab machine: asked of every tool that could know of something."""

from __future__ import annotations

from pgstrata.host.protocol import Host, command
from pgstrata.stack.block.loop import list_loops
from pgstrata.stack.mounts import list_mounts

SCRATCH = "/var/tmp/scratch"


def data_disks(host: Host) -> tuple[str, ...]:
    """The data disks by stable id."""
    folder = "/dev/disk/by-id"
    names = [n for n in host.list_directory(folder) if n.startswith("virtio-d") and "-part" not in n]
    return tuple(f"{folder}/{name}" for name in sorted(names))


def remains(host: Host) -> list[str]:
    """A line for everything that was not there when the machine came up."""
    found = [f"loop {loop.node}" for loop in list_loops(host)]
    found += [f"mount {m.target}" for m in list_mounts(host) if "pgstrata-" in m.target + m.source]
    mapped = host.list_directory("/dev/mapper") if host.status("/dev/mapper") is not None else ()
    found += [f"mapping {name}" for name in mapped if name.startswith("pgstrata")]
    asked = ["pvs --noheadings --options pv_name", "exportfs -s"]
    if host.status("/proc/spl/kstat/zfs") is not None:
        asked.append("zpool list -H")
    disks = data_disks(host)
    if disks:
        asked.append("wipefs --no-act --noheadings " + " ".join(disks))
    for line in asked:
        found += [f"{line}: {said}" for said in host.run(command(line.split())).stdout.splitlines()]
    found += [f"array {name}" for name in host.list_directory("/sys/class/block") if name.startswith("md")]
    for folder in (SCRATCH, f"{host.state_directory()}/journal", "/run", "/mnt"):
        names = host.list_directory(folder) if host.status(folder) is not None else ()
        found += [f"{folder}/{name}" for name in names if name.startswith("pgstrata-") or folder.endswith("journal")]
    return found
