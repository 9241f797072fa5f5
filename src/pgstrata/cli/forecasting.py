"""What a campaign can prove within its blocks and budget, in words: for `plan` and the start of `run`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from pgstrata.analyze.forecast import ASSUMED_SIGMA_RUN, pairs_needed, smallest_difference, smallest_margin
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.units import render_duration
from pgstrata.trial.estimate import Estimate


def forecast(
    campaign: Campaign, trials: Sequence[Trial], estimates: Mapping[str, Estimate], sigma_run: float | None = None
) -> Iterator[str]:
    """Sentences; `sigma_run` is the run-to-run CV where this host has been measured, else the stated assumption."""
    if len(campaign.stacks) < 2:
        yield "one stack alone: there is nothing to compare"
        return
    sigma = ASSUMED_SIGMA_RUN if sigma_run is None else sigma_run
    known = "measured here" if sigma_run is not None else "assumed: a quiet server at 300 s"
    pair_s = 2 * sum(e.duration_s for e in estimates.values()) / max(1, len(trials))
    pairs = _pairs_in_reach(campaign, estimates, pair_s)
    sigma_pair = math.sqrt(2) * sigma
    difference, margin = smallest_difference(sigma_pair, pairs), smallest_margin(sigma_pair, pairs)
    yield f"run-to-run variation {100 * sigma:.1f} % ({known}); {pairs} pairs of two stacks are in reach"
    yield f"smallest difference that can be proven: {_percent(difference)}"
    yield f"smallest margin within which equal stacks can be shown equal: {_percent(margin)}"
    bound = math.log1p(campaign.goal.margin)
    needed = pairs_needed(0.0, sigma_pair, bound)
    if campaign.goal.kind == "equivalent":
        bound = math.log1p(min(e.margin for e in campaign.goal.equivalent))
        needed = pairs_needed(0.0, sigma_pair, bound)
    shown = f"{100 * math.expm1(bound):.3g} %"
    if needed is None:
        yield f"equality within {shown} cannot be shown with any number of runs at this variation"
    elif needed > pairs:
        yield (
            f"equality within {shown} cannot be shown within this design: it takes about {needed} pairs "
            f"({render_duration(needed * pair_s)})"
        )
    else:
        yield f"equality within {shown} takes about {needed} pairs ({render_duration(needed * pair_s)})"


def _pairs_in_reach(campaign: Campaign, estimates: Mapping[str, Estimate], pair_s: float) -> int:
    blocks = campaign.runs.blocks
    if blocks is not None:
        return blocks
    if campaign.runs.budget is None:
        return campaign.runs.max_blocks
    return max(0, int(campaign.runs.budget / pair_s)) if pair_s else 0


def _percent(value: float) -> str:
    return f"{100 * math.expm1(value):.1f} %" if math.isfinite(value) else "none: it takes at least 5 pairs"
