"""A host that other programs keep busy is told before any figure."""

from __future__ import annotations

from pgstrata.analyze.campaign.evidence import busy_words, client_words
from pgstrata.record.schema import CellResult, ClientUse, OthersUse
from pgstrata.spec.workload import Cell


def run(used_s: float, stolen_s: float = 0.0, *, counted: bool = True) -> CellResult:
    others = OthersUse(used_s=used_s, stolen_s=stolen_s, elapsed_s=10.0, processors=2) if counted else None
    cell = Cell(script="tpcb-like", scale=1, clients=8)
    return CellResult(cell=cell, started="", duration_s=10.0, transactions=1, others=others)


def test_an_idle_host_and_old_records_say_nothing() -> None:
    assert list(busy_words([])) == []
    assert list(busy_words([run(0.9, 0.9), run(0.0), run(9.0, counted=False)])) == []


def test_processors_and_runs_are_counted() -> None:
    (said,) = busy_words([run(10.0), run(9.0), run(0.5)])
    assert said.startswith("other programs used 0.7 of 2 processors during the runs, more than 5 % in 2 of 3 runs:")


def test_what_the_hypervisor_withholds_is_told_apart() -> None:
    (said,) = busy_words([run(0.0, 4.0)])
    assert said.startswith("the hypervisor withheld 0.4 of 2 processors during the runs, more than 5 % in 1 of 1 runs:")


def test_turns_add_up() -> None:
    turns = OthersUse(used_s=1, stolen_s=2, elapsed_s=3, processors=4) + OthersUse(
        used_s=10, stolen_s=20, elapsed_s=30, processors=4
    )
    assert turns == OthersUse(used_s=11, stolen_s=22, elapsed_s=33, processors=4)


def test_the_client_s_host_and_the_network_are_told() -> None:
    def driven(busy_s: float) -> CellResult:
        use = ClientUse(host="ssh://loadgen", busy_s=busy_s, elapsed_s=10.0, processors=2, round_trip_ms=0.25)
        return run(0.0).model_copy(update={"client": use})

    assert list(client_words([run(0.0)])) == []
    (idle,) = client_words([driven(1.0), driven(4.0)])
    assert idle == (
        "the load ran on ssh://loadgen: at most 20 % of its processors were busy, "
        "a statement without work took 0.25 ms from there"
    )
    (busy,) = client_words([driven(1.0), driven(18.0)])
    assert "at most 90 %" in busy
    assert "may have set the limit" in busy
