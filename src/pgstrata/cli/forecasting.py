"""Forecast of what a campaign can prove within its blocks and budget, in words: for `plan` and the start of `run`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from pgstrata.analyze.campaign.evidence import crowded_words, recorded_seconds
from pgstrata.analyze.campaign.gate import Condition
from pgstrata.analyze.campaign.policy import MAX_PAIRS, AdaptivePolicy
from pgstrata.analyze.campaign.run_features import measured_sigma
from pgstrata.analyze.stats.comparison import ErrorRates
from pgstrata.analyze.stats.detectable_difference import (
    ASSUMED_LENGTH_S,
    expected_sigma,
    least_blocks,
    pair_width_in_sigmas,
    slices_sigma,
    width_in_sigmas,
)
from pgstrata.analyze.stats.factor_effects import smallest_effect
from pgstrata.analyze.stats.forecast import ASSUMED_TAU_S, ASSUMED_WITHIN, MOST_PAIRS, pairs_needed, smallest_margin
from pgstrata.analyze.stats.run_length import best_length_s
from pgstrata.analyze.stats.screen import MIN_BLOCKS
from pgstrata.cli.overrides import run_command
from pgstrata.crash.reduction import REDUCTION_S
from pgstrata.host.protocol import Host
from pgstrata.record.crash import REJOINS
from pgstrata.record.decision import Budget, Decision, Observation, Policy
from pgstrata.record.reader import CampaignData
from pgstrata.report.sentences.crash import listed_nodes
from pgstrata.report.sentences.figures import render_count, render_number
from pgstrata.report.sentences.statements import FACTOR_FROM, MOST_ACCEPTABLE
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.crash import untested
from pgstrata.spec.crash_request import SHOWN, STATES, CrashRequest
from pgstrata.spec.expand import block_trials, planned_slices
from pgstrata.spec.hosts.lab import LAB
from pgstrata.spec.tune import SCREENING_SHARE
from pgstrata.spec.units import render_duration
from pgstrata.trial.events import Notice, Tell
from pgstrata.trial.survey.estimate import Expected, estimate_trial

OF_LITTLE_USE = math.log(1.5)
"""Few stacks differ by more, so that a campaign which shows no less is likely to end with everything open."""
USEFUL = math.log(1.25)
"""A difference that is worth another stack to nearly everybody."""
USEFUL_EFFECT = math.log(1.05)
"""An effect of a setting that is worth to be known."""
RECORDING_S = 10.0
"""Roughly what a crash trial takes besides its states: to make the stack and its cluster, to record and to undo it."""


def screens(campaign: Campaign) -> bool:
    """True if pairs of the leaders follow a screening: only to find the best of more than two."""
    return campaign.goal.kind == "best" and len(campaign.stacks) > 2


@dataclass(frozen=True)
class Foreseen:
    """Room that a campaign has, and scatter of its runs."""

    campaign: Campaign
    stack_s: float
    """Machine time of one stack in a block: a trial at each scale."""
    sigma: float
    known: str
    """Source of sigma."""

    @property
    def fixed(self) -> bool:
        return self.campaign.runs.blocks is not None

    @property
    def cells(self) -> int:
        return len(self.campaign.workload.cells)

    @property
    def block_s(self) -> float:
        return len(self.campaign.stacks) * self.stack_s

    @property
    def rates(self) -> ErrorRates:
        """Error rates of one pair, as the judge divides them among pairs and cells at any look."""
        design = AdaptivePolicy.of(self.campaign).design
        return design.error_rates(len(design.declared()) or 1)

    @property
    def blocks(self) -> int:
        """Complete blocks of all stacks that fit."""
        runs = self.campaign.runs
        most = runs.blocks or (runs.max_blocks if screens(self.campaign) else MAX_PAIRS)
        return Budget(runs.budget).rounds(self.block_s, 0.0, most)

    @property
    def pairs(self) -> int:
        """Pairs that the two stacks in question can have; after screening that ends as early as it may."""
        budget_s = self.campaign.runs.budget
        if not screens(self.campaign) or self.fixed:
            return self.blocks
        most = MAX_PAIRS if budget_s is None else MOST_PAIRS
        return Budget(budget_s).rounds(2 * self.stack_s, MIN_BLOCKS * self.block_s, most)

    @property
    def difference(self) -> float:
        """The smallest that the blocks of all stacks show."""
        return self.sigma * self.width_in_sigmas(self.blocks)

    def width_in_sigmas(self, blocks: int) -> float:
        """Smallest difference that so many blocks show, in standard deviations of a run."""
        goal, stacks = self.campaign.goal, len(self.campaign.stacks)
        return width_in_sigmas(goal.kind, stacks, blocks, fixed=self.fixed, cells=self.cells)

    def pair_width_in_sigmas(self, pairs: int) -> float:
        """The same of so many fresh pairs of the two best, when screening ends as early as it may."""
        return pair_width_in_sigmas(len(self.campaign.stacks), pairs, cells=self.cells)

    @property
    def proven(self) -> float:
        """The smallest difference that is proven: by fresh pairs, where stacks are screened first."""
        if not screens(self.campaign) or self.fixed:
            return self.difference
        return self.sigma * self.pair_width_in_sigmas(self.pairs) if self.pairs else math.inf

    @property
    def least_blocks(self) -> int:
        """The first number of blocks with bounds."""
        goal, stacks = self.campaign.goal, len(self.campaign.stacks)
        return least_blocks(goal.kind, stacks, fixed=self.fixed, cells=self.cells)


def foresee(campaign: Campaign, estimates: Sequence[Expected], recorded: CampaignData | None = None) -> Foreseen:
    """By the estimates of trials; by what was recorded, where there is something."""
    trial_s = sum(e.duration_s for e in estimates) / max(1, len(estimates))
    measured = list(recorded_seconds(recorded).values()) if recorded is not None else []
    sigma = measured_sigma(recorded) if recorded is not None else None
    length_s = campaign.workload.duration_s or ASSUMED_LENGTH_S
    slices = planned_slices(campaign)
    runs = "slices" if slices else f"runs of {render_duration(length_s)}"
    known = f"assumed: a quiet server, {runs}" if sigma is None else "measured here"
    return Foreseen(
        campaign,
        max(fmean(measured) if measured else trial_s * len(set(campaign.workload.scale)), 0.001),
        (slices_sigma(slices) if slices else expected_sigma(length_s)) if sigma is None else sigma,
        known,
    )


def forecast(campaign: Campaign, estimates: Sequence[Expected], recorded: CampaignData | None = None) -> Iterator[str]:
    """Sentences on what the campaign can prove."""
    if len(campaign.stacks) < 2:
        yield "one stack alone: there is nothing to compare"
        return
    found = foresee(campaign, estimates, recorded)
    yield f"scatter from run to run: {100 * found.sigma:.1f} % ({found.known})"
    if campaign.tuning is not None:
        yield from _effects(found, len(campaign.tuning.factors))
        return
    yield _room(found)
    if screens(found.campaign) and not found.fixed and math.isfinite(found.proven):
        then = f"{render_count(found.pairs, 'fresh pair')} of the two best"
        yield f"when screening ends early, {then}: they prove differences from about {_percent(found.proven)} on"
    yield from _useful(found)
    yield _equality(found)
    yield from _length(campaign, found)
    if cells := campaign.workload.crowded:
        yield crowded_words(cells)


def _effects(found: Foreseen, factors: int) -> Iterator[str]:
    """The smallest effect of a factor that a screening proves, and the time that proves USEFUL_EFFECT."""
    rows = len(found.campaign.stacks)
    shown = {n: found.sigma * smallest_effect(rows, factors, n) for n in range(1, MAX_PAIRS + 1)}
    own = shown.get(found.blocks, math.inf)
    head = f"{render_count(found.blocks, 'block')} of {rows} runs"
    yield (
        f"{head}: they prove effects from about {_percent(own)} on, of any of {factors} factors"
        if math.isfinite(own)
        else f"{head}: no intervals; it takes 2 blocks"
    )
    needed = next((n for n, value in shown.items() if value <= USEFUL_EFFECT), None)
    wanted = _percent(USEFUL_EFFECT)
    if needed is None:
        yield f"effects of {wanted} cannot be proven in {MAX_PAIRS} blocks of runs of this length"
    elif needed > found.blocks:
        minutes = math.ceil(needed * found.block_s / SCREENING_SHARE / 60)
        yield f"effects of {wanted} take {needed} blocks, about {render_duration(60 * minutes)} (--minutes {minutes})"


def power_cuts_on(host: Host, campaign: Campaign) -> Iterator[str]:
    """Facts known beforehand of the crash trials there; of a machine that is not there yet not what it lacks."""
    from pgstrata.crash.runner import untestable

    return power_cut_lines(campaign, {} if campaign.host == LAB else untestable(host, campaign))


def power_cut_lines(campaign: Campaign, lacking: Mapping[str, str]) -> Iterator[str]:
    """Facts of the crash trials known beforehand: which stacks have one, and how long they take at most. `lacking`
    has the stacks that the host cannot test, and why."""
    if campaign.crash is None:
        return
    asked = campaign.crash.beside_runs
    problems = {stack.name: untested(stack, asked) or lacking.get(stack.name, "") for stack in campaign.stacks}
    tested = [stack for stack in campaign.stacks if not problems[stack.name]]
    clusters = [stack.name for stack in tested if stack.topology is not None]
    alone = [stack.name for stack in tested if stack.topology is None]
    if alone:
        yield f"{', '.join(alone)}: {_states(campaign, asked, len(alone))}"
    if clusters and asked.power:
        gone = f", and {listed_nodes(asked.gone)} {'do' if len(asked.gone) > 1 else 'does'} not come back" * bool(
            asked.gone
        )
        yield f"{', '.join(clusters)}: all nodes lose power{gone}: {_states(campaign, asked, len(clusters))}"
    elif clusters:
        failures = render_count(asked.failures, "failure")
        back = f"; a lost primary follows then by {REJOINS[asked.rejoin]}" if asked.rejoin else ""
        yield f"{', '.join(clusters)}: nodes are lost, {failures} each, after the runs and beside the budget{back}"
    for problem in dict.fromkeys(filter(None, problems.values())):
        names = [name for name, one in problems.items() if one == problem]
        yield f"{', '.join(names)}: not tested: {problem}"


def _states(campaign: Campaign, asked: CrashRequest, stacks: int) -> str:
    """Number of states of so many stacks that are looked at, with when, where, and for how long."""
    each_s = (asked.time or 0.0) + RECORDING_S + REDUCTION_S
    where = "" if campaign.host == "local" else f", on {campaign.host}"
    of_script = f" of {SHOWN[asked.script]}" if asked.script != "ledger" else ""
    return (
        f"{render_count(asked.states or STATES, 'state')} each{of_script}, after the runs, in about "
        f"{render_duration(each_s * stacks)} at most beside the budget{where}"
    )


@dataclass(frozen=True)
class WarningPolicy:
    """The policy of a campaign that tells after the first block when what is left has room for no bounds."""

    policy: Policy
    campaign: Campaign
    directory: Path
    tell: Tell

    def decide(self, observations: Sequence[Observation], blocks_done: int, elapsed_s: float) -> Decision:
        """Decision of the policy."""
        decision = self.policy.decide(observations, blocks_done, elapsed_s)
        if blocks_done == 1 and decision.stage != "done":
            notice = after_first_block(self.campaign, elapsed_s, self.directory)
            if notice:
                self.tell(Notice(notice))
        return decision


def after_first_block(campaign: Campaign, block_s: float, directory: Path) -> str:
    """Shortfall of the budget by the time that the first block took; empty where nothing is lacking."""
    found = replace(foresee(campaign, expected_trials(campaign)), stack_s=block_s / len(campaign.stacks))
    if found.fixed or campaign.runs.budget is None or math.isfinite(found.difference):
        return ""
    least = found.least_blocks
    minutes = math.ceil(least * block_s / 60)
    return (
        f"the first block took {render_duration(block_s)}, so {render_duration(campaign.runs.budget)} have room for "
        f"{render_count(found.blocks, 'block')}; bounds take {least}: {run_command(directory, minutes)}"
    )


def _room(found: Foreseen) -> str:
    """Number of blocks, and what they show."""
    campaign, blocks = found.campaign, render_count(found.blocks, "block")
    head = f"{blocks} of {len(campaign.stacks) * found.cells} runs"
    if math.isfinite(found.difference):
        return f"{head}: they prove differences from about {_percent(found.difference)} on"
    least = found.least_blocks
    need = f"{head}: no bounds; it takes {render_count(least, 'block')}"
    if found.fixed:
        return f"{need} (--blocks {least})"
    return f"{need}, about {render_duration(least * found.block_s)} (--minutes {math.ceil(least * found.block_s / 60)})"


def _useful(found: Foreseen) -> Iterator[str]:
    """The budget that proves differences of some use, where this one proves only far larger ones."""
    if found.fixed or found.campaign.runs.budget is None or found.proven <= OF_LITTLE_USE:
        return
    width = found.pair_width_in_sigmas if screens(found.campaign) else found.width_in_sigmas
    needed = next((n for n in range(1, MAX_PAIRS + 1) if found.sigma * width(n) <= USEFUL), None)
    if needed is not None:
        between, screening_s, each_s = "", 0.0, found.block_s
        if screens(found.campaign):
            between, screening_s, each_s = " between the two best", MIN_BLOCKS * found.block_s, 2 * found.stack_s
        minutes = math.ceil((screening_s + needed * each_s) / 60)
        told = f"differences of {_percent(USEFUL)}{between} take about"
        yield f"{told} {render_duration(60 * minutes)} (--minutes {minutes})"


def _equality(found: Foreseen) -> str:
    campaign, sigma_pair = found.campaign, math.sqrt(2) * found.sigma
    bound = math.log1p(campaign.goal.margin)
    if campaign.goal.kind == "equivalent":
        bound = math.log1p(min(e.margin for e in campaign.goal.equivalent))
    shown = f"{100 * math.expm1(bound):.3g} %"
    rates = found.rates
    needed = pairs_needed(0.0, sigma_pair, bound, rates.alpha, rates.equivalence)
    if needed is None:
        return f"equality within {shown} cannot be shown with any number of runs of this length"
    # Without screening a block holds every pair, and the runs of all stacks.
    each_s = 2 * found.stack_s if screens(found.campaign) else found.block_s
    cost = f"about {needed} pairs ({render_duration(needed * each_s)})"
    if needed <= found.pairs:
        return f"equality within {shown} takes {cost}"
    margin = smallest_margin(sigma_pair, found.pairs, rates.equivalence)
    instead = f"; equality within {_percent(margin)} can be shown" if margin <= MOST_ACCEPTABLE else ""
    return f"equality within {shown} cannot be shown here: it takes {cost}{instead}"


def _length(campaign: Campaign, found: Foreseen) -> Iterator[str]:
    """The best length of a run (Kalibera & Jones), where the campaign's own is far from it."""
    run_s = campaign.workload.duration_s
    # The length of quick's runs was chosen for the number of blocks that fit.
    if run_s is None or campaign.runs.budget is not None:
        return
    overhead_s = max(1.0, found.stack_s / found.cells - run_s)
    between = math.sqrt(max(found.sigma**2 - ASSUMED_WITHIN**2 * ASSUMED_TAU_S / run_s, found.sigma**2 / 4))
    best_s = best_length_s(overhead_s, ASSUMED_WITHIN, ASSUMED_TAU_S, between)
    if not 0.5 <= best_s / run_s <= 2:
        yield f"best length of a run: about {render_duration(round(best_s, -1) or 10)} ({found.known})"


def expected_trials(campaign: Campaign) -> tuple[Expected, ...]:
    """Trials of the first blocks, which load anew, and of as many that do not."""
    names = tuple(s.name for s in campaign.stacks)
    slices = planned_slices(campaign)
    trials = [t for block in range(2 * MIN_BLOCKS) for t in block_trials(campaign, block, names, slices=slices)]
    return tuple(estimate_trial(campaign, t) for t in trials)


def gate_warnings(
    campaign: Campaign, conditions: Sequence[Condition], recorded: CampaignData | None = None
) -> Iterator[str]:
    """Conditions that this campaign can hardly decide."""
    if not conditions:
        return
    found = foresee(campaign, expected_trials(campaign), recorded)
    if not math.isfinite(found.difference):
        yield f"no condition can be decided: {_room(found)}"
        return
    for condition in conditions:
        limit = condition.limit(campaign.goal.primary)
        if limit is not None and abs(math.log(limit)) < found.difference:
            low, high = (100 * limit * math.exp(side * found.difference) for side in (-1, 1))
            yield (
                f"{condition.text}: differences from about {_percent(found.difference)} on are expected to show, so a "
                f"ratio between {low:.0f} % and {high:.0f} % stays undecided"
            )


def _percent(value: float) -> str:
    """A difference of logarithms: `8.2 %`, `19-fold`."""
    ratio = math.exp(value)
    return f"{render_number(ratio, 2)}-fold" if ratio >= FACTOR_FROM else f"{100 * math.expm1(value):.3g} %"
