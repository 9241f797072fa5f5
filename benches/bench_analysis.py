"""How long the analysis of a campaign of 12 stacks and 12 blocks takes: it must never delay a run.

Bound: 0.5 s of processor time for everything between the record and the findings (reading the JSON files is shown
beside it; processor time, because the analysis is single-threaded and the machine may be busy). Example:
.venv/bin/python benches/bench_analysis.py
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.campaign.metrics import Observer
from pgstrata.analyze.campaign.policy import AdaptivePolicy
from pgstrata.record.reader import read
from pgstrata_fake.campaigns import Shape, write_campaign

STACKS = tuple(f"{kind}-{i}" for kind in ("ext4", "xfs", "btrfs") for i in range(4))
BOUND_S = 0.5
REPEATS = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=300, help="length of a run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shape = Shape(stacks=STACKS, blocks=12, duration_s=options.seconds, incidents=False)
        directory = write_campaign(Path(folder) / "campaign", shape)
        reading, judging, deciding = [], [], []
        for _ in range(REPEATS):
            began = time.process_time()
            data = read(directory)
            reading.append(time.process_time() - began)
            began = time.process_time()
            findings = judge(data)
            judging.append(time.process_time() - began)
            policy = AdaptivePolicy.of(data.campaign)
            observe = Observer(data.campaign.goal.primary)
            began = time.process_time()
            policy.decide(observe(data.trials), 12, 0.0)
            deciding.append(time.process_time() - began)
    print(
        f"12 stacks, 12 blocks, {len(data.trials)} runs of {options.seconds} s, {len(findings.comparisons)} comparisons"
    )
    print(f"read the record   {min(reading):.3f} s")
    print(
        f"decide            {min(deciding):.3f} s (what a running campaign waits for, of which all blocks are replayed)"
    )
    print(f"judge             {min(judging):.3f} s (bound {BOUND_S} s)")
    return 0 if min(judging) <= BOUND_S else 1


if __name__ == "__main__":
    sys.exit(main())
