"""Observations in columns are the observations that were put in, in little memory."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgstrata.analyze.stats.comparison import Design, tabulate
from pgstrata.analyze.stats.packed import PackedObservations
from pgstrata.record.decision import Observation, OpenLoop
from pgstrata.spec.campaign import Goal

OBSERVATIONS = st.builds(
    Observation,
    stack=st.sampled_from(["a", "b", "c"]),
    block=st.integers(0, 9),
    cell=st.sampled_from(["one", "two"]),
    value=st.floats(1e-3, 1e9),
    stage=st.sampled_from(["screen", "confirm", "soak"]),
    duration_s=st.floats(0, 1e5),
    open_loop=st.one_of(st.none(), st.just(OpenLoop(10.0, 2.0, 0.0, False))),
    host=st.sampled_from(["", "db1"]),
)


@given(st.lists(OBSERVATIONS, max_size=20))
def test_what_is_put_in_comes_out(given_: list[Observation]) -> None:
    packed = PackedObservations()
    packed.extend(given_[:7])
    packed.extend(given_[7:])
    assert list(packed) == given_
    assert (len(packed), bool(packed)) == (len(given_), bool(given_))
    assert list(packed.since(3)) == given_[3:] == packed[3:]
    if given_:
        assert (packed[0], packed[-1]) == (given_[0], given_[-1])
    with pytest.raises(IndexError):
        packed[len(given_)]


@given(st.lists(OBSERVATIONS, max_size=20))
def test_the_table_of_runs_has_the_last_of_each_stack_and_block(found: list[Observation]) -> None:
    design = Design(("a", "b"), ("one",), Goal())
    table = tabulate(design, found, "one", ("screen", "confirm"))
    chosen = {(o.stack, o.block): o.value for o in found if o.cell == "one" and o.stage != "soak"}
    assert table.blocks == tuple(sorted({block for _, block in chosen}))
    told = {
        (stack, block): table.y[k, column]
        for k, stack in enumerate(design.stacks)
        for column, block in enumerate(table.blocks)
        if (stack, block) in chosen
    }
    assert told == {key: design.metric.to_model(value) for key, value in chosen.items() if key[0] in design.stacks}


def test_a_hundred_thousand_take_a_few_megabytes() -> None:
    packed = PackedObservations()
    tracemalloc.start()
    try:
        packed.extend(Observation("a", k, "one", k + 0.5, host=f"db{k % 1000}") for k in range(100_000))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 50 * 100_000
