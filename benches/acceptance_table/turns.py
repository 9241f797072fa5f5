"""Stacks side by side in slices: equal ones in every kind of noise, and the machine time to a proof."""

from __future__ import annotations

import math

from acceptance_table.simulated import SlicedScenario, SliceNoise
from pgstrata.analyze.campaign.simulate import Scenario
from pgstrata.spec.campaign import Goal

NOISES = {
    "builds 0": SliceNoise(build_sd=0.0),
    "builds .03": SliceNoise(),
    "builds .05": SliceNoise(build_sd=0.05),
    "one builds .10": SliceNoise(last_build_sd=0.10),
    "t3 turns": SliceNoise(turn_tails="t3"),
    "t3 builds": SliceNoise(build_sd=0.05, build_tails="t3"),
    "stalls 5% x -50%": SliceNoise(stall_share=0.05),
}
TWO_MODES = "slices A/A 2, builds in two modes"
PROVEN = {
    # seconds of the machine at most, share proven at least
    "slices 2, 10 % ahead": (190.0, 0.95),
    "slices 2, 5 % ahead": (400.0, 0.85),
    "slices 4, one -52 %": (170.0, 0.95),
}
AT_MARGIN = Goal.model_validate({"kind": "equivalent", "equivalent": [["s00", "s01", 0.05]]})


def sliced_scenarios() -> dict[str, tuple[Scenario, bool]]:
    """Every scenario by name; those of equal stacks are looked at after every block."""
    found: dict[str, tuple[Scenario, bool]] = {}
    for stacks in (2, 4, 8):
        for name, noise in NOISES.items():
            found[f"slices A/A {stacks}, {name}"] = SlicedScenario((0.0,) * stacks, slices=noise, max_pairs=20), True
    found[TWO_MODES] = SlicedScenario((0.0, 0.0), slices=SliceNoise(mode=0.08), max_pairs=20), True
    for stacks in (2, 3, 4):
        carried = SliceNoise(carry_over=math.log(0.95))
        found[f"slices A/A {stacks}, carry-over -5 %"] = SlicedScenario((0.0,) * stacks, slices=carried), False
    found["slices 2, 10 % ahead"] = SlicedScenario((0.0, math.log(0.9))), False
    found["slices 2, 5 % ahead"] = SlicedScenario((0.0, math.log(0.95)), max_pairs=30), False
    behind = SlicedScenario((0.0, 0.0, 0.0, math.log(0.48)), budget_s=150.0)
    found["slices 4, one -52 %"] = behind, False
    found["slices equal within 5 %"] = SlicedScenario((0.0, 0.0), goal=AT_MARGIN), False
    found["slices at the margin"] = SlicedScenario((math.log1p(0.05), 0.0), goal=AT_MARGIN), False
    return found
