"""What a repetition costs besides prewarm, warm-up and measuring, against a plain shell script.

    python benches/bench_repetition.py [--scale 50] [--runs 5]

In turn: the script of people who do it by hand (filesystem, initdb, pgbench -i), bare and with what has to come between
loading and measuring (cold caches, restarted server, CHECKPOINT); trials that load anew; trials that restore a copy.
Must hold for the medians: copy <= 0.40 of the bare script, fresh <= the script that does the same. Needs root.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pgstrata.host.local import LocalHost
from pgstrata.postgres.binaries import choose, discover
from pgstrata.postgres.user import readable_installation, run_user
from pgstrata.record.reader import TrialData, read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import TrialVerdict
from pgstrata.spec.campaign import Trial
from pgstrata.spec.load import load_campaign
from pgstrata.spec.stack import Postgres
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.opening import opened_runner
from pgstrata.trial.policy import FixedBlocks
from pgstrata.trial.progress import NoProgress
from pgstrata.trial.scheduler import run_campaign

SCRIPT = Path(__file__).with_name("plain_run.sh")
COPY_BOUND = 0.40
FRESH_BOUND = 1.0
NOT_COUNTED = ("prewarm", "warm-up", "measure")

CAMPAIGN = """\
name: repetition
stacks: [ext4]
defaults: {{device: {{loop: 1, size: 4G}}}}
workload: {{scale: {scale}, clients: 2, duration: 1, warmup: 0}}
runs: {{blocks: {blocks}, fresh_blocks: {runs}, load: copy}}
"""


def script_s(folder: Path, scale: int, *what: str) -> float:
    host = LocalHost()
    user = run_user(host)
    installation = readable_installation(host, choose(discover(host), Postgres()), user)
    host.close()
    began = time.monotonic()
    argv = [str(SCRIPT), str(folder), installation.bin_directory, str(scale), user, *what]
    subprocess.run(argv, check=True, timeout=3600)
    return time.monotonic() - began


def overhead_s(trial: TrialData) -> float:
    """The whole trial, but for what every benchmark has to do."""
    spared = sum(s.duration_s for s in trial.steps if s.name.endswith(NOT_COUNTED))
    return trial.verdict.duration_s - spared


def golden_s(trial: TrialData) -> float:
    """One trial of a campaign keeps the copy; that is paid once."""
    return sum(s.duration_s for s in trial.steps if s.name == "keep a golden copy")


class BetweenTrials(NoProgress):
    """Runs both scripts after each of the first `runs` trials: what drifts on this machine falls on all sides."""

    def __init__(self, folder: Path, scale: int, runs: int) -> None:
        self.folder, self.scale, self.runs = folder, scale, runs
        self.bare: list[float] = []
        self.cold: list[float] = []

    def finished(self, trial: Trial, verdict: TrialVerdict) -> None:
        if verdict.status != "ok":
            raise SystemExit(f"{trial.id}: {verdict.reason}")
        if trial.block >= self.runs:
            return
        both = [(self.bare, ()), (self.cold, ("cold",))]
        for values, what in both if trial.block % 2 else reversed(both):
            values.append(script_s(self.folder, self.scale, *what))


def no_logs(logs: Sequence[Path], open_loop: bool) -> Mapping[str, float]:
    raise NotImplementedError("no log is written")


def run_trials(folder: Path, scale: int, runs: int) -> tuple[tuple[TrialData, ...], BetweenTrials]:
    """As many trials that load anew, each followed by the scripts, as trials that restore a copy."""
    file = folder / "repetition.yaml"
    file.write_text(CAMPAIGN.format(scale=scale, blocks=2 * runs, runs=runs))
    campaign = load_campaign(file)
    scripts, interruption, host = BetweenTrials(folder, scale, runs), Interruption(), LocalHost()
    try:
        with (
            interruption.installed(),
            CampaignDirectory.create_or_open(folder / "out", campaign) as directory,
            opened_runner(host, campaign, directory, scripts, interruption, no_logs) as (runner, stacks),
        ):
            policy = FixedBlocks(stacks, 2 * runs)
            run_campaign(campaign, directory, runner, policy, scripts, observe=lambda _: (), interruption=interruption)
    finally:
        host.close()
    return read(folder / "out").trials, scripts


def judge(label: str, values: list[float], base_label: str, base: list[float], bound: float) -> bool:
    ratio = statistics.median(values) / statistics.median(base)
    print(f"{label}: {ratio:.2f} of {base_label} (<= {bound}: {'holds' if ratio <= bound else 'DOES NOT HOLD'})")
    return ratio <= bound


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=50)
    parser.add_argument("--runs", type=int, choices=range(2, 21), default=5, metavar="2..20")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="pgstrata-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        trials, scripts = run_trials(folder, given.scale, given.runs)
    bare, cold = scripts.bare, scripts.cold
    fresh = [overhead_s(t) - golden_s(t) for t in trials if t.load and t.load.how == "fresh"]
    copied = [overhead_s(t) for t in trials if t.load and t.load.how == "copy"]
    for label, values in (
        ("bare script", bare),
        ("script with a cold start", cold),
        ("fresh", fresh),
        ("copy", copied),
    ):
        print(
            f"scale {given.scale}, {label}: median {statistics.median(values):.2f} s of {[round(v, 1) for v in values]}"
        )
    print(f"fresh: {statistics.median(fresh) / statistics.median(bare):.2f} of the bare script")
    verdicts = [
        judge("fresh", fresh, "the script with a cold start", cold, FRESH_BOUND),
        judge("copy", copied, "the bare script", bare, COPY_BOUND),
    ]
    _print_steps("load anew", [t for t in trials if t.load and t.load.how == "fresh"])
    _print_steps("restore a copy", [t for t in trials if t.load and t.load.how == "copy"])
    return 0 if all(verdicts) else 1


def _print_steps(label: str, trials: list[TrialData]) -> None:
    print(f"steps of trials that {label}, medians:")
    took: dict[str, list[float]] = {}
    for trial in trials:
        for step in trial.steps:
            took.setdefault(step.name, []).append(step.duration_s)
    for name, values in took.items():
        print(f"  {statistics.median(values):7.3f} s  {name}")


if __name__ == "__main__":
    sys.exit(main())
