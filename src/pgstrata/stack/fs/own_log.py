"""The log of ext4 or xfs on a device of its own: planned beside the device below, and found again by its node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pgstrata.host.protocol import Host
from pgstrata.spec.layers.kind import LOG, LoggingFilesystem
from pgstrata.stack.kind import Check, PlannedFilesystem, PlannedLayer, plan_device
from pgstrata.stack.mounts import mount_at
from pgstrata.stack.place import Place
from pgstrata.stack.step import Argument, Attested, Ref, resolve

JOURNALS = "/proc/fs/jbd2"
"""One folder for each journal in use. One on a device of its own has the name of that device."""


def plan_log(fs: LoggingFilesystem, place: Place) -> PlannedLayer | None:
    """Plan the device of the log; None for one inside the filesystem."""
    return None if fs.log is None else plan_device(fs.log, place.beside(LOG))


def node_of(log: PlannedLayer) -> Argument:
    (node,) = log.above.nodes
    return node


def prefixed(text: str, node: Argument) -> Argument:
    """Return an argument that ends with a node: `logdev=/dev/loop1`."""
    return replace(node, before=f"{text}{node.before}") if isinstance(node, Ref) else f"{text}{node}"


def with_log(planned: PlannedFilesystem, log: PlannedLayer | None, check: Check) -> PlannedFilesystem:
    """Return the filesystem with the device of its log, which is made first, and the check that the log lies on it."""
    if log is None:
        return planned
    return replace(
        planned,
        steps=(*log.steps, *planned.steps),
        checks=(*log.checks, *planned.checks, check),
        extra_media=(*planned.extra_media, *log.above.media),
        counted=(*planned.counted, *log.counted),
    )


@dataclass(frozen=True)
class JournalCheck:
    """Checks that the kernel writes the journal of a mounted ext4 to its device."""

    role: str
    node: Argument

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        node = resolve(self.node, bindings)
        used = host.status(f"{JOURNALS}/{node.rpartition('/')[2]}") is not None
        return (Attested(f"{self.role} ext4 journal", node, node if used else "not on that device"),)


@dataclass(frozen=True)
class LogdevCheck:
    """Checks that a mounted xfs has its log on its device."""

    role: str
    mount_point: str
    node: Argument

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        mount = mount_at(host, self.mount_point)
        options = mount.options if mount is not None else ()
        shown = next((one.removeprefix("logdev=") for one in options if one.startswith("logdev=")), "internal")
        return (Attested(f"{self.role} xfs log", resolve(self.node, bindings), shown),)
