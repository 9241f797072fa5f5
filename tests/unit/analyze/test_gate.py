"""Conditions of --fail-on: grammar, and outcomes on intervals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgstrata.analyze.campaign.gate import judge_conditions, parse_condition
from pgstrata.analyze.findings import (
    CampaignFinding,
    CellFinding,
    Comparison,
    DurabilityFinding,
    Findings,
    MetricFinding,
    StackFinding,
)
from pgstrata.errors import UsageError


def findings(ratio: tuple[float, float] | None = (0.90, 0.94), *, a: str = "xfs", b: str = "ext4") -> Findings:
    """Two stacks in one cell; `ratio` is the interval of a to b."""

    def stack(name: str, low: float, high: float) -> StackFinding:
        metric = MetricFinding(estimate=(low + high) / 2, low=low, high=high)
        return StackFinding(
            name=name, cell="c", spec=name, n=3, metrics={"tps": metric}, durability=DurabilityFinding(**{"class": "x"})
        )

    low, high = ratio or (None, None)
    comparison = Comparison(
        a=a, b=b, cell="c", metric="tps", scale="ratio", ratio=0.92, low=low, high=high, level=0.95,
        kind="screen", verdict="undecided", pairs=3,
    )  # fmt: skip
    return Findings(
        campaign=CampaignFinding(name="n", primary="tps", margin=0.02, seed=1, host={}, postgres_version="18"),
        cells=(CellFinding(id="c", script="s", scale=1, clients=1, ranking=(), chosen=None, statements=()),),
        stacks=(stack(a, 800, 1200), stack(b, 900, 1300)),
        comparisons=(comparison,),
        ranking=(a, b),
        chosen=None,
    )


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("tps(xfs) < 0.95*tps(ext4)", "holds"),
        ("tps(xfs) < 95%*tps(ext4)", "holds"),
        ("tps(xfs) > 0.95*tps(ext4)", "fails"),
        ("tps(xfs) < 0.92*tps(ext4)", "undecided"),
        ("tps(xfs) < 0.85*tps(ext4)", "fails"),
        ("0.95*tps(ext4) > tps(xfs)", "holds"),
        ("tps(ext4) > tps(xfs)", "holds"),
        ("tps(xfs) < 500", "fails"),
        ("tps(xfs) < 2000", "holds"),
        ("1000 > tps('xfs')", "undecided"),
    ],
)
def test_outcome(text: str, outcome: str) -> None:
    judged = judge_conditions([parse_condition(text)], findings())
    assert [j.outcome for j in judged] == [outcome]


def test_unbounded_ratio_falls_back_to_the_intervals_of_the_stacks() -> None:
    judged = judge_conditions([parse_condition("tps(xfs) < 2*tps(ext4)")], findings(None))
    assert judged[0].outcome == "holds"
    assert judge_conditions([parse_condition("tps(xfs) < tps(ext4)")], findings(None))[0].outcome == "undecided"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("tps(xfs)", "expected <"),
        ("tps(xfs < 3", "expected a number or metric"),
        ("1 < 2", "two numbers"),
        ("tps(xfs) < 3 tps(ext4)", "left over"),
        ("__import__('os') < 3 or 1", "left over"),
        ("tps(xfs) < 1.2.3", "not a number"),
        ("", "expected a number"),
    ],
)
def test_bad_condition_is_named(text: str, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        parse_condition(text)


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no stack 'xsf'.*\n.*'xfs'"):
        judge_conditions([parse_condition("tps(xsf) < 1")], findings())
    with pytest.raises(UsageError, match="no metric 'tsp'"):
        judge_conditions([parse_condition("tsp(xfs) < 1")], findings())


def test_a_metric_that_no_run_has_leaves_the_condition_open() -> None:
    judged = judge_conditions([parse_condition("stall_fraction(xfs) > 1%")], findings())[0]
    assert judged.outcome == "undecided"
    assert judged.sentence == "stall_fraction(xfs) > 1%: is undecided in cell c, because there is no interval"


@given(st.text(alphabet="abcdefgh ()%*<>=._-", min_size=1).filter(lambda s: s.strip() == s and '"' not in s))
def test_any_name_can_be_quoted(name: str) -> None:
    condition = parse_condition(f'tps("{name}") >= 0.5 * tps("{name}")')
    assert (condition.left.stack, condition.right.stack, condition.right.factor) == (name, name, 0.5)


@given(st.floats(0.5, 2), st.floats(0.5, 2), st.floats(0.5, 2))
def test_a_condition_and_its_opposite_never_both_hold(x: float, y: float, factor: float) -> None:
    found = findings((min(x, y), max(x, y)))
    less = judge_conditions([parse_condition(f"tps(xfs) < {factor}*tps(ext4)")], found)[0]
    more = judge_conditions([parse_condition(f"tps(xfs) > {factor}*tps(ext4)")], found)[0]
    assert not (less.outcome == "holds" and more.outcome == "holds")
    assert (less.outcome == "undecided") == (more.outcome == "undecided") or min(x, y) <= factor <= max(x, y)
