"""What a repetition costs besides prewarm, warm-up and measuring, against a plain shell script.

    python benches/bench_repetition.py [--scale 50] [--runs 5]

In turn: the script of people who do it by hand (filesystem, initdb, pgbench -i), bare and with what has to come between
loading and measuring (cold caches, restarted server, CHECKPOINT); trials that load anew; trials that restore a copy.
Must hold for the medians: copy <= 0.40 of the bare script, fresh <= the script that does the same. The load itself, the
same `pgbench -i` on both sides, takes three quarters of it and varies by 10 % here; so the second ratio is of what each
side takes besides it, plus the median load of both. The plain ratio of medians is printed too. Needs root.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pgstrata.host.local import LocalHost
from pgstrata.postgres.binaries import choose, discover
from pgstrata.postgres.user import readable_installation, run_user
from pgstrata.record.reader import TrialData, read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import TrialVerdict
from pgstrata.spec.campaign import Trial
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.stack import Postgres
from pgstrata.trial.events import Event, TrialEnded
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.opening import performance_runner
from pgstrata.trial.scheduler import run_campaign
from pgstrata.trial.scheduling import FixedBlocks

SCRIPT = Path(__file__).with_name("plain_run.sh")
COPY_BOUND = 0.40
FRESH_BOUND = 1.0
NOT_COUNTED = ("prewarm", "warm-up", "measure", "keep a golden copy")

CAMPAIGN = """\
name: repetition
stacks: [ext4]
defaults: {{device: {{loop: 1, size: 4G}}}}
workload: {{scale: {scale}, clients: 2, duration: 1, warmup: 0}}
runs: {{blocks: {blocks}, fresh_blocks: {runs}, load: copy}}
"""


@dataclass(frozen=True)
class Took:
    total_s: float
    load_s: float
    """Of it `pgbench -i`."""


def run_script(folder: Path, scale: int, *what: str) -> Took:
    host = LocalHost()
    user = run_user(host)
    installation = readable_installation(host, choose(discover(host), Postgres()), user)
    host.close()
    began = time.monotonic()
    argv = [str(SCRIPT), str(folder), installation.bin_directory, str(scale), user, *what]
    printed = subprocess.run(argv, check=True, timeout=3600, capture_output=True, text=True).stdout
    return Took(time.monotonic() - began, int(printed.splitlines()[-1]) / 1e6)


def trial_took(trial: TrialData) -> Took:
    """The whole trial, but for what every benchmark has to do, and for the golden copy that one of them keeps."""
    spared = sum(s.duration_s for s in trial.steps if s.name.endswith(NOT_COUNTED))
    return Took(trial.verdict.duration_s - spared, sum(s.duration_s for s in trial.steps if s.name == "load"))


class BetweenTrials:
    """Runs both scripts after each of the first `runs` trials: what drifts on this machine falls on all sides."""

    def __init__(self, folder: Path, scale: int, runs: int) -> None:
        self.folder, self.scale, self.runs = folder, scale, runs
        self.bare: list[Took] = []
        self.cold: list[Took] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, TrialEnded):
            self._after(event.trial, event.verdict)

    def _after(self, trial: Trial, verdict: TrialVerdict) -> None:
        if verdict.status != "ok":
            raise SystemExit(f"{trial.id}: {verdict.reason}")
        if trial.block >= self.runs:
            return
        both = [(self.bare, ()), (self.cold, ("cold",))]
        for values, what in both if trial.block % 2 else reversed(both):
            values.append(run_script(self.folder, self.scale, *what))


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
            performance_runner(host, campaign, directory, scripts, interruption) as (
                runner,
                stacks,
            ),
        ):
            policy = FixedBlocks(stacks, 2 * runs)
            run_campaign(campaign, directory, runner, policy, scripts, observe=lambda _: (), interruption=interruption)
    finally:
        host.close()
    return read(folder / "out").trials, scripts


def judge(label: str, ratio: float, base_label: str, bound: float) -> bool:
    print(f"{label}: {ratio:.2f} of {base_label} (<= {bound}: {'holds' if ratio <= bound else 'DOES NOT HOLD'})")
    return ratio <= bound


def median_s(took: Sequence[Took]) -> float:
    return statistics.median(t.total_s for t in took)


def besides_load_s(took: Sequence[Took]) -> float:
    return statistics.median(t.total_s - t.load_s for t in took)


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
    fresh = [trial_took(t) for t in trials if t.load and t.load.how == "fresh"]
    copied = [trial_took(t) for t in trials if t.load and t.load.how == "copy"]
    for label, took in (
        ("bare script", bare),
        ("script with a cold start", cold),
        ("fresh", fresh),
        ("copy", copied),
    ):
        rest = f", besides pgbench -i {besides_load_s(took):.2f} s" if took is not copied else ""
        print(
            f"scale {given.scale}, {label}: median {median_s(took):.2f} s of "
            f"{[round(t.total_s, 1) for t in took]}{rest}"
        )
    print(f"fresh, medians: {median_s(fresh) / median_s(bare):.2f} of the bare script, ", end="")
    print(f"{median_s(fresh) / median_s(cold):.2f} of the script with a cold start")
    load_s = statistics.median(t.load_s for t in (*fresh, *bare, *cold))
    ratio = (load_s + besides_load_s(fresh)) / (load_s + besides_load_s(cold))
    verdicts = [
        judge("fresh, with the same load", ratio, "the script with a cold start", FRESH_BOUND),
        judge("copy", median_s(copied) / median_s(bare), "the bare script", COPY_BOUND),
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
