"""The campaigns of `pgstrata tune`: a screening whose stacks are the rows of a design, and fresh runs of its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign, Runs, Tuning
from pgstrata.spec.expand import slug
from pgstrata.spec.file.factors import load_tuning, tuned_stack
from pgstrata.spec.quick import (
    CLIENTS,
    MAX_DURATION_S,
    MIN_DURATION_S,
    MIN_WARMUP_S,
    PLANNED_SHARE,
    QUICK_CRASH,
    SCALES,
    QuickDesign,
    Shows,
    checked_campaign,
    extended,
    overhead_s,
    plan_design,
)
from pgstrata.spec.screening import START, Row
from pgstrata.spec.units import render_duration

SCREENING_SHARE = 0.7
"""Share of the screening in the budget; the rest is for fresh runs of the start and of the chosen combination."""
LEAST_BLOCKS = 2
"""Blocks of a design below which nothing tells noise from effects."""
MOST_BLOCKS = 12
LONG_S = 8.0
"""Length of a run from which further time goes into more blocks."""
TUNED = "tuned"


def confirmation_name(tuning: Tuning, levels: Row) -> str:
    """The folder of the confirmation of a combination: more runs may lead to another one."""
    changed = [f.name for f, level in zip(tuning.factors, levels, strict=True) if level]
    return slug(f"confirmation {' '.join(changed)}")


def plan_screening(rows: int, minutes: float, scale: int | None = None) -> QuickDesign:
    """The largest scale that leaves time for the least blocks, then as many blocks as long runs allow. UsageError with
    the minutes that would do."""
    scales = (scale,) if scale else SCALES
    for one in scales:
        found = [p for blocks in range(LEAST_BLOCKS, MOST_BLOCKS + 1) if (p := _filled(rows, minutes, one, blocks))]
        if found and (found[0].duration_s >= LONG_S or one == scales[-1]):
            return next((plan for plan in reversed(found) if plan.duration_s >= LONG_S), found[0])
    enough = int(minutes) + 1
    while _filled(rows, enough, scales[-1], LEAST_BLOCKS) is None:
        enough += 1
    raise UsageError(
        f"{render_duration(60 * minutes)} is too short for a design of {rows} stacks in {LEAST_BLOCKS} blocks",
        hint=f"--minutes {enough}, or fewer factors",
    )


def _filled(rows: int, minutes: float, scale: int, blocks: int) -> QuickDesign | None:
    each_s = PLANNED_SHARE * SCREENING_SHARE * minutes * 60.0 / (rows * blocks)
    duration_s = float(int(each_s - overhead_s(scale, fresh=False) - MIN_WARMUP_S))
    if duration_s < MIN_DURATION_S:
        return None
    return QuickDesign(scale, blocks, min(duration_s, MAX_DURATION_S), MIN_WARMUP_S, fresh_blocks=0)


def tune_campaign(
    stack: str,
    over: str,
    *,
    minutes: float,
    scale: int | None = None,
    clients: int | None = None,
    scratch: str | None = None,
    seed: int = 1,
    host: str = "local",
    margin: float | str = 0.02,
    workload: Mapping[str, Any] | None = None,
    begun: Campaign | None = None,
) -> Campaign:
    """The screening of a stack in short notation over the factors of a file or preset.

    `begun` is the campaign to resume: with the same factors its runs stay as they are, and only the budget grows.
    """
    tuning = load_tuning(stack, over)
    if begun is not None and begun.tuning == tuning:
        return _lengthened(begun, len(tuning.rows), SCREENING_SHARE * minutes * 60.0)
    plan = plan_screening(len(tuning.rows), minutes, scale)
    return checked_campaign(
        {
            "name": f"tune {' '.join(stack.split())}",
            "seed": seed,
            "host": host,
            "scratch": scratch,
            "stacks": tuple(tuned_stack(tuning, row, name) for name, row in tuning.rows.items()),
            "workload": {**plan.load(clients or CLIENTS), **(workload or {})},
            "runs": {
                "blocks": plan.blocks,
                "budget": SCREENING_SHARE * minutes * 60.0,
                "design": "whole",
                "fresh_blocks": plan.fresh_blocks,
            },
            "goal": {"kind": "against", "against": START, "margin": margin},
            "tuning": tuning,
        }
    )


def _lengthened(begun: Campaign, rows: int, wanted_s: float) -> Campaign:
    """The screening with a larger budget, and as many blocks of its runs as fit; as it is if the budget is smaller."""
    workload, runs, budget_s = begun.workload, begun.runs, wanted_s
    if budget_s <= (runs.budget or 0.0):
        return begun
    each_s = (workload.duration_s or 0.0) + workload.warmup + overhead_s(workload.scale[0], fresh=False)
    blocks = max(runs.blocks or 0, int(PLANNED_SHARE * budget_s / (rows * each_s)))
    return begun.model_copy(update={"runs": runs.model_copy(update={"budget": budget_s, "blocks": blocks})})


def confirming_campaign(
    screening: Campaign, levels: Row, minutes: float, shows: Shows, *, crash: bool, begun: Campaign | None = None
) -> Campaign:
    """Fresh runs of the start and of the combination with those levels, and power cuts of both. `begun` is the campaign
    to resume."""
    if begun is not None:
        return extended(begun, minutes)
    assert screening.tuning is not None
    workload, tuning = screening.workload, screening.tuning
    nothing = (False,) * len(levels)
    design = plan_design(2, minutes, workload.scale, shows)
    stacks = (tuned_stack(tuning, nothing, START), tuned_stack(tuning, levels, TUNED))
    data = {
        **screening.model_dump(by_alias=True, include={"seed", "host", "scratch"}),
        "name": f"{screening.name}: confirmation",
        "stacks": stacks,
        "workload": workload.model_copy(update={"duration": design.duration_s, "warmup": design.warmup_s}),
        "runs": Runs(design="whole", fresh_blocks=design.fresh_blocks),
        "goal": {"margin": screening.goal.margin, "durability": "any"},
        "crash": QUICK_CRASH if crash else None,
    }
    return extended(checked_campaign(data), minutes)
