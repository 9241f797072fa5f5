"""The main job without a file: a campaign from short notation that fits a time budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign, Runs, Slices
from pgstrata.spec.drivers import Driver, default_driver
from pgstrata.spec.expand import planned_slices, slug, why_whole, with_aa
from pgstrata.spec.file.files import resolve_stack_files, resolve_workload_files
from pgstrata.spec.file.problems import explain
from pgstrata.spec.layers.kind import Device, Filesystem
from pgstrata.spec.notation.stack import parse_stack_mapping, stack_from_mapping, takes_device
from pgstrata.spec.server_settings import stack_setting_problems
from pgstrata.spec.stack import Stack
from pgstrata.spec.units import render_duration
from pgstrata.spec.workload import Workload

DEFAULT_MINUTES = 10.0
SCALES = (50, 20, 10, 5, 1)
CLIENTS = 8
LONGEST_QUICK_NAME = 120

MAX_BLOCKS = 12
"""Maximum number of screening blocks."""
MAX_PAIRS = 60
MIN_BLOCKS = 3
MOST_FRESH = 3
"""Maximum number of blocks that load from scratch."""
MIN_DURATION_S = 3.0
MAX_DURATION_S = 300.0
MIN_WARMUP_S = 1.0
MAX_WARMUP_S = 30.0
MEASURED_SHARE = 0.8
"""Share of measuring in the seconds left for warm-up and measuring."""
SCREENING_SHARE = 0.75
"""Share of screening in the budget, with more than two stacks; the rest is for fresh pairs of the two best."""
PLANNED_SHARE = 0.9
"""Planned share of the budget: the overhead of a trial is known only roughly beforehand."""
WORTH_A_SCALE = 1.25
"""A larger scale may increase the smallest visible difference by this factor over that of the best design."""

QUICK_CRASH = {"states": 40, "time": 10}
"""Power cuts, after the runs and outside their budget: seconds of each stack."""

SLICE_COUNTS = (2, 4, 8)
SHORT_RUNS = Workload(duration=8.0)
"""Runs that slices can replace."""
WHOLE_RUN_S = 10.0
"""Length of the whole runs beside slices, ..."""
WHOLE_RUN_SHARE = 0.1
"""... of which those of one block take at most this share of the budget, if they are longer than the slices."""

Shows = Callable[..., float]
"""The smallest difference that stacks, blocks and seconds of a run can show, or `slices` of it; infinite if there are
no bounds. Statistics compute it: `analyze.stats.detectable_difference.smallest_shown`."""


@dataclass(frozen=True)
class QuickDesign:
    """The use of a budget: number of blocks, seconds of measuring and warm-up in each run."""

    scale: int
    blocks: int
    duration_s: float
    warmup_s: float
    fresh_blocks: int

    def load(self, clients: int) -> dict[str, Any]:
        """Return the keys of `workload:` that follow from it."""
        return {
            "scale": (self.scale,),
            "clients": (clients,),
            "jobs": min(clients, 2),
            "duration": self.duration_s,
            "warmup": self.warmup_s,
        }


def overhead_s(scale: int, *, fresh: bool) -> float:
    """Seconds of a trial besides warm-up and measuring: make, initdb, load or copy, start, stop, take down.

    Rough figures of a small virtual machine, only for choosing durations. The real use is measured, and the budget
    stops the campaign in any case.
    """
    return 5.0 + 0.25 * scale if fresh else 4.5 + 0.05 * scale


def plan_design(
    stacks: int,
    minutes: float,
    scales: Sequence[int],
    shows: Shows,
    *,
    duration_s: float | None = None,
    blocks: int | None = None,
    roomy: int = 1,
) -> QuickDesign:
    """The largest scale at which the budget shows nearly the smallest possible differences, with the best number of
    blocks and length of runs. UsageError if no scale has bounds. Scales below `roomy`, at which clients would wait for
    one another's rows rather than for storage, are used only if no other fits.

    `duration_s` fixes the length of runs, `blocks` their number. A requested number of blocks is accepted without
    bounds too.
    """
    found = _found(stacks, minutes, [scale for scale in scales if scale >= roomy], shows, duration_s, blocks)
    found = found or _found(stacks, minutes, scales, shows, duration_s, blocks)
    if not found:
        raise _too_short(stacks, minutes, scales[-1], shows, duration_s, blocks)
    enough = WORTH_A_SCALE * min(shown for shown, _ in found)
    return next(design for shown, design in found if shown <= enough)


def _found(
    stacks: int, minutes: float, scales: Sequence[int], shows: Shows, duration_s: float | None, blocks: int | None
) -> list[tuple[float, QuickDesign]]:
    """The best design at each scale and the difference that it shows; time for fresh pairs is reserved if there is
    enough."""
    for share in (SCREENING_SHARE, 1.0) if stacks > 2 and not blocks else (1.0,):
        own_s = PLANNED_SHARE * share * minutes * 60.0 / stacks
        all_ = (_best_at(stacks, own_s, scale, shows, duration_s, blocks) for scale in scales)
        found = [best for best in all_ if best is not None]
        if found:
            return found
    return []


def _best_at(
    stacks: int, own_s: float, scale: int, shows: Shows, duration_s: float | None, blocks: int | None
) -> tuple[float, QuickDesign] | None:
    """The best design of one scale, with `own_s` seconds for each stack."""
    best: tuple[float, QuickDesign] | None = None
    for count in (blocks,) if blocks else _counts(stacks):
        design = _filling(own_s, scale, count, duration_s)
        if design is None:
            continue
        shown = shows(stacks, count, design.duration_s) if stacks > 1 else 1 / count
        if (blocks or math.isfinite(shown)) and (best is None or shown < best[0]):
            best = shown, design
    return best


def _counts(stacks: int) -> Sequence[int]:
    """Candidate numbers of blocks; a single stack is measured a fixed number of times."""
    return (
        (MIN_BLOCKS,) if stacks == 1 else range(2, MAX_PAIRS + 1) if stacks == 2 else range(MIN_BLOCKS, MAX_BLOCKS + 1)
    )


def _filling(own_s: float, scale: int, blocks: int, duration_s: float | None) -> QuickDesign | None:
    """The design of so many blocks that fills the time of a stack; None if runs would be too short."""
    fresh = min(MOST_FRESH, max(1, blocks // 3))
    spare_s = (own_s - sum(overhead_s(scale, fresh=block < fresh) for block in range(blocks))) / blocks
    share_s = (1 - MEASURED_SHARE) * spare_s if duration_s is None else duration_s / 4
    warmup_s = float(int(min(max(share_s, MIN_WARMUP_S), MAX_WARMUP_S)))
    measured_s = spare_s - warmup_s
    if measured_s < (duration_s or MIN_DURATION_S):
        return None
    return QuickDesign(scale, blocks, duration_s or float(int(min(measured_s, MAX_DURATION_S))), warmup_s, fresh)


def _too_short(
    stacks: int, minutes: float, scale: int, shows: Shows, duration_s: float | None, blocks: int | None
) -> UsageError:
    enough = math.floor(minutes) + 1
    while not _found(stacks, enough, (scale,), shows, duration_s, blocks):
        enough += 1
    wanted = f"{blocks} blocks take" if blocks else "an answer with bounds takes"
    return UsageError(
        f"{render_duration(60 * minutes)} is too short for {stacks} stack{'s' * (stacks != 1)} at scale {scale}: "
        f"{wanted} about {enough} minutes",
        hint=f"--minutes {enough}, {'a shorter --duration' if duration_s else 'a smaller --scale'}, or fewer stacks",
    )


def extension_options(minutes: int | None, blocks: int | None) -> tuple[str, ...]:
    """Options of `run` that extend a campaign to so many minutes or blocks."""
    return (*(("--blocks", str(blocks)) if blocks else ()), *(("--minutes", str(minutes)) if minutes else ()))


def extended(campaign: Campaign, minutes: float) -> Campaign:
    """The quick campaign with that budget: as many screening blocks as fit. Length and scale of its runs stay."""
    stacks, workload, runs = len(campaign.stacks), campaign.workload, campaign.runs
    slices = planned_slices(campaign)
    run_s = (slices.measured_s if slices else workload.duration_s or 0.0) + workload.warmup
    left_s, blocks = (SCREENING_SHARE if stacks > 2 else 1.0) * minutes * 60.0 / stacks, 0
    while blocks < MAX_BLOCKS and left_s >= 0:
        left_s -= overhead_s(workload.scale[0], fresh=blocks < runs.fresh_blocks) + run_s
        blocks += left_s >= 0
    update = {"budget": minutes * 60.0, "max_blocks": max(MIN_BLOCKS, blocks)}
    return campaign.model_copy(update={"runs": runs.model_copy(update=update)})


Layout = tuple[Literal["auto", "slices", "whole"], Slices]
"""`runs.design`, and the turns of slices."""


@dataclass(frozen=True)
class _Asked:
    """Request for a quick campaign, and the layouts that fit."""

    stacks: int
    minutes: float
    scales: Sequence[int]
    shows: Shows
    blocks: int | None
    clients: int

    def whole(self, duration_s: float | None = None) -> tuple[Layout, QuickDesign]:
        """Whole runs, of that length if it is given. UsageError if the time is too short."""
        return ("whole", Slices()), self._planned(self.shows, duration_s)

    def best(self) -> tuple[Layout, QuickDesign]:
        """The number of slices that shows the smallest differences, at a scale with room for the clients if there is
        one; whole runs where the time is too short."""
        found, share_s = [], WHOLE_RUN_SHARE * self.minutes * 60.0 / self.stacks
        for slices in (Slices(count=count) for count in (SLICE_COUNTS if self.stacks > 1 else ())):
            shows = partial(self.shows, slices=slices)
            whole_s = max(slices.measured_s, float(min(WHOLE_RUN_S, share_s // 1)))
            with suppress(UsageError):
                design = self._planned(shows, slices.measured_s, aside_s=self.stacks * whole_s)
                shown = shows(self.stacks, design.blocks, design.duration_s)
                found.append((shown, slices, replace(design, duration_s=whole_s)))
        if not found:
            return self.whole()
        _, slices, design = min(found, key=lambda one: (one[2].scale < self.clients, one[0]))
        return ("auto", slices), design

    def _planned(self, shows: Shows, duration_s: float | None, *, aside_s: float = 0.0) -> QuickDesign:
        return plan_design(
            self.stacks,
            self.minutes - aside_s / 60.0,
            self.scales,
            shows,
            duration_s=duration_s,
            blocks=self.blocks,
            roomy=self.clients,
        )


def _can_take_turns(stacks: Sequence[Stack], host: str) -> bool:
    """Return False for stacks that share a device, are clusters, or set what belongs to the whole host."""
    runs = Runs(budget=DEFAULT_MINUTES * 60)
    return not why_whole(
        Campaign.model_construct(name="quick", stacks=tuple(stacks), host=host, runs=runs, workload=SHORT_RUNS)
    )


def quick_campaign(
    stacks: Sequence[str],
    shows: Shows,
    *,
    minutes: float | None = None,
    scale: int | None = None,
    clients: int | None = None,
    scratch: str | None = None,
    devices: Sequence[str] = (),
    erase: Sequence[str] = (),
    on_servers: Sequence[str] = (),
    media: str | None = None,
    seed: int = 1,
    host: str = "local",
    margin: float | str = 0.02,
    aa: bool = False,
    duration_s: float | None = None,
    blocks: int | None = None,
    workload: Mapping[str, Any] | None = None,
    postgresql: Mapping[str, Any] | None = None,
    crash: bool = False,
    begun: Campaign | None = None,
) -> Campaign:
    """A campaign of those stacks that fits `minutes` (10 by default) and looks for the best.

    `begun` is the campaign to resume: length and scale of its runs stay unless others are given. `devices` are stable
    ids of real disks, given to each stack in turn (with whole runs). Without them stacks sit on disks of the model
    `media`, or on loop files below `scratch`. `duration_s` and `blocks` are chosen if not given; each asks for whole
    runs. `workload` has keys of `workload:` (with own data the scale means nothing), `postgresql` those of a stack's.
    """
    own = any((workload or {}).get(name) for name in ("sql", "pg_restore"))
    if not stacks:
        raise UsageError("no stack is named", hint="for example: pgstrata quick ext4 xfs:noatime")
    if media and devices:
        raise UsageError("--media and --device exclude each other", hint="give one of the two")
    built = [_stack(text, devices, media, dict(postgresql or {})) for text in stacks]
    _refuse_twice(built)
    minutes = minutes or DEFAULT_MINUTES
    driver = _driver(workload or {})
    scales = (scale,) if scale else SCALES[-1:] if own else driver.usual_scales or SCALES
    if begun is not None:
        layout: Layout = (begun.runs.design, begun.runs.slices)
        design = _begun_design(begun, scale, duration_s)
    else:
        asked = _Asked(len(built) + aa, minutes, scales, shows, blocks, clients or CLIENTS)
        whole = duration_s or blocks or not driver.takes_turns or not _can_take_turns(built, host)
        layout, design = asked.whole(duration_s) if whole else asked.best()
    data: dict[str, Any] = {
        "name": quick_name(stacks),
        "seed": seed,
        "host": host,
        "scratch": scratch,
        "erase": tuple(erase),
        "on_servers": tuple(on_servers),
        "stacks": tuple(built),
        "workload": {
            "tablespace": None if own else _only_tablespace(built),
            **design.load(clients or CLIENTS),
            **(workload or {}),
        },
        "runs": dict(zip(("design", "slices"), layout, strict=True))
        | {"blocks": blocks, "fresh_blocks": design.fresh_blocks, "aa": aa},
        "goal": {"margin": margin},
        "crash": QUICK_CRASH if crash and built[0].is_attested else None,
    }
    return extended(checked_campaign(data), minutes)


def _driver(workload: Mapping[str, Any]) -> type[Driver]:
    """The driver of a workload as it is written; an unknown one is refused when the campaign is checked."""
    driver = Driver.complete(dict(workload)).get("driver") or default_driver().model_dump()
    kind = driver.get("kind") if isinstance(driver, dict) else driver
    return Driver.kinds.get(str(kind), type(default_driver()))


def _only_tablespace(stacks: Sequence[Stack]) -> str | None:
    """The tablespace for pgbench's tables; None unless the stacks have one name of a tablespace in all."""
    names = {name for stack in stacks for name in stack.tablespaces}
    return names.pop() if len(names) == 1 else None


def _refuse_twice(stacks: Sequence[Stack]) -> None:
    shown = [stack.name for stack in stacks]
    twice = sorted({name for name in shown if shown.count(name) > 1})
    if twice:
        raise UsageError(f"stack {twice[0]!r} is named twice", hint="to compare a stack with itself: --aa")


def quick_name(stacks: Sequence[str]) -> str:
    """The name of a campaign of those stacks."""
    return " ".join(f"quick {' '.join(stacks)}".split())[:LONGEST_QUICK_NAME]


def quick_directory(stacks: Sequence[str]) -> Path:
    """The directory of its record, unless another is named."""
    return Path("out") / slug(quick_name(stacks))


def _begun_design(begun: Campaign, scale: int | None, duration_s: float | None) -> QuickDesign:
    workload, runs = begun.workload, begun.runs
    length_s = duration_s or workload.duration_s or MIN_DURATION_S
    return QuickDesign(scale or workload.scale[0], runs.max_blocks, length_s, workload.warmup, runs.fresh_blocks)


def checked_campaign(data: dict[str, Any]) -> Campaign:
    """The campaign, with absolute paths of the user's files; UsageError if it is invalid."""
    try:
        campaign = with_aa(Campaign.model_validate(data))
    except ValidationError as error:
        wrong = explain(error, Campaign, data)
        hint = next((p.hint for p in wrong if p.hint), "")
        raise UsageError("; ".join(f"{p.path}: {p.text}".removeprefix(": ") for p in wrong), hint=hint) from None
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
    problems += stack_setting_problems(stack)
    if problems:
        raise UsageError(f"{text!r}: {problems[0].text}", hint=problems[0].hint)
    return found


def _needing_device(mapping: dict[str, Any]) -> list[dict[str, Any]]:
    """Volumes that need a device and name none."""
    volumes = [
        mapping["data"],
        *([mapping["wal"]] if "wal" in mapping else []),
        *mapping.get("tablespaces", {}).values(),
    ]
    return [v for v in volumes if takes_device(v["fs"]) and "kind" not in v.get("device", {})]


def _give_media(mapping: dict[str, Any], media: str) -> None:
    """Put every volume that names no device on disks of a model."""
    for volume in _needing_device(mapping):
        volume["device"] = {**Device.parse(f"media({media})"), **volume.get("device", {})}


def _give_disks(mapping: dict[str, Any], free: list[str], text: str) -> None:
    """Put every volume that names no device on the next disks of the list."""
    needing = _needing_device(mapping)
    for volume in needing:
        wanted = _wanted_disks(volume, len(free), alone=len(needing) == 1)
        if wanted > len(free):
            raise UsageError(f"{text!r} needs more devices than the {len(free)} left", hint="--device for each")
        volume["device"] = {"kind": "disk", "ids": [free.pop(0) for _ in range(wanted)]}


def _wanted_disks(volume: dict[str, Any], free: int, *, alone: bool) -> int:
    """The number of disks as written; all where a layout spans devices and nothing else needs one; else one."""
    count = str(volume.get("device", {}).get("count", ""))
    if count.isdigit():
        return int(count)
    spans = bool(volume.get("layers")) or Filesystem.kinds[volume["fs"]["kind"]].layout_field in volume["fs"]
    return max(free, 1) if spans and alone else 1
