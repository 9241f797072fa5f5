"""The adaptive policy: screening, then confirmation with fresh pairs, within a budget.

A pure function of the observations: a resumed campaign repeats its decisions, and a campaign can be extended later by a
larger budget, more blocks or another pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pgstrata.analyze.campaign.conclude import is_bounded_by_screening
from pgstrata.analyze.crash import kept_classes
from pgstrata.analyze.stats.comparison import (
    Design,
    Pair,
    Replay,
    StageOne,
    goal_within,
    judge_pairs,
    leading_pair,
    pair_sigma,
    seconds_by_stack,
    summary,
    tabulate,
)
from pgstrata.analyze.stats.equivalence import PairVerdict
from pgstrata.analyze.stats.fit import BlockFit
from pgstrata.analyze.stats.forecast import MOST_PAIRS, Outlook, smallest_margin
from pgstrata.record.decision import Budget, Decision, Observation, Stage
from pgstrata.record.reader import CrashData
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.durability import of_class

MAX_PAIRS = 60
"""Limit for a campaign without a budget; with one, the budget is the limit."""
SAVED_SHARE = 0.80
"""Survivors continue beyond `max_blocks` up to this share of the cost of `max_blocks` rounds with every stack.

By simulation this finds the best of 12 noisy stacks in 0.953 instead of 0.932 of campaigns (docs/statistics.md)."""
WORTHWHILE = 0.10
"""A pair continues while the probability of a verdict within the budget is at least this."""
WORTHWHILE_EQUIVALENT = 0.02
"""The same for a pair declared equivalent: by simulation, 10 % loses 3 to 5 % of the answers within 60 pairs."""
START = 0.19
"""Leader and runner-up are confirmed while the probability of a difference within the budget is at least this (the
forecast is wide then: at 10 % nearly every confirmation of equal stacks would start), ..."""
LIKELY = 0.50
"""... or the probability of equality is at least this: equal stacks are common, and pairs then cost as much as
screening."""
USEFUL_MARGIN = math.log1p(0.20)
"""Equality within a larger margin is of no use."""
ENOUGH_PAIRS = 5
"""From this number on, confirmation forecasts from its own pairs."""


def planned_design(campaign: Campaign, stacks: Sequence[str] | None, crashes: Sequence[CrashData]) -> Design:
    """Return the design of a campaign before its runs, of those of its stacks that can be built."""
    names = tuple(stacks) if stacks is not None else tuple(s.name for s in campaign.stacks)
    cells = tuple(c.id for c in campaign.workload.cells)
    classes = kept_classes([s for s in campaign.stacks if s.name in names], crashes)
    candidates = frozenset(of_class(classes, campaign.goal.durability))
    goal = goal_within(campaign.goal, names)
    return Design(names, cells, goal, campaign.runs.max_blocks, candidates=candidates)


@dataclass(frozen=True)
class AdaptivePolicy:
    """Screening in complete blocks with dropping, then pairs until a verdict. Without one, a budget is spent to its
    end, on a narrower interval; without a budget, pairs end when no verdict is in reach."""

    design: Design
    max_pairs: int = MAX_PAIRS
    budget_s: float | None = None

    @classmethod
    def of(
        cls, campaign: Campaign, stacks: Sequence[str] | None = None, crashes: Sequence[CrashData] = ()
    ) -> AdaptivePolicy:
        """Return the policy of a campaign; `stacks` leaves out those that this host cannot build. A stack that broke
        its promise in these crash trials cannot be chosen."""
        budget_s = campaign.runs.budget
        design = replace(planned_design(campaign, stacks, crashes), proves=budget_s is not None)
        return cls(design, MAX_PAIRS if budget_s is None else MOST_PAIRS, budget_s)

    def decide(self, observations: Sequence[Observation], blocks_done: int, elapsed_s: float) -> Decision:
        """Return the next decision; see `record.decision.Policy`."""
        moment = _Moment(self, observations, blocks_done, elapsed_s)
        if len(self.design.stacks) < 2:
            return self._single(blocks_done)
        if not self.design.screens:
            return self._confirm(moment, {}, {c: self.design.declared() for c in self.design.cells})
        stages = self._stage_one(moment)
        more = self._screen(moment, stages)
        if more is not None:
            return more
        pairs = {cell: leading_pair(self.design, stage) for cell, stage in stages.items()}
        return self._confirm(moment, stages, {c: (p,) for c, p in pairs.items() if p is not None})

    def _single(self, blocks_done: int) -> Decision:
        if blocks_done < min(self.design.max_blocks, 3):
            return Decision("screen", self.design.stacks)
        return Decision("done", (), reason="one stack alone: its runs are done, there is nothing to compare")

    def _stage_one(self, moment: _Moment) -> dict[str, StageOne]:
        tables = {c: tabulate(self.design, moment.observations, c, ("screen",)) for c in self.design.cells}
        return self._replay.stage_one(tables)

    @cached_property
    def _replay(self) -> Replay:
        """Cache that avoids recomputing stage 1 for each block; it changes no decision."""
        return Replay(self.design)

    def _screen(self, moment: _Moment, stages: dict[str, StageOne]) -> Decision | None:
        """Return one more block of screening, or None when it is over."""
        names = self.design.stacks
        alive = {k for s in stages.values() for k in s.survivors} or set(range(len(names)))
        run = tuple(name for k, name in enumerate(names) if k in alive)
        dropped = tuple(name for name in names if name not in run)
        if stages and all(s.settled for s in stages.values()):
            return None
        if moment.screen_blocks >= self.design.max_blocks and not self._pays_another_round(moment, len(run)):
            return None
        if moment.screen_blocks and not moment.affords(run):
            return None
        return Decision("screen", run, dropped, _dropped_words(dropped), figures=_screen_figures(self.design, stages))

    def _pays_another_round(self, moment: _Moment, stacks: int) -> bool:
        """Return True if the time saved by dropping pays for a round beyond `max_blocks`; at most `max_blocks` such
        rounds."""
        spent = len({(o.stack, o.block) for o in moment.observations if o.stage == "screen"})
        most = self.design.max_blocks
        cheap = spent + stacks <= SAVED_SHARE * most * len(self.design.stacks)
        return cheap and moment.screen_blocks < 2 * most

    def _confirm(self, moment: _Moment, stages: dict[str, StageOne], pairs: dict[str, tuple[Pair, ...]]) -> Decision:
        """Return one more block of the pairs that are worth it, or the end."""
        design = self.design
        wanted: list[Pair] = []
        notes: list[str] = []
        figures: dict[str, Any] = _screen_figures(design, stages)
        for cell, declared in pairs.items():
            # Declared before the first run: no selection took place, so every run counts.
            counted = tabulate(
                design, moment.observations, cell, ("confirm",) if design.screens else ("screen", "confirm")
            )
            stage = stages.get(cell)
            scatter = stage.scatter(*self._indices(declared[0])) if stage and declared else None
            for pair, verdict in zip(declared, judge_pairs(design, declared, counted, scatter), strict=True):
                figures[f"{cell}: {pair.a} / {pair.b}"] = summary(verdict)
                outlook = self._outlook(moment, cell, pair, verdict, stage.fit if stage else None, len(declared))
                if outlook:
                    notes.append(outlook if len(pairs) == 1 else f"{cell}: {outlook}")
                else:
                    wanted.append(pair)
        run = tuple(name for name in design.stacks if any(name in (p.a, p.b) for p in wanted))
        if not run:
            return Decision("done", (), reason="; ".join(notes) or "no two stacks can be compared", figures=figures)
        if not moment.affords(run):
            return Decision("done", (), reason="the time budget is used up", figures=figures)
        return Decision("confirm", run, tuple(n for n in design.stacks if n not in run), "; ".join(notes), figures)

    def _outlook(
        self, moment: _Moment, cell: str, pair: Pair, verdict: PairVerdict, fit: BlockFit | None, declared: int
    ) -> str:
        """Return why this pair needs no more runs; empty if it continues."""
        name = f"{pair.a} against {pair.b}"
        asks_equality = self.design.goal.kind == "equivalent" and verdict.verdict != "equal"
        if verdict.decided and not asks_equality:
            return f"{name}: {verdict.verdict}"
        done = int(verdict.estimate.n)
        most = self._most_pairs(moment, pair, done)
        rates = self.design.error_rates(declared)
        outlook = self._forecast(pair, verdict, fit, most)
        if done == most == 0:
            return f"{name}: the time left has room for no fresh pair"
        if done >= most or moment.confirm_blocks >= self.max_pairs:
            return (
                f"{name}: {verdict.verdict} after {_pairs_words(done)}{self._reach(outlook, most, rates.equivalence)}"
            )
        if outlook is None or (self.budget_s is not None and not verdict.decided):
            return ""  # the time is given: without a verdict it goes into a narrower interval
        different = outlook.chance_of_difference(rates.alpha)
        equal = outlook.chance_of_equality(pair.bound, rates.equivalence)
        if verdict.decided:
            # The question is equality, and equality wins: a difference ends the pair once equality is out of reach.
            return "" if equal >= WORTHWHILE_EQUIVALENT else f"{name}: {verdict.verdict}"
        if fit is None:
            equivalent = self.design.goal.kind == "equivalent"
            worth = different + equal >= (WORTHWHILE_EQUIVALENT if equivalent else WORTHWHILE)
        else:
            worth = different >= (WORTHWHILE if done else START) or equal >= LIKELY
            # A campaign does not end without bounds on its leading pair while it can obtain them.
            worth = worth or (not done and not is_bounded_by_screening(self.design, moment.observations, cell, pair))
        if worth:
            return ""
        chance = _chance_words(different + equal)
        reach = self._reach(outlook, most, rates.equivalence)
        return f"{name}: {_pairs_words(most)} in all, with a chance of {chance} of a verdict{reach}"

    def _reach(self, outlook: Outlook | None, most: int, alpha: float) -> str:
        """Describe the smallest margin within which the pair could show equality, if that margin is useful."""
        reach = smallest_margin(outlook.sigma_pair, most, alpha) if outlook is not None else math.inf
        if reach > USEFUL_MARGIN:
            return ""
        return f"; the smallest margin that they could prove is {self.design.metric.margin_of(reach)}"

    def _most_pairs(self, moment: _Moment, pair: Pair, done: int) -> int:
        seconds = moment.seconds_of((pair.a, pair.b))
        return min(self.max_pairs, done + Budget(self.budget_s).rounds(seconds, moment.elapsed_s, self.max_pairs))

    def _forecast(self, pair: Pair, verdict: PairVerdict, fit: BlockFit | None, most: int) -> Outlook | None:
        """Forecast for the last affordable pair; None while too little is known."""
        estimate = verdict.estimate
        if estimate.n >= ENOUGH_PAIRS:
            sigma = pair_sigma(verdict)
            spread = sigma * math.sqrt(max(1 / estimate.n - 1 / most, 0))
            shared = estimate.nu - (estimate.n - 1) if fit is not None else 0.0
            return Outlook(estimate.value, spread, sigma, most, shared)
        if fit is None or estimate.n > 0:
            return None
        return _from_screening(fit, *self._indices(pair), most)

    def _indices(self, pair: Pair) -> tuple[int, int]:
        return self.design.stacks.index(pair.a), self.design.stacks.index(pair.b)


@dataclass(frozen=True)
class _Moment:
    """Known facts at the time of a decision."""

    policy: AdaptivePolicy
    observations: Sequence[Observation]
    blocks_done: int
    elapsed_s: float

    @cached_property
    def confirm_blocks(self) -> int:
        """Blocks of stage 2; blocks without any valid run count, so that a pair that always fails ends too."""
        return self.blocks_done - self._blocks("screen")

    @cached_property
    def screen_blocks(self) -> int:
        """Blocks of stage 1, counted in the same way."""
        return self.blocks_done - self._blocks("confirm")

    def _blocks(self, stage: Stage) -> int:
        return len({o.block for o in self.observations if o.stage == stage})

    @cached_property
    def _seconds(self) -> dict[str, float]:
        return seconds_by_stack(self.observations)

    def seconds_of(self, run: Sequence[str]) -> float:
        """Expected machine time of one run of each of these stacks."""
        known = self._seconds
        if not known:
            return 0.0
        usual = sum(known.values()) / len(known)
        return sum(known.get(name, usual) for name in run)

    def affords(self, run: Sequence[str]) -> bool:
        return Budget(self.policy.budget_s).fits(self.seconds_of(run), self.elapsed_s)


def _from_screening(fit: BlockFit, i: int, j: int, most: int) -> Outlook | None:
    """The expectation from stage 1: its estimate, with its own uncertainty and that of the pairs to come."""
    estimate = fit.estimate(i, j)
    if not estimate.se > 0:
        return None
    sigma = math.sqrt(fit.variance[i] + fit.variance[j])
    spread = math.hypot(estimate.se, sigma / math.sqrt(max(most, 1)))
    return Outlook(estimate.value, spread, sigma, most, estimate.nu)


def _screen_figures(design: Design, stages: dict[str, StageOne]) -> dict[str, Any]:
    return {
        cell: {
            "leader": design.stacks[s.screening.leader],
            "probability_within_margin": s.screening.probability_within_margin,
            "sigma": s.fit.sigma,
        }
        for cell, s in stages.items()
        if s.screening is not None
    }


def _pairs_words(count: int) -> str:
    return "1 pair" if count == 1 else f"{count} pairs"


def _chance_words(chance: float) -> str:
    return "less than 1 %" if chance < 0.01 else f"{100 * chance:.0f} %"


def _dropped_words(dropped: Sequence[str]) -> str:
    return f"clearly behind, not run again: {', '.join(dropped)}" if dropped else ""
