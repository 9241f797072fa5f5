"""From the runs of a screening to the effects of its factors and the combination to choose."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from pgstrata.analyze.campaign.evidence import Evidence
from pgstrata.analyze.campaign.scale import metric_of
from pgstrata.analyze.finding import FactorFinding, InteractionFinding, TuningFinding
from pgstrata.analyze.findings import Findings
from pgstrata.analyze.stats.factor_effects import Effect, factor_effects
from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Tuning
from pgstrata.spec.durability import CLASSES, durability_class
from pgstrata.spec.file.factors import tuned_stack
from pgstrata.spec.printable import summarise_names
from pgstrata.spec.screening import Row, interaction_aliases

MOST_COMBINED = 12
"""Factors whose combinations are all compared; of more, those with the largest effects."""


def tuning_finding(evidence: Evidence) -> TuningFinding | None:
    """Return the effects of a screening in its first cell; None for any other campaign."""
    tuning = evidence.data.campaign.tuning
    if tuning is None or not evidence.cells:
        return None
    cell = evidence.cells[0].id
    names = tuple(tuning.rows)
    metric = metric_of(evidence.goal.primary)
    observed = [o for o in evidence.observations(metric.name) if o.cell == cell]
    blocks = sorted({o.block for o in observed})
    y = np.full((len(names), max(1, len(blocks))), np.nan)
    for o in observed:
        y[names.index(o.stack), blocks.index(o.block)] = metric.to_model(o.value)
    mains, interactions = factor_effects(tuple(tuning.rows.values()), y, metric.bound(evidence.goal.margin))
    found = choose_levels(tuning, mains, interactions)
    gain = expected_gain(found, mains, interactions) if any(found) else None
    return TuningFinding(
        cell=cell,
        factors=tuple(_factor(tuning, effect, chosen) for effect, chosen in zip(mains, found, strict=True)),
        interactions=tuple(_interaction(tuning, effect) for effect in interactions),
        expected=_share(gain) if gain is not None else None,
        runs=len(observed),
        lost=tuple(_lost(evidence, tuning, {o.stack for o in observed})),
    )


def chosen_levels(findings: Findings) -> Row:
    """Return the levels of the chosen combination, in the order of the factors."""
    return tuple(factor.chosen for factor in findings.tuning.factors) if findings.tuning is not None else ()


def choose_levels(tuning: Tuning, mains: Sequence[Effect], interactions: Sequence[Effect]) -> Row:
    """Return the combination with the largest expected gain among those of factors that matter whose durability is not
    weaker than the start's."""
    acting = sorted((e for e in mains if e.verdict == "matters"), key=lambda e: -abs(e.estimate.value))
    start = (False,) * len(mains)
    least = CLASSES.index(_class(tuning, start))
    best = start
    for levels in product((False, True), repeat=min(len(acting), MOST_COMBINED)):
        row = list(start)
        for effect, level in zip(acting, levels, strict=False):
            row[effect.factors[0]] = level
        gain = expected_gain(tuple(row), mains, interactions)
        if gain > expected_gain(best, mains, interactions) and CLASSES.index(_class(tuning, tuple(row))) <= least:
            best = tuple(row)
    return best


def expected_gain(row: Row, mains: Sequence[Effect], interactions: Sequence[Effect]) -> float:
    """Return the expected difference of a combination from the start, by the effects that matter."""
    sides = [1.0 if level else -1.0 for level in row]
    gain = sum(e.estimate.value for e in mains if e.verdict == "matters" and row[e.factors[0]])
    for effect in interactions:
        if effect.verdict == "matters":
            i, j = effect.factors
            gain += effect.estimate.value * (sides[i] * sides[j] - 1) / 2
    return gain


def _class(tuning: Tuning, row: Row) -> str:
    """Return the durability of a combination; the weakest for one that is no valid stack."""
    try:
        return durability_class(tuned_stack(tuning, row, "combination")).class_
    except UsageError:
        return CLASSES[-1]


def _factor(tuning: Tuning, effect: Effect, chosen: bool) -> FactorFinding:
    index = effect.factors[0]
    factor = tuning.factors[index]
    none = (False,) * len(tuning.factors)
    alone = _class(tuning, tuple(other == index for other in range(len(tuning.factors))))
    weaker = CLASSES.index(alone) > CLASSES.index(_class(tuning, none))
    return FactorFinding(
        name=factor.name,
        start=factor.levels[False],
        change=factor.levels[True],
        source=factor.source,
        cost=factor.cost,
        effect=_share(effect.estimate.value),
        low=_share(effect.interval.low),
        high=_share(effect.interval.high),
        verdict=effect.verdict,
        chosen=chosen,
        class_=alone if weaker else "",
    )


def _interaction(tuning: Tuning, effect: Effect) -> InteractionFinding:
    def named(pair: Sequence[int]) -> tuple[str, str]:
        return tuning.factors[pair[0]].name, tuning.factors[pair[1]].name

    pair = (effect.factors[0], effect.factors[1])
    return InteractionFinding(
        factors=named(pair),
        effect=_share(effect.estimate.value),
        low=_share(effect.interval.low),
        high=_share(effect.interval.high),
        verdict=effect.verdict,
        aliases=tuple(named(other) for other in interaction_aliases(tuple(tuning.rows.values()), pair)),
    )


def _share(value: float) -> float | None:
    return math.expm1(value) if math.isfinite(value) else None


def _lost(evidence: Evidence, tuning: Tuning, ran: set[str]) -> Iterator[str]:
    """Describe the stacks that were tried and have no run that counts, by the reason, with the changes that all of them
    have."""
    by: dict[str, list[str]] = {}
    for name in tuning.rows:
        reasons = [one.reason for one in evidence.excluded.get(name, ())]
        reasons += [evidence.unsupported[name]] if name in evidence.unsupported else []
        if reasons and name not in ran:
            by.setdefault(reasons[0], []).append(name)
    for reason, names in by.items():
        levels = zip(*(tuning.rows[name] for name in names), strict=True)
        common = [f"{f.name}={f.levels[True]}" for f, own in zip(tuning.factors, levels, strict=True) if all(own)]
        yield f"{summarise_names(names)} ({', '.join(common) or 'no change in common'}): {reason}"
