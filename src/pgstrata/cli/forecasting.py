"""What a campaign can prove within its blocks and budget, in words: for `plan` and the start of `run`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from pgstrata.analyze.forecast import (
    ASSUMED_SIGMA_RUN,
    ASSUMED_TAU_S,
    ASSUMED_WITHIN,
    pairs_needed,
    smallest_difference,
    smallest_margin,
)
from pgstrata.analyze.policy import MAX_PAIRS
from pgstrata.analyze.run_scatter import measured_sigma
from pgstrata.analyze.runlength import best_length_s
from pgstrata.analyze.screen import MIN_BLOCKS
from pgstrata.record.reader import CampaignData
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.expand import block_trials
from pgstrata.spec.units import render_duration
from pgstrata.trial.estimate import Expected, estimate_trial


def forecast(
    campaign: Campaign, trials: Sequence[Trial], estimates: Mapping[str, Expected], sigma_run: float | None = None
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
    yield f"run-to-run variation {100 * sigma:.1f} % ({known}); pairs of two stacks in reach: {pairs}"
    yield f"smallest difference that can be proven: {_percent(difference, 5)}"
    yield f"smallest margin within which equal stacks can be shown equal: {_percent(margin, 9)}"
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
    yield from _length(campaign, trials, pair_s / 2, sigma, known)


def _length(campaign: Campaign, trials: Sequence[Trial], trial_s: float, sigma: float, known: str) -> Iterator[str]:
    """The best length of a run (Kalibera & Jones), where the campaign's own is far from it."""
    run_s = campaign.workload.duration_s
    cells = sum(len(t.cells) for t in trials) / max(1, len(trials))
    if run_s is None or not cells:
        return
    overhead_s = max(1.0, trial_s / cells - run_s)
    between = math.sqrt(max(sigma**2 - ASSUMED_WITHIN**2 * ASSUMED_TAU_S / 300, sigma**2 / 4))
    best_s = best_length_s(overhead_s, ASSUMED_WITHIN, ASSUMED_TAU_S, between)
    if not 0.5 <= best_s / run_s <= 2:
        yield f"best length of a run: about {render_duration(round(best_s, -1) or 10)} ({known})"


def announce(campaign: Campaign, recorded: CampaignData | None) -> Iterator[str]:
    """The forecast at the start of a run, with the noise measured so far where the campaign is resumed."""
    names = tuple(s.name for s in campaign.stacks)
    trials = [t for block in range(MIN_BLOCKS) for t in block_trials(campaign, block, names)]
    estimates = {t.id: estimate_trial(campaign, t) for t in trials}
    yield from forecast(campaign, trials, estimates, measured_sigma(recorded) if recorded is not None else None)


def _pairs_in_reach(campaign: Campaign, estimates: Mapping[str, Expected], pair_s: float) -> int:
    blocks = campaign.runs.blocks
    if blocks is not None:
        return blocks
    if campaign.runs.budget is None:
        return MAX_PAIRS
    left_s = campaign.runs.budget
    if campaign.goal.kind == "best" and len(campaign.stacks) > 2:
        # Screening comes first: at least so many blocks of all stacks.
        left_s -= MIN_BLOCKS * len(campaign.stacks) * pair_s / 2
    return min(MAX_PAIRS, max(0, int(left_s / pair_s))) if pair_s else 0


def _percent(value: float, least_pairs: int) -> str:
    return (
        f"{100 * math.expm1(value):.1f} %" if math.isfinite(value) else f"none: it takes at least {least_pairs} pairs"
    )
