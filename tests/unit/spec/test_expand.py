"""Expansion: complete, random, repeatable blocks."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.expand import block_trials, slug, stable_hash, with_aa, workload_seed
from pgstrata.spec.notation.stack import parse_stack

NAMES = ("ext4", "xfs:noatime", "btrfs", "tmpfs")


def campaign(**changes: object) -> Campaign:
    workload = {"scale": [50, 10], "script": ["tpcb-like", "select-only"], "clients": [1, 8]}
    data = {"name": "c", "stacks": [parse_stack(n) for n in NAMES], "workload": workload, **changes}
    return Campaign.model_validate(data)


@given(st.integers(0, 2**31 - 1), st.integers(0, 40), st.sets(st.sampled_from(NAMES), min_size=1))
def test_every_stack_once_per_scale_in_rounds(seed: int, block: int, names: set[str]) -> None:
    trials = block_trials(campaign(seed=seed), block, sorted(names))
    assert sorted((t.stack, t.scale) for t in trials) == sorted((n, s) for n in names for s in (10, 50))
    assert [t.position for t in trials] == list(range(len(trials)))
    assert len({t.id for t in trials}) == len(trials)
    # A scale's round is complete before the next begins.
    assert sum(a.scale != b.scale for a, b in pairwise(trials)) == 1


def test_the_order_is_random_over_blocks_and_the_same_everywhere() -> None:
    orders = [tuple(t.stack for t in block_trials(campaign(), b, NAMES) if t.scale == 10) for b in range(200)]
    firsts = [order[0] for order in orders]
    assert len(set(orders)) == 24
    assert all(30 <= firsts.count(name) <= 70 for name in NAMES)
    # Written down once: SHA-256 of "1", "screen", block, scale and name decides, on every machine and Python.
    # A round begins with the stack that ended the one before.
    assert [t.id for t in block_trials(campaign(), 0, NAMES)] == [
        "b000-00-tmpfs-s10", "b000-01-ext4-s10", "b000-02-xfs-noatime-s10", "b000-03-btrfs-s10",
        "b000-04-btrfs-s50", "b000-05-xfs-noatime-s50", "b000-06-tmpfs-s50", "b000-07-ext4-s50",
    ]  # fmt: skip
    # printf "a\\x1f1" | sha256sum
    assert stable_hash("a", 1) == 0x839E11A421D370BE


@pytest.mark.parametrize("host", ["", "db1"])
def test_every_stack_runs_as_often_after_itself_as_after_any_other(host: str) -> None:
    names = NAMES[:3]
    blocks = (block_trials(campaign(), b, names, host=host, turn=b if host else None) for b in range(400))
    follows = Counter(pairwise(t.stack for trials in blocks for t in trials))
    total = sum(follows.values())
    assert len(follows) == 9
    assert all(abs(count / total - 1 / 9) < 0.015 for count in follows.values())


def test_two_stacks_take_turns_in_beginning() -> None:
    one_scale = campaign(workload={"scale": [10], "clients": [1]})
    orders = [tuple(t.stack for t in block_trials(one_scale, b, NAMES[:2])) for b in range(6)]
    assert orders == [orders[0], orders[0][::-1]] * 3


def test_hosts_have_orders_of_their_own() -> None:
    one, other = ([t.stack for t in block_trials(campaign(), 0, NAMES, host=h, turn=0)] for h in ("db1", "db2"))
    assert one != other


def test_stages_and_seeds_differ() -> None:
    screen = block_trials(campaign(), 3, NAMES)
    confirm = block_trials(campaign(), 3, NAMES, "confirm")
    assert not {t.id for t in screen} & {t.id for t in confirm}
    assert {t.workload_seed for t in screen} == {workload_seed(1, 3)} != {workload_seed(1, 4)}


@pytest.mark.parametrize(
    ("load", "block", "how"),
    [("copy", 0, "fresh"), ("copy", 2, "fresh"), ("copy", 3, "copy"), ("fresh", 9, "fresh"), ("keep", 0, "keep")],
)
def test_first_blocks_load_anew(load: str, block: int, how: str) -> None:
    assert {t.load for t in block_trials(campaign(runs={"load": load}), block, NAMES)} == {how}


def test_what_only_reads_runs_first() -> None:
    (trial,) = (t for t in block_trials(campaign(), 0, ("ext4",)) if t.scale == 10)
    assert [c.id for c in trial.cells] == [
        "select-only-s10-c1", "select-only-s10-c8", "tpcb-like-s10-c1", "tpcb-like-s10-c8",
    ]  # fmt: skip


def test_an_unknown_stack_is_refused() -> None:
    with pytest.raises(UsageError, match="'zfs' is not in campaign"):
        block_trials(campaign(), 0, ("zfs",))


@given(st.text(min_size=1, max_size=200))
def test_a_slug_is_fit_for_a_directory(name: str) -> None:
    made = slug(name)
    assert made
    assert len(made) <= 60
    assert not set(made) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
    assert made[0] not in ".-"


def test_a_against_a() -> None:
    twice = with_aa(campaign(runs={"aa": True}))
    assert [s.name for s in twice.stacks] == ["ext4", "ext4 (A/A)", *NAMES[1:]]
    assert twice.stacks[0].data == twice.stacks[1].data
    assert with_aa(twice) == twice
    assert with_aa(campaign()) == campaign()
