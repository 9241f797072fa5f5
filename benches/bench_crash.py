"""How many states of crash trials are looked at in a minute, with one worker and with two? As root.

    python benches/bench_crash.py [--states 200] [--stack ext4]

A state is attached, mounted, recovered by PostgreSQL, checked (ledger, and amcheck where the server has it) and taken
down again. The figures count the steps that look at states: not the recording, nor the choice of states. Bounds: 400
states a minute with one worker, 600 with two. `bench_recording.py` has what recording costs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, median
from typing import Any

PROGRAM = Path(sys.executable).parent / "pgstrata"
BOUNDS = {1: 400.0, 2: 600.0}
EFFICIENCY = 0.8
"""Of two workers, by the rate of one. Each keeps a server, the daemon of its disk and a mount busy, so that two of them
want more than two processors."""


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def explore(stack: str, states: int, workers: int, scratch: Path) -> float:
    """States a minute; prints what their parts took."""
    with tempfile.TemporaryDirectory(prefix="bench-crash-") as folder:
        out, sizes = Path(folder) / "out", ["--states", str(states), "--workers", str(workers)]
        places = ["--out", str(out), "--scratch", str(scratch / Path(folder).name)]
        argv = [str(PROGRAM), "crash", stack, *sizes, "--nested", "0", *places, "--quiet"]
        subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
        (trial,) = (out / "crash").iterdir()
        found, events = lines(trial / "states.jsonl"), lines(trial / "events.jsonl")
    ended = (event for event in events if event["event"] == "step_ended" and event["step"].startswith("states "))
    looked_s = sum(event["duration_s"] for event in ended)
    rate: float = 60 * len(found) / looked_s
    print(f"{stack}, {workers} workers: {len(found)} states in {looked_s:.1f} s, {rate:.0f} a minute")
    for part in found[0]["parts_s"]:
        taken = [1000 * state["parts_s"][part] for state in found if part in state["parts_s"]]
        print(f"  {part:10} mean {mean(taken):6.1f} ms, median {median(taken):6.1f} ms")
    most = max(state["memory_bytes"] for state in found)
    print(f"  memory of a worker with its daemon and its server: at most {most / (1 << 20):.0f} MiB")
    return rate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=200)
    parser.add_argument("--stack", default="ext4")
    parser.add_argument("--scratch", type=Path, default=Path("/var/tmp"))
    asked = parser.parse_args()
    rates = {workers: explore(asked.stack, asked.states, workers, asked.scratch) for workers in BOUNDS}
    efficiency = rates[2] / (2 * rates[1])
    print(
        f"efficiency of the second worker: {efficiency:.2f}   bound {EFFICIENCY:.1f} where there are processors for it"
    )
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    missed = [workers for workers, rate in rates.items() if rate < BOUNDS[workers]]
    for workers in missed:
        print(f"below the bound of {BOUNDS[workers]:.0f} states a minute with {workers} workers")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
