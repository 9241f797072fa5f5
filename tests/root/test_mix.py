"""A mix of scripts with real servers: one cell, variables, a pipeline, and figures of each script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaigning import environment, nothing_left, reachable, run_in_fork
from pgstrata.errors import ExitCode
from pgstrata.record.reader import read

ORDERS = """\
\\set aid random(1, 100000 * :scale)
\\startpipeline
UPDATE pgbench_accounts SET abalance = abalance + :step WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
\\endpipeline
"""
CELL = "my_orders_9_select-only_1-s1-c2"
CAMPAIGN = """\
name: mix
stacks: [tmpfs, tmpfs@major=18]
workload:
  {{scale: 1, clients: 2, duration: 2, warmup: 1, script: my orders.sql@9+select-only@1, log: all,
    variables: {{step: 3}}, protocol: prepared}}
runs: {{design: {design}, slices: {{count: 2, length: 1s}}, blocks: 1, fresh_blocks: 1}}
defaults: {{postgresql: {{initdb: [--no-sync], settings: {{fsync: off}}}}}}
"""
pytestmark = pytest.mark.timeout(600)


def commands(folder: Path) -> list[str]:
    events = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    return [" ".join(event["argv"]) for event in events if event.get("argv")]


@pytest.mark.parametrize("design", ["whole", "slices"])
def test_a_mix_is_one_cell_with_figures_of_each_script(tmp_path: Path, design: str) -> None:
    with reachable(tmp_path) as place:
        (place / "my orders.sql").write_text(ORDERS)
        (place / "mix.yaml").write_text(CAMPAIGN.format(design=design))
        argv = ["run", str(place / "mix.yaml"), "--out", str(place / "out"), "--quiet"]
        code = run_in_fork(argv, environment(place), place / "log.txt")
        assert code == 0, (place / "log.txt").read_text()
        for trial in read(place / "out").trials:
            (cell,) = trial.cells
            assert (cell.id, cell.cell.script_name) == (CELL, "my orders@9+select-only@1")
            result = cell.result
            assert bool(result.slices) == (design == "slices")
            orders, select = result.scripts
            assert [(s.name, s.weight) for s in result.scripts] == [("my orders", 9), ("select-only", 1)]
            assert orders.transactions > select.transactions > 0
            counted = orders.transactions + select.transactions  # by threads without a lock
            assert counted == pytest.approx(result.transactions, rel=0.01)
            assert orders.tps + select.tps == pytest.approx(result.tps, rel=0.01)
            assert result.latency_avg_ms
            assert orders.latency_avg_ms
            assert select.latency_avg_ms
            assert orders.percentiles_ms["p50"] > select.percentiles_ms["p50"] > 0
            assert result.whole is None or len(result.whole.scripts) == 2
            runs = [argv for argv in commands(place / "out" / trial.folder) if "--random-seed" in argv]
            assert len(runs) == (3 if design == "slices" else 1) + 1  # and the warm-up
            assert all("@9 --builtin select-only@1 --define step=3 --no-vacuum" in argv for argv in runs)
        nothing_left(place)


def test_a_pipeline_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        (place / "orders.sql").write_text(ORDERS)
        argv = ["quick", "tmpfs", "--script", f"{place / 'orders.sql'}@9+select-only@1", "--define", "step=3"]
        argv += ["--no-crash", "--out", str(place / "out"), "--scratch", str(place / "scratch")]
        assert run_in_fork(argv, environment(place), place / "log.txt") == ExitCode.USAGE
        assert "--protocol extended" in (place / "log.txt").read_text()
        assert not (place / "out").exists()
