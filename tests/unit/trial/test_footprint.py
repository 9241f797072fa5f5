"""Space for the record."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgstrata.analyze.campaign.policy import MAX_PAIRS
from pgstrata.errors import PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.spec.campaign import Campaign
from pgstrata.trial.survey.preflight import (
    LOG_LINE_BYTES,
    MOST_PAIRS,
    RUN_BYTES,
    SECOND_BYTES,
    check_record_space,
    record_bytes,
)

RUN = RUN_BYTES + 100 * SECOND_BYTES


def campaign(**changes: object) -> Campaign:
    stacks = [{"name": kind, "data": {"fs": {"kind": kind}}} for kind in ("ext4", "xfs")]
    plain = {"name": "x", "stacks": stacks, "workload": {"duration": 100}, "runs": {"blocks": 3}}
    return Campaign.model_validate({**plain, **changes})


@pytest.mark.parametrize(
    ("changes", "size_bytes"),
    [
        ({}, 6 * RUN),
        ({"runs": {"max_blocks": 4}}, (8 + 2 * MOST_PAIRS) * RUN),
        ({"runs": {"blocks": 3, "budget": 300}}, 3 * RUN),
        ({"workload": {"duration": 100, "log": "all"}}, 6 * (RUN + 100_000 * LOG_LINE_BYTES)),
        ({"workload": {"duration": 100, "rate": 70, "log": "sampled"}}, 6 * (RUN + 700 * LOG_LINE_BYTES)),
        ({"workload": {"transactions": 600, "clients": 2, "log": "all"}},
         6 * (RUN_BYTES + 60 * SECOND_BYTES + 1200 * LOG_LINE_BYTES)),
        ({"latency": {"rates": [0.5], "blocks": 2}}, 10 * RUN + 4 * 50_000 * LOG_LINE_BYTES),
        ({"latency": {"rates": [0.5], "blocks": 2, "objective_ms": 5}},
         34 * RUN + (4 * 50_000 + 24 * 100_000) * LOG_LINE_BYTES),
        ({"soak": {"duration": 1000, "runs": 1}}, 6 * RUN + 2 * (RUN_BYTES + 1000 * SECOND_BYTES)),
        ({"soak": {"duration": 1000, "runs": 1},
          "workload": {"duration": 100, "script": ["select-only", "simple-update"]}},
         12 * RUN + 2 * (RUN_BYTES + 1000 * SECOND_BYTES)),
    ],
)  # fmt: skip
def test_what_the_record_takes(changes: dict[str, object], size_bytes: int) -> None:
    assert record_bytes(campaign(**changes)) == size_bytes


def test_as_many_pairs_as_the_policy_runs_at_most() -> None:
    assert MOST_PAIRS == MAX_PAIRS


def test_a_record_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    host = LocalHost(state_directory=str(tmp_path / "state"))
    (tmp_path / "trials").mkdir()
    scratch = str(tmp_path / "scratch")
    check_record_space(host, campaign(), tmp_path, scratch, 0)
    huge = campaign(workload={"duration": 3e7, "log": "all"})
    with pytest.raises(PreflightError, match="too little space for the record") as caught:
        check_record_space(host, huge, tmp_path, scratch, 0)
    assert "--out" in caught.value.hint
    with pytest.raises(PreflightError, match="for loop files and golden copies on the same filesystem"):
        check_record_space(host, campaign(), tmp_path, scratch, 1 << 60)
    check_record_space(host, campaign(), tmp_path, "/dev/shm/scratch", 1 << 60)


def test_what_was_recorded_is_not_needed_again(tmp_path: Path) -> None:
    host = LocalHost(state_directory=str(tmp_path / "state"))
    large = campaign(workload={"duration": 1e7, "log": "all"})  # 3 TB
    with pytest.raises(PreflightError, match="too little space for the record"):
        check_record_space(host, large, tmp_path, str(tmp_path), 0)
    (tmp_path / "trials" / "b000").mkdir(parents=True)
    with (tmp_path / "trials" / "b000" / "log").open("wb") as file:
        file.truncate(record_bytes(large))
    check_record_space(host, large, tmp_path, str(tmp_path), 0)
