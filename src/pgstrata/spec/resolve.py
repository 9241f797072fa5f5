"""From a stack's sparse mapping to the validated model, with usual device counts filled in."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from pgstrata.errors import UsageError
from pgstrata.spec.geometry import usual_count
from pgstrata.spec.problems import explain
from pgstrata.spec.stack import WITHOUT_DEVICE, Stack

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
    return done


def complete_volume(volume: dict[str, Any]) -> dict[str, Any]:
    """One volume with its device count settled; of listed disks, the first `count` are taken."""
    device, fs = volume.get("device"), volume.get("fs")
    kind = fs.get("kind") if isinstance(fs, dict) else None
    if (
        kind in WITHOUT_DEVICE
        or (kind == "nfs" and isinstance(fs, dict) and "server" in fs)
        or not isinstance(device, dict | None)
        or not isinstance(fs, dict)
    ):
        return volume
    given = dict(device or {})
    given.setdefault("kind", "loop")
    if given["kind"] == "disk" and isinstance(given.get("ids"), list | tuple) and "count" in given:
        return {**volume, "device": _first_disks(given)}
    if given["kind"] == "loop" and given.get("count") is None:
        given["count"] = _usual(volume, fs)
    return {**volume, "device": given}


def _first_disks(device: dict[str, Any]) -> dict[str, Any]:
    wanted, ids = str(device["count"]), device["ids"]
    if wanted.isdigit() and int(wanted) <= len(ids):
        return {"kind": "disk", "ids": ids[: int(wanted)]}
    # Left as it is: the model has no `count` for disks and says how many there are.
    return device


def _usual(volume: dict[str, Any], fs: dict[str, Any]) -> int:
    layers = [x for x in volume.get("layers") or () if isinstance(x, dict)]
    counts = [usual_count(str(x.get("kind")), str(x.get("level") or x.get("layout") or "")) for x in layers[:1]]
    if not layers:
        counts = [usual_count(str(fs.get("kind")), str(fs.get("vdev") or fs.get("data") or ""))]
    return max(counts)
