"""Sentences for database administrators, made from typed statements, once for all renderers.

Names stand in backticks, verdicts between double asterisks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, assert_never

from pgstrata.analyze.campaign.caveats import NOTABLE
from pgstrata.analyze.campaign.pair_findings import pair_statement
from pgstrata.analyze.campaign.scale import Metric, metric_of
from pgstrata.analyze.campaign.statements import (
    AgeingBuilds,
    BadModeStatement,
    Behind,
    BestLength,
    Capacity,
    CapacityBracket,
    CheckpointCost,
    Choice,
    Claim,
    DeclaredBlocks,
    Growing,
    LateDisks,
    LevelChanges,
    LevelsApart,
    LostRuns,
    MatchedLoad,
    NotCompared,
    NotConfirmed,
    NoVerdict,
    PairStatement,
    Period,
    Price,
    Remembering,
    SoakTrend,
    Stalls,
    Statement,
    Trend,
    TurnOrder,
    UnlikeBuilds,
    WholeRunsApart,
)
from pgstrata.analyze.finding import Modes, Rounds, Transactions, Uncounted, Unlike
from pgstrata.analyze.findings import Comparison
from pgstrata.analyze.stats.forecast import MOST_PAIRS
from pgstrata.report.sentences.figures import (
    LEAST_S,
    UNBOUNDED,
    is_bounded,
    percent,
    render_count,
    render_factor,
    render_number,
)
from pgstrata.report.sentences.markup import listed, quoted
from pgstrata.report.sentences.steadiness import remark_words, slices_words, soak_words
from pgstrata.spec.printable import summarise_names
from pgstrata.spec.units import render_duration

Tone = Literal["chosen", "proven", "equal", "undecided", "stalls", "plain"]

MOST_ACCEPTABLE = 0.20
"""Margin beyond which "equal within" is of no use."""
LONGEST_SETTLING_S = 7 * 86400.0
"""A longer time to settle a margin is not shown as a number."""
MOST_HOSTS = 100
"""The same for hosts of a kind."""
FACTOR_FROM = 2.0
"""Ratios from here on are shown as factors, as in the table."""
_FASTER = frozenset({"tps", "latency_avg_ms"})
_FEW = 3
_PROMISES = {
    "survives power loss": ("that survives power loss", "that survive power loss"),
    "loses recent commits": ("that loses recent commits at most", "that lose recent commits at most"),
    "unknown": ("of unknown durability", "of unknown durability"),
    "loses on power loss": ("that may lose everything", "that may lose everything"),
}
"""Promise of one stack, and of several."""


def comparison_words(comparison: Comparison) -> str:
    """Return the sentence on a comparison in the declared metric; empty for any other."""
    return sentence(pair_statement(comparison)) if comparison.margin is not None else ""


def uncounted_words(uncounted: Uncounted) -> str:
    """Return a follow-on sentence on transactions that are not in the figures or were retried, by stack; empty if none
    is notable."""
    told = [f"of {quoted(name)} {shares_words(transactions)}" for name, transactions in uncounted.items()]
    return f" **Committed transactions alone count**: {'; '.join(told)}." if told else ""


def unlike_words(unlike: Unlike) -> str:
    """Return a follow-on sentence on servers, checksums, networks or client machines that differ; empty if none do."""
    told = [f"{what} ({_values_words(by_stack)})" for what, by_stack in unlike.items()]
    return f" **They also differ in** {'; '.join(told)}." if told else ""


def _values_words(by_stack: Mapping[str, str]) -> str:
    values = dict.fromkeys(by_stack.values())
    return ", ".join(f"{listed([n for n, own in by_stack.items() if own == value])} {value}" for value in values)


def caveat_words(claim: Claim) -> str:
    """Return the follow-on sentences of a claim on stacks."""
    return unlike_words(claim.unlike) + uncounted_words(claim.uncounted)


def shares_words(transactions: Transactions) -> str:
    """Return `12 % failed and 3 % were retried`."""
    return " and ".join(f"{percent(s)} {what}" for what, s in transactions.shares.items() if s >= NOTABLE)


def warning_words(comparison: Comparison) -> str:
    """Return a warning if a second estimate disagrees; else empty."""
    if comparison.cross_check is None:
        return ""
    return (
        f"the Hodges-Lehmann estimate is {comparison.cross_check:.3f}, more than half a margin away: "
        "look at the single runs"
    )


def tone_of(statement: Statement) -> Tone:
    """Return the tone of a statement, which selects its sign."""
    match statement:
        case Choice():
            return "undecided" if statement.relation == "leads" else "chosen"
        case PairStatement(relation="equal"):
            return "equal"
        case PairStatement():
            return "proven" if statement.certainty == "proven" else "undecided"
        case NoVerdict():
            return "plain" if statement.reason in ("emulated", "alone") else "undecided"
        case NotConfirmed():
            return "undecided"
        case Stalls() | BadModeStatement() | LateDisks() | LostRuns():
            return "stalls"
    return "plain"


def sentence(statement: Statement) -> str:
    """Return the sentence for a statement."""
    return bare_sentence(statement) + (caveat_words(statement) if isinstance(statement, Claim) else "")


def bare_sentence(statement: Statement) -> str:
    """Return the sentence without its caveats."""
    match statement:
        case NoVerdict():
            return _no_verdict(statement)
        case Choice():
            return _choice(statement)
        case PairStatement():
            return {"equal": _equal, "undecided": _undecided}.get(statement.relation, _different)(statement)
        case NotConfirmed():
            return _not_confirmed(statement)
        case Behind():
            return _behind(statement)
        case Price():
            return _price(statement)
        case NotCompared():
            return f"Not compared, too few runs in common: {listed(statement.names)}."
        case MatchedLoad():
            return _matched_load(statement)
        case Capacity():
            return _capacity(statement)
        case BadModeStatement():
            return _bad_mode(statement)
        case LevelsApart():
            return _levels_apart(statement)
        case Remembering():
            return _remembering(statement)
        case WholeRunsApart() | AgeingBuilds() | TurnOrder() | UnlikeBuilds():
            return slices_words(statement)
        case Growing():
            return _growing(statement)
        case LostRuns():
            return _lost_runs(statement)
        case DeclaredBlocks():
            return (
                f"Intervals are of the {statement.blocks} declared blocks: **of this design, not extendable**; "
                "after more blocks, wider ones that hold at any look take their place."
            )
        case BestLength():
            return (
                f"Runs of about {render_duration(round(statement.best_s, -1) or 10)} would make the best "
                f"use of the machine's time here (these runs: {render_duration(statement.length_s)})."
            )
        case LateDisks():
            return _late_disks(statement)
        case SoakTrend():
            return soak_words((statement,))
        case Stalls() | Trend() | CheckpointCost() | Period() | LevelChanges():
            return remark_words(statement)
    assert_never(statement)


# ---------------------------------------------------------------- verdicts


def _no_verdict(statement: NoVerdict) -> str:
    match statement.reason:
        case "emulated":
            return "Functional only: throughput on an emulated machine is not compared."
        case "single runs":
            return "Single runs give **no verdict**: a difference between stacks cannot be told from chance."
        case "alone":
            return f"{quoted(statement.subject)} alone: there is nothing to compare it with."
        case "no candidate":
            return f"**No verdict**: there is no stack {_promise(statement.subject, 1)}, as the goal demands."
    return "There are too few runs for any verdict yet: it takes at least two blocks of two stacks."


def _choice(statement: Choice) -> str:
    among = f"Among stacks {_promise(statement.class_)}: " if statement.class_ else ""
    name, margin = quoted(statement.subject), _margin(metric_of(statement.metric), statement.margin)
    match statement.relation:
        case "chosen":
            return f"{among}{name} is **chosen**: within {margin} of the best, with at least 95 % confidence."
        case "leads" if statement.bad_mode_cost is not None:
            metric = metric_of(statement.metric)
            cost = _changed(metric, abs(_change(metric, statement.bad_mode_cost)))
            return f"{among}{name} leads, but is **not chosen**: its bad mode costs {cost} of the mean of its runs."
        case "leads":
            return f"{among}{name} leads, but that is **not settled**: a verdict against another stack is open."
        case "only one":
            return f"{name} is **chosen**: it is the only stack {_promise(statement.class_, 1)}."
    assert_never(statement.relation)


def _promise(class_: str | None, stacks: int = 2) -> str:
    one, several = _PROMISES.get(class_ or "", ("with enough runs", "with enough runs"))
    return one if stacks == 1 else several


def _equal(pair: PairStatement) -> str:
    metric = metric_of(pair.metric)
    text = f"{versus(pair)}: **practically equal** (within {_margin(metric, pair.margin)}"
    if pair.leaning is not None:
        better, other = (pair.subject, pair.object) if pair.leaning == "better" else (pair.object, pair.subject)
        text += f"; {quoted(better)} is a little {_word(metric, better=True)} {quoted(other)}"
    if pair.unseen_mode is None:
        return f"{text})."
    return f"{text}). A mode of less than {percent(pair.unseen_mode)} of the runs could have been missed."


def _different(pair: PairStatement) -> str:
    metric = metric_of(pair.metric)
    a, b = (pair.subject, pair.object) if pair.relation == "worse" else (pair.object, pair.subject)
    values = [v for v in (pair.amount, pair.low, pair.high) if v is not None]
    turned = values if pair.relation == "worse" else [_turned(metric, v) for v in values]
    # The deficit of the worse stack is positive; a bound on the other side of no difference keeps its minus.
    estimate, *bounds = (-metric.sign * _change(metric, v) for v in turned)
    shown = is_bounded(pair.low, pair.high, metric)
    interval = f" ({' ... '.join(_bare(metric, v) for v in sorted(bounds))})" if shown else ""
    proof = "**proven**" if pair.certainty == "proven" else "**shown, not confirmed**"
    imported = " (imported)" if pair.source == "import" else " over the hosts" if pair.source == "hosts" else ""
    text = f"{quoted(a)} is {_word(metric, better=False)} {quoted(b)} by {_changed(metric, estimate)}"
    return f"{text}{interval}: {proof}{imported}."


def _undecided(pair: PairStatement) -> str:
    metric = metric_of(pair.metric)
    settling = _settling(pair, metric)
    counted = rounds_words(pair.subject, pair.object, pair.metric, pair.rounds)
    told = f" {counted}." if counted else ""
    told += f" {_modes_words(pair.modes, metric)}" if pair.modes is not None else ""
    text = f"{versus(pair)}: **undecided**.{told}{f' {settling}' if settling else ''}"
    acceptable = pair.acceptable_margin
    if acceptable is not None and metric.scale == "ratio" and pair.margin < acceptable <= MOST_ACCEPTABLE:
        now = f"{_margin(metric, acceptable)} can be accepted now"
        return f"{text}; {now}." if settling else f"{text} {now}."
    return f"{text}." if settling else text


def rounds_words(a: str, b: str, name: str, rounds: Rounds | None) -> str:
    """Return in how many rounds which of two was worse, and the interval of a single look, without a full stop.

    Empty with fewer than two rounds. Such an interval convinces nobody of a difference once the runs were looked at
    after each round: the sentence calls it by its name.
    """
    if rounds is None or rounds.blocks < 2:
        return ""
    metric, is_worse = metric_of(name), rounds.worse >= rounds.better
    worse, better = (a, b) if is_worse else (b, a)
    count = max(rounds.worse, rounds.better)
    times = f"each of {rounds.blocks}" if count == rounds.blocks else f"{count} of {rounds.blocks}"
    text = f"{quoted(worse)} was {_word(metric, better=False)} {quoted(better)} in {times} rounds"
    if rounds.low is None or rounds.high is None or not is_bounded(rounds.low, rounds.high, metric):
        return text
    values = (rounds.low, rounds.high) if is_worse else [_turned(metric, v) for v in (rounds.low, rounds.high)]
    low, high = sorted(_change(metric, v) for v in values)
    once = f"{_bare(metric, low, sign=True)} ... {_changed(metric, high, sign=True)}"
    return f"{text} ({quoted(worse)} against {quoted(better)} at a single look, 95 %: {once})"


def _modes_words(modes: Modes, metric: Metric) -> str:
    apart = _changed(metric, modes.high / modes.low - 1 if metric.scale == "ratio" else modes.high - modes.low)
    return (
        f"The rounds fall into two modes that are {apart} apart ({modes.below} and {modes.above} rounds), as when "
        "builds come out fast or slow: a difference of this size takes more rounds of both."
    )


def _settling(pair: PairStatement, metric: Metric) -> str:
    """Return the cost of settling the pair, without a full stop; empty if that is impossible or unknown."""
    margin = _margin(metric, pair.margin)
    if pair.source == "import" or (pair.sigma is None and pair.settled_by_pairs is None):
        return ""
    beyond = beyond_words(pair.settled_by_pairs, pair.settled_by_s or 0.0, hosts=pair.source == "hosts")
    if pair.settled_by_pairs is None or beyond:
        return f"It would take more than {beyond} to settle it at a margin of {margin}"
    cost = f" ({render_duration(pair.settled_by_s)})" if pair.settled_by_s else ""
    more = "more host" if pair.source == "hosts" else "more pair"
    needed = f"{render_count(pair.settled_by_pairs, more)}{cost}"
    return f"About {needed} would settle it at a margin of {margin} if the difference stays as it is"


def beyond_words(needed: int | None, seconds: float, *, hosts: bool) -> str:
    """Return the limit that these further pairs or hosts, or their time, exceed; empty if they exceed none. Without a
    number, the forecast found none up to its limit."""
    if hosts:
        return f"{MOST_HOSTS} more hosts" if needed is None or needed > MOST_HOSTS else ""
    if needed is None:
        return f"{MOST_PAIRS:,} pairs"
    return "a week" if seconds > LONGEST_SETTLING_S else ""


def _not_confirmed(statement: NotConfirmed) -> str:
    pair = f"{quoted(statement.subject)} against {quoted(statement.object)} was not confirmed with fresh pairs"
    metric, reach = metric_of(statement.metric), statement.provable_margin
    if reach is None or (metric.scale == "ratio" and reach > MOST_ACCEPTABLE):
        return f"{pair}."
    return f"{pair}; the smallest margin that {statement.pairs} pairs could prove here is {_margin(metric, reach)}."


def _behind(statement: Behind) -> str:
    metric = metric_of(statement.metric)
    behind = ", ".join(f"{quoted(o.name)} ({signed_change(metric, o.value)})" for o in statement.others)
    source = "by the imported runs" if statement.source == "import" else "by screening"
    return f"Behind {quoted(statement.subject)} {source}: {behind}."


def _price(statement: Price) -> str:
    metric = metric_of(statement.metric)
    loss = "its durability is not known" if statement.class_ == "unknown" else f"it {statement.class_}"
    is_certain = statement.proven or _excludes_none(metric, statement.low, statement.high)
    better = f"{'would be' if is_certain else 'seems'} {_word(metric, better=True)} {quoted(statement.object)}"
    size, bounds = _size(metric, statement.amount, statement.low, statement.high, sign=False)
    by = ": " if size.endswith("×") else " by "
    return f"The price of durability: {quoted(statement.subject)} {better}{by}{size}{bounds}, but {loss}."


def _excludes_none(metric: Metric, low: float | None, high: float | None) -> bool:
    """Return True if there are bounds worth showing, both on one side of no difference."""
    if low is None or high is None or not is_bounded(low, high, metric):
        return False
    return (_change(metric, low) > 0) == (_change(metric, high) > 0)


def versus(pair: PairStatement) -> str:
    """Return `a` vs `b`: -0.3 % (-1.6 ... +1.1)."""
    metric = metric_of(pair.metric)
    size, bounds = _size(metric, pair.amount, pair.low, pair.high)
    return f"{quoted(pair.subject)} vs {quoted(pair.object)}: {size}{bounds}"


def _size(
    metric: Metric, amount: float, low: float | None, high: float | None, *, sign: bool = True
) -> tuple[str, str]:
    """Return an estimate and its bounds in one notation: shares of change, or factors if one of them is a factor of
    two.

    Without `sign` they are magnitudes, because the sentence names the direction.
    """
    if low is None or high is None or not is_bounded(low, high, metric):
        factor = metric.scale == "ratio" and amount >= FACTOR_FROM
        return render_factor(amount) if factor else _told(metric, amount, sign), f" ({UNBOUNDED})"
    if metric.scale == "ratio" and high >= FACTOR_FROM:
        return render_factor(amount), f" ({render_number(low)} ... {render_factor(high)})"
    turn = 1.0 if sign else metric.sign
    bounds = sorted((turn * _change(metric, low), turn * _change(metric, high)))
    return _told(metric, amount, sign), f" ({' ... '.join(_bare(metric, v, sign=sign) for v in bounds)})"


def _told(metric: Metric, amount: float, sign: bool) -> str:
    change = _change(metric, amount)
    return _changed(metric, change if sign else abs(change), sign=sign)


def _turned(metric: Metric, value: float) -> float:
    """Return the value of the reverse comparison."""
    return 1 / value if metric.scale == "ratio" else -value


def _change(metric: Metric, value: float) -> float:
    """Return a ratio as a share of change; a difference unchanged."""
    return value - 1 if metric.scale == "ratio" else value


def signed_change(metric: Metric, value: float) -> str:
    """Return a ratio as a change in percent, a difference in the metric's unit; always with its sign."""
    return _changed(metric, _change(metric, value), sign=True)


def _changed(metric: Metric, change: float, *, sign: bool = False) -> str:
    unit = " %" if metric.scale == "ratio" else f" {metric.unit_of_difference}".rstrip()
    return _bare(metric, change, sign=sign) + unit


def _bare(metric: Metric, value: float, *, sign: bool = False) -> str:
    plus = "+" if sign else ""
    if metric.scale == "difference":
        return f"{value if abs(value) >= LEAST_S else 0.0:{plus}.3g}"
    value = round(100 * value, 1) + 0.0  # no minus zero
    text = f"{value:{plus}.1f}" if abs(value) < 10 else f"{value:{plus}.0f}"
    return text.removesuffix(".0")


def _margin(metric: Metric, margin: float) -> str:
    return metric.margin_of(metric.bound(margin))


def _word(metric: Metric, *, better: bool) -> str:
    if metric.name in _FASTER:
        return "faster than" if better else "slower than"
    return f"{'better' if better else 'worse'} ({metric.phrase}) than"


# ---------------------------------------------------------------- runs


def _bad_mode(statement: BadModeStatement) -> str:
    metric = metric_of(statement.metric)
    size = _changed(metric, abs(_change(metric, statement.amount)))
    blocks = ", ".join(str(b) for b in statement.blocks[:_FEW]) + (", ..." if len(statement.blocks) > _FEW else "")
    return (
        f"{statement.bad} of {statement.runs} runs of {quoted(statement.subject)} are {size} "
        f"{_word(metric, better=False)} its others: **a bad mode** (blocks {blocks})."
    )


def _growing(statement: Growing) -> str:
    metric = metric_of(statement.metric)
    first, last = (_change(metric, value) for value in (statement.first, statement.last))
    moves = "changes sides" if first * last < 0 else "grows" if abs(last) > abs(first) else "shrinks"
    return (
        f"{quoted(statement.subject)} against {quoted(statement.object)}: the difference **{moves} over the "
        f"campaign**, from {_changed(metric, first, sign=True)} in the first of {statement.pairs} blocks to "
        f"{_changed(metric, last, sign=True)} in the last. The verdict is of all of them together: one of the two ages "
        "or warms up, and later runs may differ more."
    )


def _lost_runs(statement: LostRuns) -> str:
    some = [c for c in statement.counts if c.lost]
    counts = summarise_names([f"{c.lost} of {c.runs} of {quoted(c.name)}" for c in some], _FEW, noun="stacks")
    others = ", none of the others" if len(some) < len(statement.counts) else ""
    return (
        f"**Runs were lost unevenly** (failed, excluded): {counts}{others}. A stack that loses the runs in which it is "
        "slow looks faster than it is."
    )


def _remembering(statement: Remembering) -> str:
    return (
        f"{quoted(statement.subject)} against {quoted(statement.object)}: neighbouring blocks **resemble each "
        f"other** (correlation {statement.correlation:.1f}), so that {statement.pairs} pairs are worth about "
        f"{statement.worth_pairs:.0f}; the interval allows for that. A state that outlasts the campaign does "
        "not show in it."
    )


def _late_disks(statement: LateDisks) -> str:
    return (
        f"Disks of {quoted(statement.subject)} answered later than the model has it "
        f"({', '.join(statement.models)}): half of the answers by up to {_late(statement.median_percent)} of "
        f"their time, one in a hundred by up to {_late(statement.p99_percent)}. **The host was not fast "
        "enough**: it, not the model, decided a part of these figures."
    )


def _late(percent_: int) -> str:
    """Format a lateness; counts of percent end at 100."""
    return f"{percent_} %{' and more' if percent_ >= 100 else ''}"


def _levels_apart(statement: LevelsApart) -> str:
    metric, far = metric_of(statement.metric), statement.far_run
    text = (
        f"{metric.title} in the table comes from the screening runs, where {quoted(statement.subject)} is at "
        f"{signed_change(metric, statement.of_levels)} against {quoted(statement.object)}; the verdict is of the "
        f"fresh pairs alone, {signed_change(metric, statement.of_pairs)}."
    )
    if far is None:
        return f"{text} No single run stands out."
    stage = "among the fresh pairs" if far.fresh else "of the screening"
    off = signed_change(metric, far.amount)
    return f"{text} Far off: {quoted(far.stack)} in block {far.block} {stage}, {off} against its median run."


def _matched_load(statement: MatchedLoad) -> str:
    head = f"At {statement.rate_tps:g} transactions a second scheduled"
    if not statement.levels:
        return f"{head}: no latency was recorded."
    levels = ", ".join(f"{quoted(level.name)} {level.value:.3g} ms" for level in statement.levels)
    return f"{head}, {metric_of(statement.metric).phrase}: {levels}."


def _capacity(statement: Capacity) -> str:
    parts = [f"{quoted(one.name)} {_bracket_words(one)}" for one in statement.brackets]
    if statement.unknown:
        least = f", a run needs {statement.least_transactions:,}" if statement.least_transactions else ""
        parts.append(f"too few transactions for a {statement.percentile} of {listed(statement.unknown)}{least}")
    if statement.untried:
        parts.append(f"not searched: {listed(statement.untried)}")
    unfinished = [one.name for one in statement.brackets if one.unfinished]
    if unfinished:
        search = f"the search of {listed(unfinished)}"
        parts.append(f"the budget ended {search}" if statement.out_of_budget else f"{search} is not finished")
    head = f"Capacity with {statement.percentile} within {statement.objective_ms:g} ms"
    return f"{head}: {'; '.join(parts)}."


def _bracket_words(found: CapacityBracket) -> str:
    """Return `between 1,470 and 1,630/s (met in 3 runs at 1,470)`."""
    low, high = found.low_tps, found.high_tps
    runs = render_count(found.runs, "run")
    if low is None:
        return "unknown: runs contradict one another" if high is None else f"below {high:,.0f}/s (missed in {runs})"
    rates = f"{low:,.0f}/s or more" if high is None else f"between {low:,.0f} and {high:,.0f}/s"
    return f"{rates} (met in {runs} at {low:,.0f})"
