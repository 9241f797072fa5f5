"""Which comparison a reader sees, in which direction, and how sentences are marked up."""

from __future__ import annotations

from typing import Any

import pytest

from pgstrata.analyze.finding import Modes, Rounds
from pgstrata.analyze.findings import (
    CampaignFinding,
    Comparison,
    DurabilityFinding,
    Findings,
    MetricFinding,
    PublishedFinding,
    StackFinding,
)
from pgstrata.report.sentences.markup import parse_markup, render_markup_html
from pgstrata.report.tables.agreement import add_published
from pgstrata.report.tables.pairs import Index, flip
from pgstrata.report.tables.verdicts import Figure, comparison_figure, verdict_detail, verdict_words
from pgstrata.spec.printable import printable


def compare(**changes: Any) -> Comparison:
    base: dict[str, Any] = {"a": "x", "b": "y", "cell": "c", "metric": "tps", "scale": "ratio"}
    base |= {"ratio": 0.8, "low": 0.75, "high": 0.9, "level": 0.95, "kind": "screen", "verdict": "worse", "pairs": 6}
    return Comparison(**{**base, **changes})


def findings_of(*comparisons: Comparison) -> Findings:
    campaign = CampaignFinding(name="n", primary="tps", margin=0.02, seed=1, host={}, postgres_version="16")
    return Findings(campaign=campaign, cells=(), stacks=(), comparisons=comparisons, ranking=(), chosen=None)


def stack_of(name: str, tps: float) -> StackFinding:
    durability = DurabilityFinding.model_validate({"class": "unknown"})
    metrics = {"tps": MetricFinding(estimate=tps)}
    return StackFinding(name=name, cell="c", spec=name, n=1, metrics=metrics, durability=durability)


def test_a_flipped_ratio_is_its_inverse_with_bounds_exchanged() -> None:
    modes = Modes(low=0.8, high=1.25, below=4, above=1)
    flipped = flip(compare(rounds=Rounds(blocks=5, better=1, worse=4, low=0.7, high=0.95), modes=modes))
    assert flipped.modes == Modes(low=0.8, high=1.25, below=1, above=4)
    assert flipped.rounds is not None
    assert (flipped.rounds.better, flipped.rounds.worse) == (4, 1)
    assert flipped.rounds.low == pytest.approx(1 / 0.95)
    assert flipped.rounds.high == pytest.approx(1 / 0.7)
    assert (flipped.a, flipped.b, flipped.verdict) == ("y", "x", "better")
    assert flipped.ratio == pytest.approx(1.25)
    assert flipped.low == pytest.approx(1 / 0.9)
    assert flipped.high == pytest.approx(1 / 0.75)
    assert flip(flipped).ratio == pytest.approx(0.8)


def test_an_estimate_is_in_the_notation_of_its_interval() -> None:
    assert comparison_figure(compare(ratio=0.99, low=0.4, high=2.43)) == Figure("0.990×", "0.400 … 2.43×")
    assert comparison_figure(compare(ratio=0.99, low=0.9, high=1.1)).value == "−1.0 %"
    assert comparison_figure(compare(ratio=2.4, low=None, high=None)).value == "2.40×"


def test_what_counts_hosts_needs_hosts() -> None:
    open_ = {"verdict": "undecided", "source": "hosts", "acceptable_margin": None}
    assert verdict_detail(compare(**open_, needed_pairs=12)) == "about 12 more hosts"
    assert verdict_detail(compare(**open_, needed_pairs=1904)) == ""
    assert verdict_detail(compare(**{**open_, "source": "screening"}, needed_pairs=1904)) == "about 1,904 more pairs"


def test_a_flipped_difference_changes_its_sign() -> None:
    flipped = flip(compare(scale="difference", metric="longest_stall_s", ratio=3.0, low=1.0, high=5.0))
    assert (flipped.ratio, flipped.low, flipped.high) == (-3.0, -5.0, -1.0)


def test_unbounded_intervals_stay_unbounded() -> None:
    flipped = flip(compare(low=None, high=None))
    assert (flipped.low, flipped.high) == (None, None)


def test_equivalence_wins_over_confirmation_over_screening() -> None:
    screen, confirm = compare(), compare(kind="confirm", ratio=0.81)
    equal = compare(kind="equivalence", verdict="equal", ratio=0.99)
    assert Index(findings_of(screen, confirm)).pair("c", "x", "y") == confirm
    assert Index(findings_of(screen, confirm, equal)).pair("c", "x", "y") == equal
    reverse = Index(findings_of(confirm)).pair("c", "y", "x")
    assert reverse is not None
    assert reverse.verdict == "better"
    assert Index(findings_of(screen)).pair("other", "x", "y") is None


def test_verdicts_in_words_say_what_is_proven_and_what_is_not() -> None:
    assert verdict_words(compare()) == ("slower, not confirmed", "worse")
    assert verdict_words(compare(kind="confirm", proven=True)) == ("slower, proven", "worse-proven")
    assert verdict_words(compare(metric="cv_1s", verdict="better")) == ("better, not confirmed", "better")
    undecided = compare(verdict="undecided", needed_pairs=34, acceptable_margin=0.03)
    assert verdict_words(undecided) == ("undecided", "undecided")
    assert verdict_detail(undecided) == "about 34 more pairs; equal within 3 % now"
    assert verdict_detail(compare(verdict="equal", margin=0.03)) == "within 3 %"
    stalls = compare(verdict="equal", metric="longest_stall_s", scale="difference", margin=2.0)
    assert verdict_detail(stalls) == "within 2 s"
    assert verdict_detail(compare(verdict="equal")) == ""


def published(name: str, ratio: float) -> PublishedFinding:
    return PublishedFinding(study="s", stack=name, cell="c", metric="tps", value=1.0, baseline="y", ratio=ratio)


def test_published_ratios_stand_beside_measured_ones_and_arms_not_run_here_stay() -> None:
    joined = add_published(findings_of(compare()), "an article", [published(name, 0.5) for name in ("x", "z")])
    assert joined.published_source == "an article"
    rows = {r.stack: r for r in joined.published}
    assert (rows["x"].ratio, rows["x"].measured_ratio, rows["x"].measured_low) == (0.5, 0.8, 0.75)
    assert (rows["z"].ratio, rows["z"].measured_ratio, rows["z"].measured_low) == (0.5, None, None)


def test_where_nothing_is_compared_the_measured_ratio_has_no_interval() -> None:
    stacks = tuple(stack_of(name, tps) for name, tps in (("x", 50.0), ("y", 200.0)))
    findings = findings_of().model_copy(update={"stacks": stacks})
    (row,) = add_published(findings, "a", [published("x", 0.3)]).published
    assert (row.measured_ratio, row.measured_low, row.measured_high) == (0.25, None, None)


def test_markup_knows_names_and_strong_words_alone() -> None:
    kinds = [(s.kind, s.text) for s in parse_markup("`xfs` is **proven** 2 * 3")]
    assert kinds == [("name", "xfs"), ("plain", " is "), ("strong", "proven"), ("plain", " 2 * 3")]


def test_a_name_in_a_sentence_stays_text() -> None:
    html = render_markup_html("`<script>alert(1)</script>` is **<b>** & more")
    assert html == "<code>&lt;script&gt;alert(1)&lt;/script&gt;</code> is <strong>&lt;b&gt;</strong> &amp; more"


def test_numbers_keep_their_unit_on_the_line_and_get_a_minus() -> None:
    assert render_markup_html("slower (-3.1 % ... +2 %)") == "slower (−3.1\u00a0% … +2\u00a0%)"


def test_control_characters_are_shown_not_obeyed() -> None:
    assert printable("a\x1b[31mb") == "a\\x1b[31mb"
