"""From a stack's sparse mapping to the validated model, with usual device counts filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from pgstrata.errors import UsageError
from pgstrata.spec.file.problems import explain
from pgstrata.spec.layers.kind import BlockLayer, Device, Filesystem
from pgstrata.spec.layers.loop import LoopDevice
from pgstrata.spec.stack import Stack

_NOTATION = "docs/stacks.md has the notation, docs/layers what each filesystem and layer takes"


def stack_from_mapping(name: str, mapping: dict[str, Any], *, origin: str) -> Stack:
    """The validated stack; UsageError with every problem found, `origin` saying where it was written."""
    data = {"name": name, **complete_stack(mapping)}
    try:
        return Stack.model_validate(data)
    except ValidationError as error:
        problems = explain(error, Stack, data)
        where = [f"{p.path}: {p.text}" if p.path else p.text for p in problems]
        raise UsageError(f"{origin} is not a valid stack: {'; '.join(where)}",
                         hint=next((p.hint for p in problems if p.hint), _NOTATION)) from None  # fmt: skip


def complete_stack(mapping: dict[str, Any]) -> dict[str, Any]:
    """The mapping with device counts that nobody gave set to what each layout usually takes."""
    done = dict(mapping)
    for role in ("data", "wal"):
        if isinstance(done.get(role), dict):
            done[role] = complete_volume(done[role])
    if isinstance(done.get("tablespaces"), dict):
        done["tablespaces"] = {
            k: complete_volume(v) if isinstance(v, dict) else v for k, v in done["tablespaces"].items()
        }
    if isinstance(done.get("topology"), dict):
        done["topology"] = _complete_topology(done["topology"])
    return done


def _complete_topology(topology: dict[str, Any]) -> dict[str, Any]:
    done = dict(topology)
    if isinstance(done.get("archive"), dict):
        done["archive"] = complete_volume(done["archive"])
    if isinstance(done.get("standbys"), list):
        done["standbys"] = [
            complete_stack(standby) if isinstance(standby, dict) else standby for standby in done["standbys"]
        ]
    return done


def complete_volume(volume: dict[str, Any]) -> dict[str, Any]:
    """One volume with its device count settled; of listed disks, the first `count` are taken."""
    device, fs = volume.get("device"), volume.get("fs")
    if not isinstance(device, dict | None) or not isinstance(fs, dict) or not takes_device(fs):
        return volume
    given = {"kind": LoopDevice.name(), **(device or {})}
    model = Device.kinds.get(str(given["kind"]))
    # a kind that is none is left for the model to complain of
    return {**volume, "device": model.complete(given, _usual(volume, fs)) if model is not None else given}


def takes_device(fs: Mapping[str, Any]) -> bool:
    """True if a filesystem as written sits on a block device."""
    model = Filesystem.kinds.get(str(fs.get("kind")))
    return model is None or model.takes_device(fs)


def _usual(volume: dict[str, Any], fs: dict[str, Any]) -> int:
    given = volume.get("layers")
    parts = [x for x in given if isinstance(x, dict)] if isinstance(given, list | tuple) else []
    for layer in parts:
        model = BlockLayer.kinds.get(str(layer.get("kind")))
        if model is None or not model.keeps_count:
            return model.usual_count(layer) if model is not None else 1
    above = Filesystem.kinds.get(str(fs.get("kind")))
    return above.usual_count(fs) if above is not None else 1
