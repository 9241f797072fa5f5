"""Does it make a difference whether pgbench runs under pgstrata or by hand?

    python benches/bench_overhead.py [--pairs 20] [--seconds 5]

On tmpfs with select-only, where nothing but CPU counts: pairs of a run under pgstrata (probes, progress, all of it)
and of the very same pgbench command by hand, in alternating order, on one server with the same preparation. The ratio
of TPS (pgstrata / by hand) with its 95 % t interval must contain a value >= 0.99. Needs root.
"""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy import stats

from pgstrata.host.local import LocalHost
from pgstrata.postgres.database import checkpoint, prewarm
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import CellResult, PlannedRecord
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.expand import block_trials
from pgstrata.trial.bench import Bench
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.load import run_load
from pgstrata.trial.measure import run_cell
from pgstrata.trial.progress import NoProgress
from pgstrata.trial.site import DATABASE
from pgstrata.trial.stand import standing
from pgstrata.trial.steps import Steps
from pgstrata.trial.survey import open_site, survey
from pgstrata.workload.pgbench import plan_run
from pgstrata.workload.pgbench_output import parse_result

BOUND = 0.99


def campaign(seconds: int) -> Campaign:
    return Campaign.model_validate(
        {
            "name": "overhead",
            "stacks": [{"name": "tmpfs", "data": {"fs": {"kind": "tmpfs"}}}],
            "workload": {"script": "select-only", "scale": 10, "clients": 2, "jobs": 1,
                         "duration": seconds, "warmup": 1},
            "runs": {"blocks": 1},
        }
    )  # fmt: skip


def under_pgstrata(bench: Bench) -> float:
    (cell,) = bench.trial.cells
    run_cell(bench, cell)
    result = bench.recorder.cell(cell.id, "result.json")
    tps = CellResult.model_validate_json(result.read_text()).tps
    shutil.rmtree(result.parent)  # the next pair measures the same cell
    return tps


def by_hand(bench: Bench) -> float:
    """The same preparation, then the same words at a shell, with nothing beside them."""
    (cell,) = bench.trial.cells
    workload = bench.site.campaign.workload
    subprocess.run(["sync"], check=True, timeout=600)
    Path("/proc/sys/vm/drop_caches").write_text("3\n")
    bench.cluster.start()
    prewarm(bench.cluster, DATABASE)
    seed = bench.trial.workload_seed
    bench.host.run(plan_run(bench.target, cell, workload, seed=seed + 1, duration_s=workload.warmup))
    checkpoint(bench.cluster)
    plan = plan_run(bench.target, cell, workload, seed=seed)
    argv = ["setpriv", "--reuid", bench.site.user, "--regid", bench.site.user, "--clear-groups", *plan.argv]
    # A session of its own, as under pgstrata: on a busy machine the kernel shares CPU time out by session (autogroup).
    done = subprocess.run(
        argv, check=True, capture_output=True, text=True, cwd="/", timeout=600, start_new_session=True
    )
    bench.cluster.stop()
    return parse_result(done.stdout).tps


def measure_pairs(bench: Bench, pairs: int) -> list[float]:
    """Logarithms of pgstrata / by hand."""
    ratios = []
    for pair in range(pairs):
        sides = (under_pgstrata, by_hand) if pair % 2 == 0 else (by_hand, under_pgstrata)
        tps = {side: side(bench) for side in sides}
        ratios.append(math.log(tps[under_pgstrata] / tps[by_hand]))
        print(f"  pair {pair + 1}: {tps[under_pgstrata]:.0f} under pgstrata, {tps[by_hand]:.0f} by hand", flush=True)
    return ratios


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=5)
    given = parser.parse_args()
    asked = campaign(given.seconds)
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="pgstrata-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        host = LocalHost(state_directory=str(folder / "state"))
        (trial,) = block_trials(asked, 0, ["tmpfs"])
        with CampaignDirectory.create_or_open(folder / "out", asked) as directory:
            site = open_site(survey(host, asked, folder / "out"))
            planned = PlannedRecord(trial=trial, stack=asked.stacks[0], steps=())
            recorder = directory.start_trial(trial, planned)
            steps = Steps(recorder, NoProgress(), Interruption(), 86400.0)
            with standing(site, trial, recorder, steps, lambda logs, open_loop: {}) as bench:
                run_load(bench)
                ratios = np.array(measure_pairs(bench, given.pairs))
        host.close()
    half = float(stats.t.ppf(0.975, ratios.size - 1) * ratios.std(ddof=1) / math.sqrt(ratios.size))
    mean = float(ratios.mean())
    low, high = math.exp(mean - half), math.exp(mean + half)
    holds = high >= BOUND
    print(
        f"TPS under pgstrata / by hand: {math.exp(mean):.4f} ({low:.4f} ... {high:.4f}), {ratios.size} pairs; "
        f"the interval contains a value >= {BOUND}: {'holds' if holds else 'DOES NOT HOLD'}"
    )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
