"""How long `pgstrata --help` takes: `python benches/bench_help.py`. Must hold: <= 0.3 s (median of 15)."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

BOUND_S = 0.3


def main() -> int:
    program = Path(sys.executable).with_name("pgstrata")
    taken = []
    for _ in range(15):
        began = time.monotonic()
        subprocess.run([str(program), "--help"], check=True, stdout=subprocess.DEVNULL, timeout=60)
        taken.append(time.monotonic() - began)
    median_s = statistics.median(taken)
    holds = median_s <= BOUND_S
    print(f"--help: {median_s:.3f} s (<= {BOUND_S} s: {'holds' if holds else 'DOES NOT HOLD'})")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
