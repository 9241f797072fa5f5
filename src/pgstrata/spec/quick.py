"""The main job without a file: short notation and a time budget become a campaign that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.expand import with_aa
from pgstrata.spec.files import resolve_stack_files, resolve_workload_files
from pgstrata.spec.layers.kind import Device, Filesystem
from pgstrata.spec.notation import parse_stack_mapping
from pgstrata.spec.problems import explain
from pgstrata.spec.resolve import stack_from_mapping, takes_device
from pgstrata.spec.server_settings import setting_problems
from pgstrata.spec.stack import Stack

DEFAULT_MINUTES = 10.0
SCALES = (50, 20, 10, 5, 1)

MAX_BLOCKS = 12
MIN_BLOCKS = 3
MIN_DURATION_S = 5.0
MAX_DURATION_S = 300.0
MIN_WARMUP_S = 2.0
MAX_WARMUP_S = 30.0
MEASURED_SHARE = 0.8
"""Of the seconds left for warm-up and measuring."""

WISHES = ((8, 30.0), (6, 20.0), (5, 12.0), (4, 8.0), (MIN_BLOCKS, MIN_DURATION_S))
"""Blocks at least and seconds a run at least, best first: the first interval that is finite needs 5 pairs."""


@dataclass(frozen=True)
class QuickDesign:
    """How a budget is spent: so many blocks at most, so many seconds measured and warmed up in each run."""

    scale: int
    blocks: int
    duration_s: float
    warmup_s: float


def overhead_s(scale: int, *, fresh: bool) -> float:
    """Seconds of a trial besides warm-up and measuring: make, initdb, load or copy, start, stop, take down.

    Rough figures of a small virtual machine, only there to choose durations; what is really used is measured and
    the budget stops the campaign in any case.
    """
    return 6.0 + 0.25 * scale if fresh else 5.0 + 0.05 * scale


def plan_design(
    stacks: int, minutes: float, scales: Sequence[int], *, duration_s: float | None = None, blocks: int | None = None
) -> QuickDesign:
    """The largest scale and then the most blocks that leave runs of a useful length; UsageError if none do.

    `duration_s` is the length that runs must have, `blocks` the number that there must be; with both, nothing is left
    to choose but the scale.
    """
    budget_s = minutes * 60.0
    for least_blocks, wanted_s in WISHES:
        for scale in scales:
            for count in (blocks,) if blocks else range(MAX_BLOCKS, least_blocks - 1, -1):
                spare_s = _spare_s(budget_s, stacks, count, scale)
                share_s = (1 - MEASURED_SHARE) * spare_s if duration_s is None else duration_s / 4
                warmup_s = float(int(min(max(share_s, MIN_WARMUP_S), MAX_WARMUP_S)))
                measured_s = spare_s - warmup_s
                if duration_s is not None and measured_s >= duration_s:
                    return QuickDesign(scale, count, duration_s, warmup_s)
                if duration_s is None and measured_s >= wanted_s:
                    return QuickDesign(scale, count, float(int(min(measured_s, MAX_DURATION_S))), warmup_s)
    raise _too_short(stacks, minutes, scales[-1], duration_s or MIN_DURATION_S, blocks or MIN_BLOCKS)


def _too_short(stacks: int, minutes: float, scale: int, duration_s: float, blocks: int) -> UsageError:
    warmup_s = max(MIN_WARMUP_S, min(duration_s / 4, MAX_WARMUP_S))
    shortest_s = stacks * sum(_trial_s(block, scale) + duration_s + warmup_s for block in range(blocks))
    return UsageError(
        f"{minutes:g} minutes are too short for {stacks} stacks at scale {scale}: "
        f"{blocks} blocks take about {shortest_s / 60:.0f} minutes",
        hint=f"--minutes {int(shortest_s / 60) + 1}, a smaller --scale, or fewer stacks",
    )


def _trial_s(block: int, scale: int) -> float:
    return overhead_s(scale, fresh=block < MIN_BLOCKS)


def _spare_s(budget_s: float, stacks: int, blocks: int, scale: int) -> float:
    """Seconds left for warm-up and measuring in each run of a design of complete blocks."""
    return (budget_s / stacks - sum(_trial_s(block, scale) for block in range(blocks))) / blocks


def quick_campaign(
    stacks: Sequence[str],
    *,
    minutes: float | None = None,
    scale: int | None = None,
    clients: int | None = None,
    scratch: str | None = None,
    devices: Sequence[str] = (),
    erase: Sequence[str] = (),
    media: str | None = None,
    seed: int = 1,
    host: str = "local",
    margin: float | str = 0.02,
    aa: bool = False,
    duration_s: float | None = None,
    blocks: int | None = None,
    script: str | None = None,
    sql: str | None = None,
    postgresql: Mapping[str, Any] | None = None,
) -> Campaign:
    """A campaign of those stacks that fits `minutes` (10 by default), looking for the best.

    `devices` are stable ids of real disks, given to each stack in turn (trials run one at a time); without them
    stacks sit on disks of the model `media`, or on loop files below `scratch`. `duration_s` and `blocks` are chosen
    where they are not given. `script` is a builtin one or a file, `sql` the file of a database to load instead of
    pgbench's tables, whose scale then means nothing. `postgresql` holds keys of a stack's `postgresql:` for all stacks.
    Raises UsageError.
    """
    if not stacks:
        raise UsageError("no stack is named", hint="for example: pgstrata quick ext4 xfs:noatime")
    if media and devices:
        raise UsageError("--media and --device exclude each other", hint="give one of the two")
    built = [_stack(text, devices, media, dict(postgresql or {})) for text in stacks]
    shown = [stack.name for stack in built]
    twice = sorted({name for name in shown if shown.count(name) > 1})
    if twice:
        raise UsageError(f"stack {twice[0]!r} is named twice", hint="to compare a stack with itself: --aa")
    scales = (scale,) if scale else SCALES[-1:] if sql else SCALES
    design = plan_design(len(built) + aa, minutes or DEFAULT_MINUTES, scales, duration_s=duration_s, blocks=blocks)
    data: dict[str, Any] = {
        "name": f"quick {' '.join(shown)}"[:120],
        "seed": seed,
        "host": host,
        "scratch": scratch,
        "erase": tuple(erase),
        "stacks": tuple(built),
        "workload": {
            "script": (script or "tpcb-like",),
            "sql": sql,
            "scale": (design.scale,),
            "clients": (clients or 8,),
            "jobs": min(clients or 8, 2),
            "duration": design.duration_s,
            "warmup": design.warmup_s,
        },
        "runs": {
            "blocks" if blocks else "max_blocks": design.blocks,
            "budget": (minutes or DEFAULT_MINUTES) * 60.0,
            "aa": aa,
        },
        "goal": {"margin": margin},
    }
    return _checked(data)


def _checked(data: dict[str, Any]) -> Campaign:
    """The campaign, with absolute paths of the user's files; UsageError for what is wrong in it."""
    try:
        campaign = with_aa(Campaign.model_validate(data))
    except ValidationError as error:
        wrong = explain(error, Campaign, data)
        hint = next((p.hint for p in wrong if p.hint), "")
        raise UsageError("; ".join(f"{p.path}: {p.text}" for p in wrong), hint=hint) from None
    problems, workload = resolve_workload_files(campaign.workload, Path.cwd())
    if problems:
        raise UsageError(problems[0].text, hint=problems[0].hint)
    return campaign.model_copy(update={"workload": workload})


def _stack(text: str, devices: Sequence[str], media: str | None, postgresql: dict[str, Any]) -> Stack:
    mapping = parse_stack_mapping(text)
    if postgresql:
        own = mapping.get("postgresql", {})
        settings = {**postgresql.get("settings", {}), **own.get("settings", {})}
        mapping["postgresql"] = {**postgresql, **own, "settings": settings}
    if devices:
        _give_disks(mapping, list(devices), text)
    if media:
        _give_media(mapping, media)
    stack = stack_from_mapping(" ".join(text.split()), mapping, origin=repr(text))
    problems, found = resolve_stack_files(stack, Path.cwd())
    problems += setting_problems(stack.postgresql.settings)
    if problems:
        raise UsageError(f"{text!r}: {problems[0].text}", hint=problems[0].hint)
    return found


def _needing_device(mapping: dict[str, Any]) -> list[dict[str, Any]]:
    """Volumes that sit on a device and name none of their own."""
    volumes = [
        mapping["data"],
        *([mapping["wal"]] if "wal" in mapping else []),
        *mapping.get("tablespaces", {}).values(),
    ]
    return [v for v in volumes if takes_device(v["fs"]) and "kind" not in v.get("device", {})]


def _give_media(mapping: dict[str, Any], media: str) -> None:
    """Puts every volume that names no device of its own on disks of a model."""
    for volume in _needing_device(mapping):
        volume["device"] = {**Device.parse(f"media({media})"), **volume.get("device", {})}


def _give_disks(mapping: dict[str, Any], free: list[str], text: str) -> None:
    """Puts every volume that names no device of its own on the next disks of the list."""
    needing = _needing_device(mapping)
    for volume in needing:
        wanted = _wanted_disks(volume, len(free), alone=len(needing) == 1)
        if wanted > len(free):
            raise UsageError(f"{text!r} needs more devices than the {len(free)} left", hint="--device for each")
        volume["device"] = {"kind": "disk", "ids": [free.pop(0) for _ in range(wanted)]}


def _wanted_disks(volume: dict[str, Any], free: int, *, alone: bool) -> int:
    """As many as were written; all where a layout spans devices and nothing else needs one; else one."""
    count = str(volume.get("device", {}).get("count", ""))
    if count.isdigit():
        return int(count)
    spans = bool(volume.get("layers")) or Filesystem.kinds[volume["fs"]["kind"]].layout_field in volume["fs"]
    return max(free, 1) if spans and alone else 1
