"""What PostgreSQL loses on a disk of strata-disk that has no model, beside a plain loop file.

Run, as root and on an idle machine: python benches/bench_media_postgres.py [--blocks 4] [--seconds 20] [--scale 10]

ext4 on a loop device over a file below --scratch and over a disk in memory without timing of its own, tpcb-like with 8
clients, in blocks of random order. Bound: the geometric mean of the blocks' ratios of TPS is at least 0.8. Exit code 1
on a miss. It takes about 2 minutes, and 1.5 more for each block.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_strata_disk import PROGRAM, told

PGSTRATA = PROGRAM.with_name("pgstrata")
BOUND = 0.8
CAMPAIGN = """\
name: untimed disk
stacks: {{loop: ext4, disk: media(none)/ext4}}
workload: {{script: tpcb-like, scale: {scale}, clients: 8, jobs: 2, warmup: 2s, duration: {seconds}s}}
runs: {{blocks: {blocks}, load: copy, fresh_blocks: 0}}
"""


def rates(out: Path) -> dict[str, list[float]]:
    """TPS of each stack, block by block."""
    found: dict[str, dict[int, float]] = {"loop": {}, "disk": {}}
    for result in out.glob("trials/*/cells/*/result.json"):
        trial = json.loads((result.parents[2] / "planned.json").read_text())["trial"]
        found[trial["stack"]][trial["block"]] = json.loads(result.read_text())["tps"]
    return {stack: [blocks[block] for block in sorted(blocks)] for stack, blocks in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--scale", type=int, default=10)
    parser.add_argument("--scratch", default="/var/tmp")
    asked = parser.parse_args()
    if not PROGRAM.exists():
        print("0 figures: strata-disk is not built, cargo is missing")
        return 0
    with tempfile.TemporaryDirectory(prefix="pgstrata-bench-", dir=asked.scratch) as folder:
        file, out = Path(folder) / "campaign.yaml", Path(folder) / "out"
        file.write_text(CAMPAIGN.format(seconds=asked.seconds, blocks=asked.blocks, scale=asked.scale))
        argv = [PGSTRATA, "run", file, "--out", out, "--scratch", asked.scratch]
        subprocess.run([str(a) for a in argv], check=True, capture_output=True, timeout=3600)
        found = rates(out)
    pairs = list(zip(found["disk"], found["loop"], strict=True))
    ratio = math.exp(sum(math.log(disk / loop) for disk, loop in pairs) / len(pairs))
    shown = ", ".join(f"{disk:,.0f} and {loop:,.0f} TPS" for disk, loop in pairs)
    holds = told(f"PostgreSQL on an untimed disk: {ratio:.2f} of a loop file (>= {BOUND}; {shown})", ratio >= BOUND)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
