"""Do report, status and a resumed run take time in proportion to the trials, and does a trial of `run` cost the same
however many there were before?

    python benches/bench_scale.py [--trials 500 5000] [--runs 100 300 1000]

Trials are those of PGSTRATA_FAKE=1, with 5 stacks and seconds of 5 s. Each verb runs in a process of its own; its
processor time (the machine may be busy) and its peak memory are those that the kernel gives. The overhead of `run` is
the processor time of the loop without that of the runner. Bounds: 60 s and 1 GB for the page of the larger campaign, no
more than 1.2 times in proportion for any verb, and 5 ms of overhead a trial, no more than twice that of the smallest
run. `status` of the larger campaign takes 3 s at most, and the first verdict of `watch` is there within 10 s (by the
clock, on an idle machine). Takes about ten minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

from bench_watch import served

from pgstrata.analyze.campaign.metrics import Observer
from pgstrata.cli.campaign_run import choose_policy
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import TrialVerdict
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.trial.events import Tell, silent
from pgstrata.trial.fake import FAKE_MODE
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.scheduler import run_campaign
from pgstrata.trial.scheduling import OneByOne
from pgstrata_fake.runner import FakeRunner

STACKS = ("ext4", "xfs", "btrfs", "tmpfs", "zfs")
PAGE_S = 60.0
STATUS_S = 3.0
VERDICT_S = 10.0
PAGE_BYTES = 1e9
PROPORTION = 1.2
OVERHEAD_MS = 5.0
OVERHEAD_GROWTH = 2.0
_VERB = "from pgstrata.cli.main import main; main()"


@dataclass(frozen=True)
class Cost:
    """Of one process."""

    processor_s: float
    peak_bytes: float


def spec(blocks: int) -> dict[str, object]:
    return {
        "name": "scale",
        "stacks": {name: {"data": {"fs": {"kind": name}}} for name in STACKS},
        "workload": {"scale": 1, "clients": 2, "duration": 5},
        "runs": {"blocks": blocks},
    }


def run_verb(*words: str) -> Cost:
    """Runs a verb of pgstrata; its output goes nowhere."""
    argv = [sys.executable, "-c", _VERB, *words]
    nowhere = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
    pid = os.posix_spawn(sys.executable, argv, {**os.environ, FAKE_MODE: "1"}, file_actions=nowhere)
    _, status, used = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"pgstrata {' '.join(words)} ended with {os.waitstatus_to_exitcode(status)}")
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def costs(folder: Path, trials: int) -> dict[str, Cost]:
    """By verb, of a campaign of so many trials."""
    blocks = trials // len(STACKS)
    out, file = str(folder / f"{trials}"), folder / f"{trials}.yaml"
    file.write_text(json.dumps(spec(blocks)))
    run_verb("run", str(file), "--out", out, "--quiet")
    return {
        "judge (report --format json)": run_verb("report", out, "--format", "json"),
        "judge and page (report --format html)": run_verb("report", out, "--format", "html"),
        "status": run_verb("status", out),
        "resume (nothing is left, with its report)": run_verb("run", str(file), "--out", out),
        "resume (run of one more block, with its report)": run_verb(
            "run", str(file), "--out", out, "--blocks", str(blocks + 1)
        ),
    }


def first_verdict_s(directory: Path) -> float:
    """From the start of `watch` to the first verdict that a viewer is sent."""
    began_s = time.perf_counter()
    with served(directory) as (_, told):
        address = f"http://127.0.0.1:{told['port']}/events"
        asked = Request(address, headers={"Authorization": f"Bearer {told['token']}"})
        with urlopen(asked, timeout=300) as events:
            while (line := events.readline()) and not line.startswith(b"event: verdict"):
                continue
    return time.perf_counter() - began_s


@dataclass
class TimedRunner(OneByOne):
    """The made-up trials, and the processor time that they took."""

    inner: FakeRunner
    processor_s: float = 0.0

    def begin_block(self, block: int, directory: CampaignDirectory) -> None:
        self.inner.begin_block(block, directory)

    def run(self, trial: Trial, directory: CampaignDirectory, tell: Tell) -> TrialVerdict:
        began_s = time.process_time()
        verdict = self.inner.run(trial, directory, tell)
        self.processor_s += time.process_time() - began_s
        return verdict


def overhead_ms(folder: Path, trials: int) -> float:
    """Processor time of `run` beside its trials, for each of them."""
    value = spec(trials // len(STACKS))
    value["stacks"] = [{"name": name, "data": {"fs": {"kind": name}}} for name in STACKS]
    campaign = Campaign.model_validate(value)
    runner = TimedRunner(FakeRunner(campaign))
    with CampaignDirectory.create_or_open(folder / f"run-{trials}", campaign) as directory:
        began_s = time.process_time()
        run_campaign(
            campaign,
            directory,
            runner,
            choose_policy(campaign, STACKS),
            silent,
            observe=Observer(campaign.goal.primary),
            interruption=Interruption(),
        )
        whole_s = time.process_time() - began_s
    return 1000 * (whole_s - runner.processor_s) / trials


def print_costs(small: int, large: int, found: dict[int, dict[str, Cost]]) -> bool:
    """A line for each verb; whether all are within their bounds."""
    held = True
    print(f"{'processor time':<50}{small:>7} trials{large:>9} trials    ratio  bound    peak memory")
    for verb, of_large in found[large].items():
        of_small = found[small][verb]
        ratio, bound = of_large.processor_s / of_small.processor_s, PROPORTION * large / small
        is_page = "page" in verb
        most_s = PAGE_S if is_page else STATUS_S if verb == "status" else math.inf
        fits = of_large.processor_s <= most_s and (of_large.peak_bytes <= PAGE_BYTES or not is_page)
        holds = ratio <= bound and fits
        held &= holds
        limit = f", bound {most_s:.0f} s" if math.isfinite(most_s) else ""
        limit += f", {PAGE_BYTES / 1e6:.0f} MB" if is_page else ""
        print(
            f"{verb:<50}{of_small.processor_s:>12.2f} s{of_large.processor_s:>14.2f} s{ratio:>9.1f}  <= {bound:<5.3g}"
            f"{of_small.peak_bytes / 1e6:>8.0f} {of_large.peak_bytes / 1e6:.0f} MB{limit}{'' if holds else '  MISSED'}"
        )
    return held


def print_overheads(found: dict[int, float]) -> bool:
    """A line for each length of a run; whether all are within their bounds."""
    held = True
    bound = min(OVERHEAD_MS, OVERHEAD_GROWTH * found[min(found)])
    for trials, ms in found.items():
        held &= ms <= bound
        print(f"run of {trials:>5} trials: {ms:6.2f} ms of overhead a trial   bound {bound:.2f} ms")
    return held


def main() -> int:
    """Prints figure against bound; 1 when a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs=2, default=(500, 5000))
    parser.add_argument("--runs", type=int, nargs="+", default=(100, 300, 1000))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="pgstrata-bench-") as name:  # no wait for a disk
        folder = Path(name)
        overheads = {trials: overhead_ms(folder, trials) for trials in asked.runs}
        found = {trials: costs(folder, trials) for trials in asked.trials}
        verdict_s = first_verdict_s(folder / f"{asked.trials[1]}")
    small, large = asked.trials
    held = [print_costs(small, large, found), print_overheads(overheads), verdict_s <= VERDICT_S]
    print(f"first verdict of watch on {large} trials: {verdict_s:.1f} s   bound {VERDICT_S:.0f} s")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
