"""What must fail: the method with one rule left out."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from acceptance_table import outcome, simulated
from pgstrata.analyze.campaign import conclude as conclusions
from pgstrata.analyze.campaign import run_features, tuning
from pgstrata.analyze.campaign import simulate as simulation
from pgstrata.analyze.campaign.simulate import SimulatedCampaign
from pgstrata.analyze.sessions import comparison as sessions
from pgstrata.analyze.stats import (
    ageing,
    bad_mode,
    comparison,
    equivalence,
    factor_effects,
    hosts,
    serial,
    shared_scatter,
    shifts,
    slice_effects,
)
from pgstrata.analyze.stats.comparison import Design
from pgstrata.analyze.stats.fit import BlockFit
from pgstrata.analyze.stats.interval import Estimate, Floats, Interval, Mixture, t_p
from pgstrata.analyze.stats.screen import probability_within_margin
from pgstrata.analyze.stats.screened_scatter import Scatter
from pgstrata.spec.durability import CLASSES


def narrow_intervals(factor: float) -> Callable[[], None]:
    """The mutant: every interval of a verdict narrower by the factor; returns what undoes it."""
    honest = equivalence.interval

    def narrow(estimate: Estimate, alpha: float, g: Mixture) -> Interval:
        found = honest(estimate, alpha, g)
        half = (found.high - found.low) / 2 / factor
        return Interval(estimate.value - half, estimate.value + half, found.level) if math.isfinite(half) else found

    return replaced(equivalence, "interval", narrow)


def weaken(rule: str) -> Callable[[], None]:
    """The mutant of a rule, or, given a number, of the intervals; returns what undoes it."""
    if rule not in RULES:
        return narrow_intervals(float(rule))
    return RULES[rule]()


def _without_plain_mean() -> Callable[[], None]:
    """Equal by the robust estimate alone."""
    return replaced(equivalence, "t_interval", lambda mean, alpha: Interval(0.0, 0.0, 1 - alpha))


def _independent_pairs() -> Callable[[], None]:
    """Differences of neighbouring blocks count as independent ones."""
    return replaced(serial, "correlation", lambda d: 0.0)


def _robust_alone() -> Callable[[], None]:
    """Better and worse by the robust estimate alone."""
    return replaced(equivalence, "_opposed_n", lambda mean, found, value: None)


def _modes_ignored() -> Callable[[], None]:
    """Claims of any size beside two modes of the differences."""
    return replaced(equivalence, "MODES_APART", 0.0)


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

    return replaced(conclusions, "is_favoured", by_sum)


def _random_order() -> Callable[[], None]:
    """Every block in an order of its own, whichever stack ran last."""
    return replaced(simulation, "following", lambda last, order: list(order))


def _turns_as_they_stand() -> Callable[[], None]:
    """Every round of turns in the same order."""
    return replaced(simulated, "turn_order", lambda standing, turn: standing)


def _evident_alone() -> Callable[[], None]:
    """A stack that evidently scatters more has the degrees of freedom of its own runs alone."""
    return replaced(shared_scatter, "EVIDENT_RUNS", 0)


def _dropped_untold() -> Callable[[], None]:
    """Such a stack is dropped before the table proves its difference."""

    def dropped(stage: comparison.StageOne, design: Design) -> tuple[int, ...]:
        return stage.screening.dropped if stage.screening else ()

    return replaced(comparison.StageOne, "droppable", dropped)


def _without_own_scatter() -> Callable[[], None]:
    """A stack that evidently scatters more than the others takes their scatter too."""
    return replaced(shared_scatter, "EVIDENT", (0.0,))


def _without_own_scatter_in_the_table() -> Callable[[], None]:
    """The same in the screening table."""
    return replaced(shared_scatter, "EVIDENT_IN_TABLE", 0.0)


def _plain_reuse() -> Callable[[], None]:
    """Fresh pairs take the scatter that screening saw as it is, from the first pair; without the side of the plain
    mean, which widens the same intervals and hides it. That rule left out alone fails no row of this scenario."""

    def plain(own: Estimate, screened: Scatter | None) -> Estimate:
        if screened is None or own.n < 1:
            return own
        nu = own.n - 1 + screened.freedom
        squares = own.se**2 * own.n * own.nu if own.n > 1 else 0.0
        variance = (squares + screened.freedom * screened.variance) / nu
        return Estimate(own.value, math.sqrt(variance / own.n), nu, own.n)

    undo, of_mean = replaced(comparison, "with_screening", plain), _robust_alone()

    def both() -> None:
        undo()
        of_mean()

    return both


def _undivided_mixture() -> Callable[[], None]:
    """The evidence of the values of g is summed and not averaged."""
    honest = equivalence.interval

    def summed(estimate: Estimate, alpha: float, g: Mixture) -> Interval:
        return honest(estimate, len(g) * alpha, g)

    return replaced(equivalence, "interval", summed)


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

    return replaced(outcome, "design_of", declared)


def _without_hosts() -> Callable[[], None]:
    """The host is no factor: every block counts for itself, whichever host it ran on."""
    return replaced(conclusions, "hosts_of", lambda observations: ())


def _intervals_of_one_look_at_any() -> Callable[[], None]:
    """A declared number of blocks has Student's intervals before it is reached."""
    return replaced(outcome, "design_of", lambda campaign: campaign.scenario.design)


def _whole_rates_at_one_look() -> Callable[[], None]:
    """A declared number of blocks takes the whole of the error rates."""
    return replaced(comparison, "ONE_LOOK_SHARE", 1.0)


def _hosts_alone() -> Callable[[], None]:
    """The variance of a host is that of its own blocks, however few, and trusted as if it were that of all."""
    return replaced(hosts, "shared_variances", lambda variance, nu: (variance, 0 * nu + nu.sum()))


def _however_few_hosts() -> Callable[[], None]:
    """A claim over a kind of machine of three hosts."""
    return replaced(hosts, "LEAST_HOSTS", 0)


def _blocks_of_sessions() -> Callable[[], None]:
    """Sessions are compared by their blocks alone."""
    return replaced(sessions, "between_sessions", lambda value, others: Estimate(value, 0.0, 1, 1))


def _modes_untold() -> Callable[[], None]:
    """Equality says nothing of modes that its runs can have missed."""
    return replaced(outcome, "unseen_mode", lambda verdict: 1e-9 if verdict.verdict == "equal" else None)


def _all_nights() -> Callable[[], None]:
    """The variance of all nights, however it grew."""
    return replaced(shifts, "LAST", 10**9)


def _two_nights() -> Callable[[], None]:
    """A new level of two nights."""
    return replaced(shifts, "LEAST", 2)


def _independent_nights() -> Callable[[], None]:
    """Nights that resemble the one before count as independent ones."""
    return replaced(shifts, "_remembered", lambda segment, at: 0.0)


def _rounding_ignored() -> Callable[[], None]:
    """A bad mode however coarse the steps of the throughput are."""
    return replaced(bad_mode, "STEPS", 0.0)


def _independent_blocks_of_a_line() -> Callable[[], None]:
    """Differences that grow are tested as if neighbouring blocks were independent."""
    return replaced(ageing, "correlation", lambda d: 0.0)


def _sampling_told() -> Callable[[], None]:
    """Every swing of a sampled counter is told."""
    return replaced(run_features, "is_beyond_sampling", lambda line: True)


def _every_block_read() -> Callable[[], None]:
    """Tests of slices are read after every block, each time at their whole level."""
    return replaced(slice_effects, "READINGS", dict.fromkeys(range(6, 25), 1.0))


def _factors_singly() -> Callable[[], None]:
    """Each factor of a screening at the whole level."""
    return replaced(factor_effects, "holm_rejects", lambda p_values, alpha: tuple(p < alpha for p in p_values))


def _factors_at_one_look() -> Callable[[], None]:
    """Effects are judged after every block as if it were the only one."""
    return replaced(factor_effects, "anytime_p", lambda estimate, g: t_p(estimate))


def _lost_rows_counted() -> Callable[[], None]:
    """Effects by the weights of the whole design, whichever of its rows ran."""

    def whole(fit: BlockFit, columns: Floats) -> list[Estimate]:
        effect = np.nan_to_num(fit.effect)
        weights = np.linalg.pinv(columns)
        count = Estimate(0.0, fit.sigma / math.sqrt(fit.runs.sum() / 4), fit.df, float(fit.runs.sum()) / 2)
        return [replace(count, value=float(row @ effect)) for row in weights]

    return replaced(factor_effects, "_estimates", whole)


def _choice_of_any_class() -> Callable[[], None]:
    """The combination is chosen among all, durable or not."""
    return replaced(tuning, "_class", lambda found, row: CLASSES[0])


def _interactions_ignored() -> Callable[[], None]:
    """The gain of a combination is the sum of its main effects."""
    honest = tuning.expected_gain
    return replaced(tuning, "expected_gain", lambda row, mains, interactions: honest(row, mains, ()))


def replaced(module: object, name: str, value: Any) -> Callable[[], None]:
    """Replace a rule until the result is called; TypeError if what replaces a function does not take its arguments."""
    honest = getattr(module, name)
    if callable(honest):
        parameters = inspect.signature(honest).parameters.values()
        named = {one.name: None for one in parameters if one.kind is one.KEYWORD_ONLY}
        inspect.signature(value).bind(*[None] * (len(parameters) - len(named)), **named)
    setattr(module, name, value)
    return lambda: setattr(module, name, honest)


RULES: dict[str, Callable[[], Callable[[], None]]] = {
    "random-order": _random_order,
    "turn-order": _turns_as_they_stand,
    "slice-looks": _every_block_read,
    "evident-runs": _evident_alone,
    "dropped-untold": _dropped_untold,
    "plain-mean": _without_plain_mean,
    "independent": _independent_pairs,
    "mean-side": _robust_alone,
    "modes-ignored": _modes_ignored,
    "least-runs": _without_least_runs,
    "chosen": _chosen_by_screening,
    "own-scatter": _without_own_scatter,
    "any-look": _intervals_of_one_look_at_any,
    "table-scatter": _without_own_scatter_in_the_table,
    "hosts": _without_hosts,
    "plain-reuse": _plain_reuse,
    "own-hosts": _hosts_alone,
    "least-hosts": _however_few_hosts,
    "sessions": _blocks_of_sessions,
    "all-nights": _all_nights,
    "two-nights": _two_nights,
    "independent-nights": _independent_nights,
    "rounding": _rounding_ignored,
    "independent-line": _independent_blocks_of_a_line,
    "sampling": _sampling_told,
    "mixture": _undivided_mixture,
    "one-g": _one_g,
    "extended": _declared_although_extended,
    "modes-untold": _modes_untold,
    "whole-rates": _whole_rates_at_one_look,
    "factors-singly": _factors_singly,
    "factors-one-look": _factors_at_one_look,
    "lost-rows": _lost_rows_counted,
    "any-class": _choice_of_any_class,
    "no-interactions": _interactions_ignored,
}
"""The rules that a mutant can weaken, beside the width of intervals."""
