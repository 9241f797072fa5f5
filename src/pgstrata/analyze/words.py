"""Sentences that a database administrator reads. Names stand in backticks, verdicts between double asterisks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pgstrata.analyze.conclude import PairConclusion
from pgstrata.analyze.forecast import smallest_margin
from pgstrata.analyze.interval import Interval
from pgstrata.analyze.scale import Metric
from pgstrata.analyze.shape import Shape
from pgstrata.spec.units import render_duration

SURE = 0.95
_FASTER = frozenset({"tps", "latency_avg_ms"})


def quoted(name: str) -> str:
    """A name as markup; a backtick of its own would end it."""
    return f"`{name.replace('`', chr(39))}`"


def listed(names: Sequence[str]) -> str:
    """`a`, `b` and `c`."""
    marked = [quoted(n) for n in names]
    return marked[0] if len(marked) == 1 else f"{', '.join(marked[:-1])} and {marked[-1]}"


def percent(share: float) -> str:
    """`12 %`, `1.4 %`: two digits below 10 %."""
    value = 100 * share
    return f"{value:.1f} %".replace(".0 %", " %") if abs(value) < 10 else f"{value:.0f} %"


def pair_sentence(pair: PairConclusion, metric: Metric, seconds_per_pair: float | None, imported: bool = False) -> str:
    """The verdict on a pair with its estimate and interval."""
    match pair.verdict.verdict:
        case "equal":
            return _equal(pair, metric)
        case "undecided":
            return _undecided(pair, metric, seconds_per_pair)
    return _different(pair, metric, imported)


def _equal(pair: PairConclusion, metric: Metric) -> str:
    within = metric.margin_of(pair.bound)
    text = f"{_versus(pair, metric, pair.verdict.equivalence)}: **practically equal** (within {within}"
    if pair.verdict.interval.excludes_zero():
        first = pair.verdict.estimate.value > 0
        better, other = (pair.a, pair.b) if first else (pair.b, pair.a)
        text += f"; {quoted(better)} is a little {_word(metric, better=True)} {quoted(other)}"
    return text + ")."


def _different(pair: PairConclusion, metric: Metric, imported: bool) -> str:
    a, b = (pair.a, pair.b) if pair.verdict.verdict == "worse" else (pair.b, pair.a)
    sign = 1 if pair.verdict.verdict == "worse" else -1
    # How far the lesser one is behind is positive; a bound on the other side of no difference keeps its minus.
    estimate, *both = (
        -metric.sign * _change(metric, sign * x) for x in (pair.verdict.estimate.value, *_bounds(pair.verdict.interval))
    )
    low, high = sorted(both)
    bounds = f"{_amount(metric, estimate)} ({_bare(metric, low)} ... {_bare(metric, high)})"
    proof = "**proven**" if pair.confirmed else f"**shown, not confirmed**{' (imported)' if imported else ''}"
    return f"{quoted(a)} is {_word(metric, better=False)} {quoted(b)} by {bounds}: {proof}."


def _undecided(pair: PairConclusion, metric: Metric, seconds_per_pair: float | None) -> str:
    text = f"{_versus(pair, metric, pair.verdict.interval)}: **undecided**."
    margin = metric.margin_of(pair.bound)
    needed = pair.needed()
    if needed is not None:
        cost = f" ({render_duration(needed * seconds_per_pair)})" if seconds_per_pair else ""
        more = "pair" if needed == 1 else "pairs"
        text += f" About {needed} more {more}{cost} would settle {margin}"
    else:
        text += f" No affordable number of pairs would settle {margin}"
    acceptable = pair.verdict.acceptable_bound
    if math.isfinite(acceptable) and acceptable > pair.bound:
        return f"{text}; {metric.margin_of(acceptable)} can be accepted now."
    return text + "."


def _versus(pair: PairConclusion, metric: Metric, bounds: Interval) -> str:
    """`a` vs `b`: -0.3 % (-1.6 ... +1.1)."""
    estimate = _change(metric, pair.verdict.estimate.value)
    text = f"{quoted(pair.a)} vs {quoted(pair.b)}: {_amount(metric, estimate, sign=True)}"
    if not math.isfinite(bounds.low):
        return text
    low, high = sorted(_change(metric, x) for x in _bounds(bounds))
    return f"{text} ({_bare(metric, low, sign=True)} ... {_bare(metric, high, sign=True)})"


def _bounds(bounds: Interval) -> tuple[float, float]:
    return bounds.low, bounds.high


def _change(metric: Metric, model: float) -> float:
    """The metric's own change for a difference on the scale of the model: a share, or its unit."""
    value = metric.sign * model
    return math.expm1(value) if metric.scale == "ratio" else value


def _amount(metric: Metric, value: float, sign: bool = False) -> str:
    unit = " %" if metric.scale == "ratio" else f" {metric.unit_of_difference}".rstrip()
    return _bare(metric, value, sign) + unit


def _bare(metric: Metric, value: float, sign: bool = False) -> str:
    plus = "+" if sign else ""
    if metric.scale == "difference":
        return f"{value:{plus}.3g}"
    value = round(100 * value, 1) + 0.0  # no minus zero
    text = f"{value:{plus}.1f}" if abs(value) < 10 else f"{value:{plus}.0f}"
    return text.removesuffix(".0")


def _word(metric: Metric, *, better: bool) -> str:
    if metric.name in _FASTER:
        return "faster than" if better else "slower than"
    return f"{'better' if better else 'worse'} ({metric.phrase}) than"


def chosen_sentence(name: str, probability: float | None, metric: Metric, bound: float, rivals: int) -> str:
    """Which stack is chosen, and how sure that is."""
    if probability is None or rivals < 1:
        return f"{quoted(name)} is the only stack with enough runs."
    within = f"within {metric.margin_of(bound)} of the best"
    if probability >= SURE:
        return f"{quoted(name)} is **chosen**: it is {within} with probability {_probability(probability)}."
    return (
        f"{quoted(name)} leads, but that is **not settled**: "
        f"it is {within} with probability {_probability(probability)}."
    )


def _probability(value: float) -> str:
    """Never rounded up to certainty."""
    return "over 99 %" if value > 0.99 else f"{math.floor(100 * value)} %"


def not_confirmed_sentence(pair: PairConclusion, metric: Metric, pairs: int) -> str:
    """Why nothing was confirmed, and what the given number of fresh pairs could prove instead."""
    reach = metric.margin_of(smallest_margin(pair.sigma, pairs))
    return (
        f"{quoted(pair.a)} against {quoted(pair.b)} was not confirmed with fresh pairs; the smallest margin that "
        f"{pairs} pairs could prove here is {reach}."
    )


def screened_sentence(chosen: str, pairs: Iterable[PairConclusion], metric: Metric, imported: bool) -> str:
    """What screening says of the others against the chosen one, in one sentence; empty if nothing."""
    behind: list[str] = []
    for pair in pairs:
        verdict = pair.verdict.verdict
        if (pair.a == chosen and verdict == "better") or (pair.b == chosen and verdict == "worse"):
            other = pair.b if pair.a == chosen else pair.a
            change = _change(metric, abs(pair.verdict.estimate.value) * (-1))
            behind.append(f"{quoted(other)} ({_amount(metric, change, sign=True)})")
    if not behind:
        return ""
    source = "by the imported runs" if imported else "by screening"
    return f"Behind {quoted(chosen)} {source}: {', '.join(behind)}."


def stall_sentence(name: str, half: float, stalled: float, longest_s: float) -> str:
    """Names a stack whose throughput breaks off, from the medians of its runs."""
    shares = []
    if half >= 0.25:
        shares.append(f"{percent(half)} below half of its own median")
    if stalled >= 0.01 or longest_s >= 3:
        shares.append(f"{percent(stalled)} below a tenth of its own median (the longest stall: {longest_s:.0f} s)")
    return f"{quoted(name)} **stalls**: of its seconds, {' and '.join(shares)}." if shares else ""


def trend_sentence(name: str, slope: float) -> str:
    """A trend within the runs of a stack."""
    word = "falls" if slope < 0 else "rises"
    return f"Throughput of {quoted(name)} {word} within a run, by {percent(abs(slope))} an hour: a long run would tell."


def soak_sentence(name: str, runs: int, duration_s: float, slope: float) -> str:
    """What the long runs of a stack showed."""
    times = "one run" if runs == 1 else f"{runs} runs"
    moved = (
        "keeps its throughput"
        if abs(slope) < 0.01
        else f"{'loses' if slope < 0 else 'gains'} {percent(abs(slope))} an hour"
    )
    return f"Soak: {quoted(name)} {moved} over {times} of {render_duration(duration_s)} (median Theil-Sen slope)."


def matched_sentence(rate_tps: float, metric: Metric, levels: Mapping[str, float]) -> str:
    """Latency at one rate that every stack was given alike, from low to high."""
    if not levels:
        return f"At {rate_tps:g} transactions a second scheduled: no latency was recorded."
    order = sorted(levels.items(), key=lambda item: item[1])
    listed_levels = ", ".join(f"{quoted(name)} {value:.3g} ms" for name, value in order)
    return f"At {rate_tps:g} transactions a second scheduled, {metric.phrase}: {listed_levels}."


def capacity_sentence(percentile: str, objective_ms: float, capacities: Mapping[str, float]) -> str:
    """The highest rate that kept the objective, best first; the search is 2.5 % wide."""
    order = sorted(capacities.items(), key=lambda item: -item[1])
    listed_rates = ", ".join(f"{quoted(name)} {tps:,.0f} TPS" for name, tps in order)
    return f"Capacity with {percentile} within {objective_ms:g} ms (to 2.5 %): {listed_rates}."


_FEW = 3
_FIFTHS = ("first", "second", "third", "fourth", "last")


def shape_sentences(name: str, shape: Shape) -> Iterator[str]:
    """Checkpoints, periods and changes of level within the runs of a stack."""
    if shape.checkpoint_depth is not None and shape.checkpoint_slowest is not None:
        fifth = _FIFTHS[shape.checkpoint_slowest]
        yield (
            f"{quoted(name)} follows the checkpoints: slowest in the {fifth} fifth of the cycle, "
            f"by {percent(shape.checkpoint_depth)} of its mean against the fastest."
        )
    if shape.period_s is not None:
        yield f"Throughput of {quoted(name)} swings with a period of {shape.period_s:.0f} s."
    yield from level_sentences(name, shape.changes_s)


def level_sentences(name: str, changes_s: Sequence[float]) -> Iterator[str]:
    """When a stack changed its level within a run; nothing where it kept it."""
    if len(changes_s) > _FEW:
        yield f"{quoted(name)} changed its level {len(changes_s)} times within a run."
    elif changes_s:
        at = ", ".join(render_duration(t) for t in changes_s)
        yield f"{quoted(name)} changed its level within a run, at {at}."


def length_sentence(best_s: float, length_s: float) -> str:
    """The best length of a run, where the runs were far from it."""
    return (
        f"Runs of about {render_duration(round(best_s, -1) or 10)} would make the most of the machine's time here "
        f"(these: {render_duration(length_s)})."
    )
