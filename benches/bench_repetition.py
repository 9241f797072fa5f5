"""What a repetition costs besides prewarm, warm-up and measuring, against a plain shell script.

    python benches/bench_repetition.py [--scale 50] [--runs 5]

In turn: the script of people who do it by hand (filesystem, initdb, pgbench -i), a trial that loads anew, a trial that
restores a copy. Must hold: copy <= 0.40 of the script, fresh <= the script (medians). Needs root.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pgstrata.host.local import LocalHost
from pgstrata.postgres.binaries import choose, discover
from pgstrata.postgres.user import readable_installation, run_user
from pgstrata.record.reader import TrialData, read
from pgstrata.spec.stack import Postgres

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


def script_s(folder: Path, scale: int) -> float:
    host = LocalHost()
    user = run_user(host)
    installation = readable_installation(host, choose(discover(host), Postgres()), user)
    host.close()
    began = time.monotonic()
    argv = [str(SCRIPT), str(folder), installation.bin_directory, str(scale), user]
    subprocess.run(argv, check=True, timeout=3600)
    return time.monotonic() - began


def overhead_s(trial: TrialData) -> float:
    """The whole trial, but for what every benchmark has to do."""
    spared = sum(s.duration_s for s in trial.steps if s.name.endswith(NOT_COUNTED))
    return trial.verdict.duration_s - spared


def golden_s(trial: TrialData) -> float:
    """One trial of a campaign keeps the copy; that is paid once."""
    return sum(s.duration_s for s in trial.steps if s.name == "keep a golden copy")


def run_trials(folder: Path, scale: int, runs: int) -> tuple[TrialData, ...]:
    file = folder / "repetition.yaml"
    file.write_text(CAMPAIGN.format(scale=scale, blocks=2 * runs, runs=runs))
    argv = [sys.executable, "-m", "pgstrata.cli.main", "run", str(file), "--out", str(folder / "out"), "--quiet"]
    subprocess.run(argv, check=True, timeout=7200, stdout=subprocess.DEVNULL)
    return read(folder / "out").trials


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=50)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="pgstrata-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        # Half of the scripts before and half after, so that drift of the machine falls on both sides.
        before = [script_s(folder, given.scale) for _ in range((given.runs + 1) // 2)]
        trials = run_trials(folder, given.scale, given.runs)
        script = before + [script_s(folder, given.scale) for _ in range(given.runs // 2)]
    fresh = [overhead_s(t) - golden_s(t) for t in trials if t.load and t.load.how == "fresh"]
    copied = [overhead_s(t) for t in trials if t.load and t.load.how == "copy"]
    base = statistics.median(script)
    print(f"scale {given.scale}, medians: script {base:.2f} s of {[round(s, 1) for s in script]}")
    verdicts = []
    for label, values, bound in (("fresh", fresh, FRESH_BOUND), ("copy", copied, COPY_BOUND)):
        ratio = statistics.median(values) / base
        verdicts.append(ratio <= bound)
        holds = "holds" if verdicts[-1] else "DOES NOT HOLD"
        shown = [round(v, 1) for v in values]
        print(f"{label}: {statistics.median(values):.2f} s of {shown}: {ratio:.2f} of the script (<= {bound}: {holds})")
    _print_steps("loads anew", next(t for t in trials if t.load and t.load.how == "fresh"))
    _print_steps("restores a copy", next(t for t in trials if t.load and t.load.how == "copy"))
    return 0 if all(verdicts) else 1


def _print_steps(label: str, trial: TrialData) -> None:
    print(f"steps of a trial that {label}:")
    for step in trial.steps:
        print(f"  {step.duration_s:7.3f} s  {step.name}")


if __name__ == "__main__":
    sys.exit(main())
