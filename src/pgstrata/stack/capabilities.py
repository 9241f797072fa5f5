"""Host capabilities required by the layers of a stack, and which of them a host lacks."""

from __future__ import annotations

from collections.abc import Iterable

from pgstrata.host.capabilities import FIRST, LAST, QUEUE_SETTINGS, Capability, Missing, lacking_of
from pgstrata.host.protocol import Host
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack import network
from pgstrata.stack.kind import DEVICES, FILESYSTEMS, LAYERS, AnyKind


def known_capabilities() -> dict[str, Capability]:
    """Return all capabilities by name, in report order."""
    kinds: tuple[AnyKind, ...] = (*DEVICES.values(), *LAYERS.values(), *FILESYSTEMS.values())
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
