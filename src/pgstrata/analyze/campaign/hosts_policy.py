"""The policy of a campaign on several hosts: rounds of one block on each, until the hosts settle every pair.

No stack is dropped: blocks stay complete within a host, and no pair is selected by its own runs. A pure function of the
observations, like every policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pgstrata.analyze.campaign.conclude import PairConclusion, conclude_hosts
from pgstrata.analyze.campaign.policy import planned_design
from pgstrata.analyze.stats.comparison import Design, seconds_by_stack, summary
from pgstrata.analyze.stats.hosts import LEAST_HOSTS
from pgstrata.analyze.stats.interval import CONFIRM_G, interval
from pgstrata.record.decision import Budget, Decision, Observation
from pgstrata.record.reader import CrashData
from pgstrata.spec.campaign import Campaign

LEAST_ROUNDS = 3
"""Blocks of each host before any decision: with fewer, differences between hosts look like noise."""
SETTLED_SHARE = 0.90
"""Share of the scatter between hosts that is the hosts' own. From this share on, more runs narrow the interval by at
most 5 %."""


@dataclass(frozen=True)
class HostsPolicy:
    """Policy that runs every stack on every host, at most `design.max_blocks` times."""

    design: Design
    budget_s: float | None = None

    @classmethod
    def of(cls, campaign: Campaign, stacks: Sequence[str], crashes: Sequence[CrashData] = ()) -> HostsPolicy:
        """Return the policy of a campaign, for those of its stacks that can be built, after these crash trials."""
        runs, design = campaign.runs, planned_design(campaign, stacks, crashes)
        blocks, fixed = runs.blocks or runs.max_blocks, runs.blocks is not None
        return cls(replace(design, max_blocks=blocks, fixed=fixed), runs.budget)

    def decide(self, observations: Sequence[Observation], rounds_done: int, elapsed_s: float) -> Decision:
        """Return the next decision; see `record.decision.Policy`. Rounds are blocks of each host."""
        figures = {}
        open_pairs: list[PairConclusion] = []
        for cell in self.design.cells:
            for pair in conclude_hosts(self.design, observations, cell).confirmed:
                figures[f"{cell}: {pair.a} / {pair.b}"] = summary(pair.verdict)
                open_pairs += [] if pair.verdict.decided else [pair]
        reason = self._why_ended(open_pairs, observations, rounds_done, elapsed_s)
        if reason:
            return Decision("done", (), reason=reason, figures=figures)
        return Decision("screen", self.design.stacks, figures=figures)

    def _why_ended(
        self, open_pairs: Sequence[PairConclusion], observations: Sequence[Observation], done: int, elapsed_s: float
    ) -> str:
        """Return why the campaign ends; empty if another round is worth its cost."""
        if done < min(LEAST_ROUNDS, self.design.max_blocks):
            return self._budget(observations, elapsed_s)
        pairs = "1 pair" if len(open_pairs) == 1 else f"{len(open_pairs)} pairs"
        if self.design.fixed:
            most = self.design.max_blocks
            return (
                f"blocks done: {most} on each host, as planned"
                if done >= most
                else self._budget(observations, elapsed_s)
            )
        if not open_pairs:
            return "every pair is settled over the hosts" if len(self.design.stacks) > 1 else "one stack alone"
        if all(_differ_by_host(pair) for pair in open_pairs):
            return f"{pairs} open: more hosts would settle it, not more runs on these"
        if done >= self.design.max_blocks:
            return f"{pairs} open after {done} blocks on each host"
        return self._budget(observations, elapsed_s)

    def _budget(self, observations: Sequence[Observation], elapsed_s: float) -> str:
        fits = Budget(self.budget_s).fits(sum(seconds_by_stack(observations).values()), elapsed_s)
        return "" if fits else "the time budget is used up"


def _differ_by_host(pair: PairConclusion) -> bool:
    """Return True if the hosts keep the pair open, and not the runs on them."""
    over = pair.over
    if over is None:
        return False
    few = over.estimate.n < LEAST_HOSTS and interval(over.estimate, pair.rates.alpha, CONFIRM_G).excludes_zero()
    return few or (pair.sigma > 0 and over.tau**2 >= SETTLED_SHARE * pair.sigma**2)
