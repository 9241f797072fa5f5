"""Sentences say what the statements say."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from pgstrata.analyze.campaign.statements import (
    BadModeStatement,
    Capacity,
    CapacityBracket,
    Choice,
    FarRun,
    Growing,
    LevelsApart,
    NoVerdict,
    PairStatement,
    Price,
    Statement,
)
from pgstrata.analyze.finding import Modes, Rounds, Verdict
from pgstrata.report.sentences.statements import Tone, sentence, tone_of


def pair(relation: Verdict, amount: float, low: float | None, high: float | None, **more: Any) -> PairStatement:
    certainty: Literal["proven", "open"] = "open" if relation == "undecided" else "proven"
    given: dict[str, Any] = {"metric": "tps", "certainty": certainty, "source": "fresh pairs", "margin": 0.02, **more}
    return PairStatement(subject="a", relation=relation, object="b", amount=amount, low=low, high=high, **given)


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        (pair("worse", 0.951, 0.923, 0.98), "`a` is slower than `b` by 4.9 % (2 ... 7.7): **proven**."),
        (pair("better", 1 / 0.951, 1 / 0.98, 1 / 0.923), "`b` is slower than `a` by 4.9 % (2 ... 7.7): **proven**."),
        (
            pair("worse", 1.051, 1.02, 1.083, metric="latency_avg_ms"),
            "`a` is slower than `b` by 5.1 % (2 ... 8.3): **proven**.",
        ),
        # Holm may reject where the wider printed interval does not exclude no difference.
        (pair("better", 1.051, 0.998, 1.109), "`b` is slower than `a` by 4.9 % (-0.2 ... 9.8): **proven**."),
        (
            pair("worse", 3.0, -1.0, 7.0, metric="longest_stall_s"),
            "`a` is worse (longest stall) than `b` by 3 s (-1 ... 7): **proven**.",
        ),
        (pair("worse", 0.9, None, None), "`a` is slower than `b` by 10 %: **proven**."),
        (
            pair("equal", 0.997, 0.984, 1.011, leaning="worse", unseen_mode=0.0894),
            "`a` vs `b`: -0.3 % (-1.6 ... +1.1): **practically equal** (within 2 %; `b` is a little faster than `a`). "
            "A mode of less than 8.9 % of the runs could have been missed.",
        ),
        (
            pair("undecided", 1.014, 0.99, 1.04, settled_by_pairs=34, settled_by_s=32400, acceptable_margin=0.03),
            "`a` vs `b`: +1.4 % (-1 ... +4): **undecided**. About 34 more pairs (9 h) would settle it at a "
            "margin of 2 % if the difference stays as it is; 3 % can be accepted now.",
        ),
        (
            pair("undecided", 1.014, 0.99, 1.04, rounds=Rounds(blocks=4, better=3, worse=1, low=0.995, high=1.031)),
            "`a` vs `b`: +1.4 % (-1 ... +4): **undecided**. `b` was slower than `a` in 3 of 4 rounds (`b` against "
            "`a` at a single look, 95 %: -3 ... +0.5 %).",
        ),
        (
            pair("undecided", 0.5, 0.1, 2.5, rounds=Rounds(blocks=2, better=0, worse=2, low=0.001, high=250.0)),
            "`a` vs `b`: 0.500× (0.100 ... 2.50×): **undecided**. `a` was slower than `b` in each of 2 rounds.",
        ),
        (
            pair("undecided", 0.5, 0.1, 2.5, rounds=Rounds(blocks=1, better=0, worse=1, low=None, high=None)),
            "`a` vs `b`: 0.500× (0.100 ... 2.50×): **undecided**.",
        ),
        (
            pair("undecided", 1.05, 0.94, 1.2, modes=Modes(low=0.92, high=1.08, below=1, above=6)),
            "`a` vs `b`: +5 % (-6 ... +20): **undecided**. The rounds fall into two modes that are 17 % apart (1 and "
            "6 rounds), as when builds come out fast or slow: a difference of this size takes more rounds of both.",
        ),
        (
            pair("undecided", 0.992, 0.404, 2.43, settled_by_pairs=1904, sigma=0.3, source="hosts"),
            "`a` vs `b`: 0.992× (0.404 ... 2.43×): **undecided**. It would take more than 100 more hosts to "
            "settle it at a margin of 2 %.",
        ),
        (
            pair("undecided", 1.014, 0.99, 1.04, settled_by_pairs=3900, settled_by_s=9e5, sigma=0.3),
            "`a` vs `b`: +1.4 % (-1 ... +4): **undecided**. It would take more than a week to settle it "
            "at a margin of 2 %.",
        ),
        (
            pair("undecided", 1.014, 0.99, 1.04, sigma=0.3),
            "`a` vs `b`: +1.4 % (-1 ... +4): **undecided**. It would take more than 4,096 pairs to "
            "settle it at a margin of 2 %.",
        ),
        (
            Growing(subject="a", object="b", metric="tps", first=0.99, last=0.91, pairs=24),
            "`a` against `b`: the difference **grows over the campaign**, from -1 % in the first of 24 blocks to -9 % "
            "in the last. The verdict is of all of them together: one of the two ages or warms up, and later runs may "
            "differ more.",
        ),
        (
            Growing(subject="a", object="b", metric="longest_stall_s", first=4.0, last=-1.0, pairs=9),
            "`a` against `b`: the difference **changes sides over the campaign**, from +4 s in the first of 9 blocks "
            "to -1 s in the last. The verdict is of all of them together: one of the two ages or warms up, and later "
            "runs may differ more.",
        ),
        # An import cannot go on, and "equal within 415 %" helps nobody.
        (
            pair("undecided", 1.014, 0.99, 1.04, settled_by_pairs=872, source="import", acceptable_margin=4.15),
            "`a` vs `b`: +1.4 % (-1 ... +4): **undecided**.",
        ),
        # By Holm's procedure there is a verdict, which the table shows; the wider printed interval has none.
        (
            Price(**{"subject": "tmpfs", "object": "ext4", "metric": "tps", "amount": 1.63, "low": 0.916, "high": 2.9,
                     "class": "loses on power loss", "proven": True}),
            "The price of durability: `tmpfs` would be faster than `ext4`: 1.63× (0.916 ... 2.90×), but it loses on "
            "power loss.",
        ),
        (
            Price(**{"subject": "tmpfs", "object": "ext4", "metric": "tps", "amount": 1.63, "low": 0.916, "high": 2.9,
                     "class": "loses on power loss"}),
            "The price of durability: `tmpfs` seems faster than `ext4`: 1.63× (0.916 ... 2.90×), but it loses on "
            "power loss.",
        ),
        (
            Price(**{"subject": "tmpfs", "object": "ext4", "metric": "tps", "amount": 1.43, "low": 1.25, "high": 1.63,
                     "class": "loses on power loss"}),
            "The price of durability: `tmpfs` would be faster than `ext4` by 43 % (25 ... 63), but it loses on power "
            "loss.",
        ),
        (
            BadModeStatement(subject="b", metric="tps", bad=2, runs=9, amount=0.52, blocks=(3, 7)),
            "2 of 9 runs of `b` are 48 % slower than its others: **a bad mode** (blocks 3, 7).",
        ),
        (
            LevelsApart(subject="xfs", object="ext4", metric="tps", of_levels=1.298, of_pairs=1.078,
                        far_run=FarRun(stack="ext4", block=2, fresh=False, amount=0.55)),
            "Throughput in the table comes from the screening runs, where `xfs` is at +30 % against `ext4`; the "
            "verdict is of "
            "the fresh pairs alone, +7.8 %. Far off: `ext4` in block 2 of the screening, -45 % against its median run.",
        ),
        (
            LevelsApart(subject="xfs", object="ext4", metric="tps", of_levels=1.298, of_pairs=1.078),
            "Throughput in the table comes from the screening runs, where `xfs` is at +30 % against `ext4`; the "
            "verdict is of "
            "the fresh pairs alone, +7.8 %. No single run stands out.",
        ),
    ],
)  # fmt: skip
def test_sentence(statement: Statement, text: str) -> None:
    assert sentence(statement) == text


@pytest.mark.parametrize(
    ("statement", "tone"),
    [
        (Choice(subject="a", relation="chosen", metric="tps", margin=0.02), "chosen"),
        (Choice(subject="a", relation="leads", metric="tps", margin=0.02), "undecided"),
        (pair("equal", 1.0, 0.99, 1.01), "equal"),
        (pair("worse", 0.9, 0.8, 0.95), "proven"),
        (pair("worse", 0.9, 0.8, 0.95, certainty="shown", source="import"), "undecided"),
        (NoVerdict(reason="single runs"), "undecided"),
        (NoVerdict(reason="alone", subject="proven"), "plain"),
        # A name cannot change the sign: it is not read from the words.
        (pair("undecided", 1.0, 0.9, 1.1).model_copy(update={"subject": "**chosen**"}), "undecided"),
    ],
)
def test_tone_is_that_of_the_statement(statement: Statement, tone: Tone) -> None:
    assert tone_of(statement) == tone


def test_a_choice_names_the_durability_that_it_is_limited_to() -> None:
    limited = Choice(**{"subject": "ext4", "relation": "chosen", "metric": "tps", "margin": 0.02,
                        "class": "survives power loss"})  # fmt: skip
    assert sentence(limited).startswith("Among stacks that survive power loss: `ext4` is **chosen**")


def test_capacity_of_too_few_transactions_is_not_told_as_a_rate() -> None:
    xfs = CapacityBracket(name="xfs", low_tps=1470.0, high_tps=1630.0, runs=3, unfinished=False)
    some = Capacity(percentile="p99", objective_ms=10, brackets=(xfs,), unknown=("zfs",), least_transactions=1000)
    assert sentence(some) == (
        "Capacity with p99 within 10 ms: `xfs` between 1,470 and 1,630/s (met in 3 runs at 1,470); "
        "too few transactions for a p99 of `zfs`, a run needs 1,000."
    )


def test_capacity_is_told_as_what_was_reached_for_every_stack() -> None:
    above = CapacityBracket(name="tmpfs", low_tps=2000.0, high_tps=None, runs=1, unfinished=True)
    below = CapacityBracket(name="ext4", low_tps=None, high_tps=399.0, runs=1, unfinished=True)
    some = Capacity(percentile="p99", objective_ms=5, brackets=(above, below), untried=("btrfs",), out_of_budget=True)
    assert sentence(some) == (
        "Capacity with p99 within 5 ms: `tmpfs` 2,000/s or more (met in 1 run at 2,000); "
        "`ext4` below 399/s (missed in 1 run); not searched: `btrfs`; "
        "the budget ended the search of `tmpfs` and `ext4`."
    )
    again = some.model_copy(update={"out_of_budget": False})
    assert sentence(again).endswith("; the search of `tmpfs` and `ext4` is not finished.")


def test_a_leader_with_a_bad_mode_is_told_with_what_that_costs() -> None:
    said = sentence(Choice(subject="a", relation="leads", metric="tps", margin=0.02, bad_mode_cost=0.925))
    assert said == "`a` leads, but is **not chosen**: its bad mode costs 7.5 % of the mean of its runs."
