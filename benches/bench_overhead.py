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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from pgstrata.host.local import LocalHost
from pgstrata.postgres.database import plan_checkpoint, prewarm
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import CellResult
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.expand import block_trials
from pgstrata.stack.build import StepRunner
from pgstrata.stack.journal import Journal
from pgstrata.stack.step import Step
from pgstrata.stack.undo import RemovePath
from pgstrata.trial.context import TrialContext
from pgstrata.trial.events import EventLog
from pgstrata.trial.executor import Executor, Identity
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.program import make_program
from pgstrata.trial.steps.load import Present
from pgstrata.trial.survey.host_survey import DATABASE, Site
from pgstrata.trial.survey.survey import open_site, survey
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


@dataclass(frozen=True)
class Loaded:
    """A trial's stack with its data, and the steps that measure its cell."""

    context: TrialContext
    runner: StepRunner
    measure: tuple[Step, ...]


def under_pgstrata(loaded: Loaded) -> float:
    context = loaded.context
    (cell,) = context.trial.cells
    context.executor.run(loaded.measure, loaded.runner, context)
    result = context.recorder.cell(cell.id, "result.json")
    tps = CellResult.model_validate_json(result.read_text()).tps
    shutil.rmtree(result.parent)  # the next pair measures the same cell
    return tps or 0.0


def by_hand(loaded: Loaded) -> float:
    """The same preparation, then the same words at a shell, with nothing beside them."""
    context = loaded.context
    (cell,) = context.trial.cells
    setup, host, server = context.setup, context.host, context.server
    subprocess.run(["sync"], check=True, timeout=600)
    Path("/proc/sys/vm/drop_caches").write_text("3\n")
    server.start()
    prewarm(server, DATABASE)
    seed = setup.trial.workload_seed
    host.run(plan_run(setup.target, cell, setup.workload, seed=seed + 1, duration_s=setup.workload.warmup))
    host.run(plan_checkpoint(server))
    plan = plan_run(setup.target, cell, setup.workload, seed=seed)
    user = setup.site.user
    argv = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", *plan.argv]
    # A session of its own, as under pgstrata: on a busy machine the kernel shares CPU time out by session (autogroup).
    done = subprocess.run(
        argv, check=True, capture_output=True, text=True, cwd="/", timeout=600, start_new_session=True
    )
    server.stop()
    return parse_result(done.stdout).tps


def measure_pairs(loaded: Loaded, pairs: int) -> list[float]:
    """Logarithms of pgstrata / by hand."""
    ratios = []
    for pair in range(pairs):
        sides = (under_pgstrata, by_hand) if pair % 2 == 0 else (by_hand, under_pgstrata)
        tps = {side: side(loaded) for side in sides}
        ratios.append(math.log(tps[under_pgstrata] / tps[by_hand]))
        print(f"  pair {pair + 1}: {tps[under_pgstrata]:.0f} under pgstrata, {tps[by_hand]:.0f} by hand", flush=True)
    return ratios


def measured(
    site: Site, trial: Trial, directory: CampaignDirectory, measure: Callable[[Loaded], list[float]]
) -> list[float]:
    """Builds and loads the trial's stack, measures the pairs on it, and takes it down."""
    program = make_program(site, trial, Present())
    recorder = directory.start_trial(trial, program.planned)
    executor = Executor(site.host, Identity("overhead", trial.id), EventLog(recorder), Interruption(), 86400.0)
    journal = Journal.create(site.host, site.context(trial).trial_id)
    try:
        journal.register(RemovePath(path=site.golden_directory))
        runner = StepRunner(site.host, journal)
        context = TrialContext(program.setup, recorder, executor, runner.bindings)
        executor.run((*program.build, *program.prepare), runner, context)
        return measure(Loaded(context, runner, program.measure))
    finally:
        executor.close()
        journal.undo_all()


def measure_loaded(asked: Campaign, measure: Callable[[Loaded], list[float]]) -> list[float]:
    """What `measure` finds on a trial of the campaign's one stack, in a folder of its own below /var/tmp."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="pgstrata-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        host = LocalHost(state_directory=str(folder / "state"))
        (trial,) = block_trials(asked, 0, [stack.name for stack in asked.stacks])
        with CampaignDirectory.create_or_open(folder / "out", asked) as directory:
            site = open_site(survey(host, asked, folder / "out"))
            found = measured(site, trial, directory, measure)
        host.close()
    return found


def ratio_interval(logarithms: list[float]) -> tuple[float, float, float]:
    """The ratio with its 95 % t interval."""
    ratios = np.array(logarithms)
    half = float(stats.t.ppf(0.975, ratios.size - 1) * ratios.std(ddof=1) / math.sqrt(ratios.size))
    mean = float(ratios.mean())
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=5)
    given = parser.parse_args()
    ratio, low, high = ratio_interval(
        measure_loaded(campaign(given.seconds), lambda loaded: measure_pairs(loaded, given.pairs))
    )
    holds = high >= BOUND
    print(
        f"TPS under pgstrata / by hand: {ratio:.4f} ({low:.4f} ... {high:.4f}), {given.pairs} pairs; "
        f"the interval contains a value >= {BOUND}: {'holds' if holds else 'DOES NOT HOLD'}"
    )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
