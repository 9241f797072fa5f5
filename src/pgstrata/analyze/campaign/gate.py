"""Conditions for `--fail-on`, such as `tps(xfs) < 0.95*tps(ext4)`: parsed by a small grammar, judged on intervals.

    condition = side ("<" | "<=" | ">" | ">=") side
    side      = [number ["%"] "*"] metric "(" stack ")" | number ["%"]

A condition holds when it is true over the whole interval, fails when it is false over the whole interval, and is
undecided otherwise. Where both sides are the same metric of two stacks, the interval of their ratio decides (paired
runs cancel the drift of the machine); otherwise the intervals of the two sides do.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pgstrata.analyze.campaign.caveats import notable_in
from pgstrata.analyze.campaign.scale import METRICS
from pgstrata.analyze.finding import Uncounted
from pgstrata.analyze.findings import Findings, StackFinding
from pgstrata.errors import UsageError

Outcome = Literal["holds", "fails", "undecided"]

_SIDE = re.compile(
    r"""\s*(?:
        (?:(?P<factor>[0-9.]+(?:[eE][+-]?\d+)?)\s*(?P<factor_percent>%)?\s*\*\s*)?
        (?P<metric>[A-Za-z_][A-Za-z0-9_]*)\s*\(\s*
        (?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^()"']+?))\s*\)
      | (?P<number>[0-9.]+(?:[eE][+-]?\d+)?)\s*(?P<percent>%)?
    )\s*""",
    re.VERBOSE,
)
_OPERATOR = re.compile(r"<=|>=|<|>")
_EXAMPLE = "for example --fail-on 'tps(xfs) < 0.95*tps(ext4)'; names with brackets go in double quotes"


@dataclass(frozen=True)
class Side:
    """`factor` times a metric of a stack, or, without a metric, the number `factor`."""

    factor: float
    metric: str | None = None
    stack: str | None = None


@dataclass(frozen=True)
class Condition:
    """A parsed condition; `less` for `<` and `<=` (intervals are continuous, so the two are the same)."""

    text: str
    left: Side
    less: bool
    right: Side

    def limit(self, metric: str) -> float | None:
        """Return the ratio of two stacks in that metric that decides; None if the condition is not of that form."""
        left, right = self.left, self.right
        if left.metric == right.metric == metric and left.factor > 0 and right.factor > 0:
            return right.factor / left.factor
        return None


@dataclass(frozen=True)
class Judged:
    """The outcome of a condition in one cell, with the interval that decided (of left/right, or left-right)."""

    condition: Condition
    cell: str
    outcome: Outcome
    low: float | None
    high: float | None
    uncounted: Uncounted = field(default_factory=dict)
    """Notable transactions of its stacks in that cell."""

    @property
    def sentence(self) -> str:
        words = {"holds": "holds", "fails": "does not hold", "undecided": "is undecided"}[self.outcome]
        reason = ", because there is no interval" if self.low is None else ""
        return f"{self.condition.text}: {words} in cell {self.cell}{reason}"


def parse_condition(text: str) -> Condition:
    """Parse a condition; UsageError if it does not fit the grammar."""
    left, position = _parse_side(text, 0)
    operator = _OPERATOR.match(text, position)
    if operator is None:
        raise UsageError(f"condition {text!r}: expected <, <=, > or >= at column {position + 1}", hint=_EXAMPLE)
    right, position = _parse_side(text, operator.end())
    if position != len(text):
        raise UsageError(f"condition {text!r}: {text[position:]!r} is left over", hint=_EXAMPLE)
    if left.metric is None and right.metric is None:
        raise UsageError(f"condition {text!r}: compares two numbers", hint=_EXAMPLE)
    return Condition(text.strip(), left, operator[0].startswith("<"), right)


def _parse_side(text: str, position: int) -> tuple[Side, int]:
    match = _SIDE.match(text, position)
    if match is None:
        raise UsageError(
            f"condition {text!r}: expected a number or metric(stack) at column {position + 1}", hint=_EXAMPLE
        )
    if match["number"] is not None:
        return Side(_number(text, match["number"], match["percent"])), match.end()
    name = next(match[group] for group in ("double", "single", "bare") if match[group] is not None)
    factor = 1.0 if match["factor"] is None else _number(text, match["factor"], match["factor_percent"])
    return Side(factor, match["metric"], name), match.end()


def _number(text: str, digits: str, percent: str | None) -> float:
    try:
        return float(digits) / (100 if percent else 1)
    except ValueError:
        raise UsageError(f"condition {text!r}: {digits!r} is not a number", hint=_EXAMPLE) from None


def judge_conditions(conditions: Iterable[Condition], findings: Findings) -> tuple[Judged, ...]:
    """Judge every condition in every cell of the grid; UsageError for an unknown stack or metric."""
    judged = []
    for condition in conditions:
        for side in (condition.left, condition.right):
            _check_known(condition, side, findings.stacks)
        names = {side.stack for side in (condition.left, condition.right)}
        for cell in findings.cells:
            uncounted = notable_in(cell.id, [stack for stack in findings.stacks if stack.name in names])
            judged.append(replace(_judge(condition, cell.id, findings), uncounted=uncounted))
    return tuple(judged)


def require_stacks(conditions: Iterable[Condition], names: Sequence[str]) -> None:
    """Raise UsageError if a condition names a stack that the campaign does not have."""
    for condition in conditions:
        for side in (condition.left, condition.right):
            if side.stack is not None:
                _require(condition, "stack", side.stack, names)


def _check_known(condition: Condition, side: Side, stacks: Sequence[StackFinding]) -> None:
    if side.metric is None or side.stack is None:
        return
    _require(condition, "stack", side.stack, sorted({s.name for s in stacks}))
    # A metric that no run has (all failed, or it was not recorded) leaves the condition open.
    _require(condition, "metric", side.metric, sorted({*METRICS, *(m for s in stacks for m in s.metrics)}))


def _require(condition: Condition, kind: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        near = difflib.get_close_matches(value, known, n=1)
        raise UsageError(
            f"condition {condition.text!r}: there is no {kind} {value!r}",
            hint=f"did you mean {near[0]!r}?" if near else f"the {kind}s are: {', '.join(known)}",
        )


def _judge(condition: Condition, cell: str, findings: Findings) -> Judged:
    left, right = condition.left, condition.right
    limit = condition.limit(left.metric) if left.metric is not None else None
    if limit is not None:
        ratio = _ratio(findings, cell, left, right)
        if ratio is not None:
            low, high = ratio
            return _decide(condition, cell, low, high, limit)
    a, b = _interval(findings, cell, left), _interval(findings, cell, right)
    if a is None or b is None:
        return Judged(condition, cell, "undecided", None, None)
    return _decide(condition, cell, a[0] - b[1], a[1] - b[0], 0.0)


def _decide(condition: Condition, cell: str, low: float, high: float, bound: float) -> Judged:
    holds, fails = (high < bound, low >= bound) if condition.less else (low > bound, high <= bound)
    return Judged(condition, cell, "holds" if holds else "fails" if fails else "undecided", low, high)


def _ratio(findings: Findings, cell: str, left: Side, right: Side) -> tuple[float, float] | None:
    """Return the interval of the ratio, from the narrowest comparison on a ratio scale."""
    found = []
    for c in findings.comparisons:
        if c.cell != cell or c.metric != left.metric or c.scale != "ratio" or c.low is None or c.high is None:
            continue
        if (c.a, c.b) == (left.stack, right.stack):
            found.append((c.low, c.high))
        elif (c.b, c.a) == (left.stack, right.stack) and c.low > 0:
            found.append((1 / c.high, 1 / c.low))
    return min(found, key=_width, default=None)


def _width(interval: tuple[float, float]) -> float:
    low, high = interval
    return math.log(high / low) if low > 0 else math.inf


def _interval(findings: Findings, cell: str, side: Side) -> tuple[float, float] | None:
    if side.metric is None:
        return side.factor, side.factor
    for stack in findings.stacks:
        if stack.name == side.stack and stack.cell == cell and side.metric in stack.metrics:
            metric = stack.metrics[side.metric]
            if metric.low is None or metric.high is None:
                return None
            return side.factor * metric.low, side.factor * metric.high
    return None
