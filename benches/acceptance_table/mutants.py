"""What must fail: the method with one rule left out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

from acceptance_table import outcome
from pgstrata.analyze import comparison, equivalence, shared_scatter
from pgstrata.analyze import conclude as conclusions
from pgstrata.analyze.comparison import Design
from pgstrata.analyze.fit import BlockFit
from pgstrata.analyze.interval import Estimate, Interval, Mixture
from pgstrata.analyze.screen import probability_within_margin
from pgstrata.analyze.screened_scatter import Scatter
from pgstrata.analyze.simulate import SimulatedCampaign


def narrow_intervals(factor: float) -> Callable[[], None]:
    """The mutant: every interval of a verdict narrower by the factor; returns what undoes it."""
    honest = equivalence.interval

    def narrow(estimate: Estimate, alpha: float, g: Mixture) -> Interval:
        found = honest(estimate, alpha, g)
        half = (found.high - found.low) / 2 / factor
        return Interval(estimate.value - half, estimate.value + half, found.level) if math.isfinite(half) else found

    return _replaced(equivalence, "interval", narrow)


def weaken(rule: str) -> Callable[[], None]:
    """The mutant of a rule, or, given a number, of the intervals; returns what undoes it."""
    if rule not in RULES:
        return narrow_intervals(float(rule))
    return RULES[rule]()


def _without_plain_mean() -> Callable[[], None]:
    """Equal by the robust estimate alone."""
    return _replaced(equivalence, "t_interval", lambda mean, alpha: Interval(0.0, 0.0, 1 - alpha))


def _without_least_runs() -> Callable[[], None]:
    """Equal however few runs there are."""
    defaults = equivalence.judge_pair.__kwdefaults__
    honest = defaults["least_runs"]
    defaults["least_runs"] = 0
    return lambda: defaults.__setitem__("least_runs", honest)


def _chosen_by_screening() -> Callable[[], None]:
    """Chosen by the sum that screening stops at, without a verdict."""

    def by_sum(design: Design, fit: BlockFit, leader: str, *_: object, imported: bool) -> bool:
        rivals, own = range(len(design.stacks)), design.stacks.index(leader)
        return probability_within_margin(fit, own, design.bound, rivals) >= 0.95

    return _replaced(conclusions, "is_chosen", by_sum)


def _without_own_scatter() -> Callable[[], None]:
    """A stack that evidently scatters more than the others takes their scatter too."""
    return _replaced(shared_scatter, "EVIDENT", (0.0,))


def _without_own_scatter_in_the_table() -> Callable[[], None]:
    """The same in the screening table."""
    return _replaced(shared_scatter, "EVIDENT_IN_TABLE", 0.0)


def _plain_reuse() -> Callable[[], None]:
    """Fresh pairs take the scatter that screening saw as it is, from the first pair."""

    def plain(own: Estimate, screened: Scatter | None) -> Estimate:
        if screened is None or own.n < 1:
            return own
        nu = own.n - 1 + screened.freedom
        squares = own.se**2 * own.n * own.nu if own.n > 1 else 0.0
        variance = (squares + screened.freedom * screened.variance) / nu
        return Estimate(own.value, math.sqrt(variance / own.n), nu, own.n)

    return _replaced(comparison, "with_screening", plain)


def _undivided_mixture() -> Callable[[], None]:
    """The evidence of the values of g is summed and not averaged."""
    honest = equivalence.interval

    def summed(estimate: Estimate, alpha: float, g: Mixture) -> Interval:
        return honest(estimate, len(g) * alpha, g)

    return _replaced(equivalence, "interval", summed)


def _one_g() -> Callable[[], None]:
    """No mixture: the first value of g alone."""
    honest, honest_p = equivalence.interval, comparison.anytime_p

    def undo() -> None:
        equivalence.interval, comparison.anytime_p = honest, honest_p

    equivalence.interval = lambda estimate, alpha, g: honest(estimate, alpha, g[:1])
    comparison.anytime_p = lambda estimate, g: honest_p(estimate, g[:1])
    return undo


def _declared_although_extended() -> Callable[[], None]:
    """The intervals of a declared number of blocks stay when blocks are added."""

    def declared(campaign: SimulatedCampaign) -> Design:
        scenario = campaign.scenario
        enough = len(campaign.observations) >= len(scenario.names) * (scenario.blocks or 0)
        return replace(scenario.design, as_declared=enough)

    return _replaced(outcome, "design_of", declared)


def _without_hosts() -> Callable[[], None]:
    """The host is no factor: every block counts for itself, whichever host it ran on."""
    return _replaced(conclusions, "hosts_of", lambda observations: ())


def _intervals_of_one_look_at_any() -> Callable[[], None]:
    """A declared number of blocks has the intervals of its end before it is reached."""
    return _replaced(outcome, "design_of", lambda campaign: campaign.scenario.design)


def _whole_rates_at_one_look() -> Callable[[], None]:
    """A declared number of blocks takes the whole of the error rates."""
    return _replaced(comparison, "ONE_LOOK_SHARE", 1.0)


def _replaced(module: ModuleType, name: str, value: object) -> Callable[[], None]:
    honest = getattr(module, name)
    setattr(module, name, value)
    return lambda: setattr(module, name, honest)


RULES: dict[str, Callable[[], Callable[[], None]]] = {
    "plain-mean": _without_plain_mean,
    "least-runs": _without_least_runs,
    "chosen": _chosen_by_screening,
    "own-scatter": _without_own_scatter,
    "any-look": _intervals_of_one_look_at_any,
    "table-scatter": _without_own_scatter_in_the_table,
    "hosts": _without_hosts,
    "plain-reuse": _plain_reuse,
    "mixture": _undivided_mixture,
    "one-g": _one_g,
    "extended": _declared_although_extended,
    "whole-rates": _whole_rates_at_one_look,
}
"""The rules that a mutant can weaken, beside the width of intervals."""
