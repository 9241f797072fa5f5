"""Loads of `quick` other than pgbench's: each is judged by a metric that its runs have."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pgstrata.analyze.stats.detectable_difference import smallest_shown
from pgstrata.cli.main import app
from pgstrata.cli.overrides import require_known
from pgstrata.cli.verbs.quick import quick_workload, replay_length_s
from pgstrata.errors import UsageError
from pgstrata.spec.quick import quick_campaign


@pytest.mark.parametrize(
    ("script", "metric"), [("tpcc", "nopm"), ("go-tpc", "tpmc"), ("oltp_read_write", "tps"), ("tpcb-like", "tps")]
)
def test_the_metric_of_a_load_is_known(script: str, metric: str) -> None:
    campaign = quick_campaign(
        ["ext4", "xfs"], partial(smallest_shown, fixed=False), workload=quick_workload([script], [], None)
    )
    assert campaign.goal.primary == metric
    require_known(campaign)


def test_a_metric_of_another_load_is_refused() -> None:
    campaign = quick_campaign(
        ["ext4", "xfs"], partial(smallest_shown, fixed=False), workload=quick_workload(["tpcc"], [], None)
    )
    goal = campaign.goal.model_copy(update={"primary": "tpmc"})
    with pytest.raises(UsageError, match="there is no metric 'tpmc'") as refused:
        require_known(campaign.model_copy(update={"goal": goal}))
    assert "nopm" in (refused.value.hint or "")


@pytest.mark.parametrize(("speed", "metric"), [("1", "latency_avg_ms"), ("max", "tps")])
def test_a_replay_is_a_load_of_quick(tmp_path: Path, speed: str, metric: str) -> None:
    (tmp_path / "my.load").write_text("")
    (tmp_path / "shop.dump").write_text("")
    replay = {"driver": {"kind": "replay", "load": str(tmp_path / "my.load"), "speed": speed}, "warmup": 0}
    asked = quick_workload([], [], None, pg_restore=tmp_path / "shop.dump", replay=replay)
    campaign = quick_campaign(["ext4", "xfs"], partial(smallest_shown, fixed=False), workload=asked)
    assert (campaign.goal.primary, campaign.workload.warmup, campaign.runs.design) == (metric, 0, "whole")
    assert campaign.workload.pg_restore == str(tmp_path / "shop.dump")
    require_known(campaign)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--replay", "my.load"), "a replay needs its data"),
        (("--replay", "my.load", "--pg-restore", "my.dump", "--script", "tpcb-like"), "script"),
        (("--speed", "2"), "--speed is the speed of a replay"),
        (("--replay", "my.load", "--pg-restore", "my.dump", "--speed", "fast"), "speed"),
        (("--replay", "none.load", "--pg-restore", "my.dump"), "none.load"),
    ],
)
def test_a_replay_that_cannot_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.load").write_text("")
    (tmp_path / "my.dump").write_text("")
    done = CliRunner().invoke(app, ["quick", "ext4", "xfs", "--plan", *words])
    assert done.exit_code != 0
    assert message in f"{done.output}{done.stderr}{done.exception}"


@pytest.mark.parametrize(
    ("speed", "seconds"),
    [(None, 41.0), ("2", 21.0), ("0.5x", 81.0), ("1000", 1.0), ("max", None), ("fast", None), ("0", None)],
)
def test_a_run_is_as_long_as_the_load(tmp_path: Path, speed: str | None, seconds: float | None) -> None:
    summary = {
        "format": 1, "statements": 9, "sessions": 2, "digests": 3, "first_us": 5_000_000, "last_us": 45_400_000,
        "without_duration": 0, "whole_seconds": False, "literals": "keep",
        "database": None, "left_out": {}, "bytes": 99,
    }  # fmt: skip
    load = tmp_path / "my.load"
    load.write_text('["d",1,"shop"]\n' * 9000 + json.dumps(summary) + "\n")
    assert replay_length_s(load, speed) == seconds


@pytest.mark.parametrize("text", ["", "[1]\n", "{}\n", "\xff\n", None])
def test_a_file_without_a_summary_has_no_length(tmp_path: Path, text: str | None) -> None:
    load = tmp_path / "my.load"
    if text is not None:
        load.write_bytes(text.encode("latin-1"))
    assert replay_length_s(load, None) is None


def test_a_budget_below_the_load_is_refused_with_what_would_do() -> None:
    with pytest.raises(UsageError, match="is too short") as refused:
        quick_campaign(["ext4", "xfs"], partial(smallest_shown, fixed=False), minutes=5, duration_s=600.0)
    assert "a shorter --duration" in (refused.value.hint or "")
