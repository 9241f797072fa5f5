"""Would what is measured right before a run explain its noise?

Run, as root: python benches/covariates.py [--runs 80] [--seconds 6]

One stack, ext4 on a loop file, tpcb-like with 8 clients, measured again and again; before each run the flushes a second
of the filesystem that holds the file are counted for a second. Two candidates, each for the difference of the
logarithms of TPS of two neighbouring runs, as in a block of two stacks: the difference of the logarithms of the flushes
before them, and that of two reference runs, one right before each of them. An explained share rho^2 leaves 1 - rho^2 of
the variance, and so of the runs that a verdict takes. A reference run doubles the time of a run, so it pays where
2 (1 - rho^2) < 1. Intervals are Fisher's z at 95 %.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time

import numpy as np
from bench_overhead import Loaded, measure_loaded, under_pgstrata

from pgstrata.spec.campaign import Campaign

FLUSH_BYTES, FLUSHES_S = 8192, 1.0
Z_95 = 1.96


def campaign(seconds: int) -> Campaign:
    return Campaign.model_validate(
        {
            "name": "covariates",
            "stacks": [{"name": "ext4", "data": {"device": {"kind": "loop"}, "fs": {"kind": "ext4"}}}],
            "workload": {"scale": 10, "clients": 8, "jobs": 2, "duration": seconds, "warmup": 1},
            "runs": {"blocks": 1},
        }
    )


def flush_rate(folder: str) -> float:
    """Writes of 8 KiB in place, each made durable, a second."""
    with tempfile.TemporaryFile(dir=folder) as file:
        page, done = os.urandom(FLUSH_BYTES), 0
        os.pwrite(file.fileno(), page, 0)
        os.fsync(file.fileno())
        began = time.monotonic()
        while time.monotonic() < began + FLUSHES_S:
            os.pwrite(file.fileno(), page, 0)
            os.fdatasync(file.fileno())
            done += 1
        return done / (time.monotonic() - began)


def measure_series(loaded: Loaded, runs: int) -> list[float]:
    """Flushes a second and TPS by turns."""
    found: list[float] = []
    for run in range(runs):
        found += [flush_rate("/var/tmp"), under_pgstrata(loaded)]
        print(f"  run {run + 1}: {found[-2]:.0f} flushes a second before it, {found[-1]:.0f} TPS", flush=True)
    return found


def correlation(a: np.ndarray, b: np.ndarray) -> tuple[float, float, float]:
    """Pearson's r with its interval; of fewer than four pairs nothing is known."""
    if a.size < 4:
        return math.nan, -1.0, 1.0
    r = float(np.corrcoef(a, b)[0, 1])
    z, half = math.atanh(r), Z_95 / math.sqrt(a.size - 3)
    return r, math.tanh(z - half), math.tanh(z + half)


def told(what: str, of: np.ndarray, by: np.ndarray) -> None:
    rho, low, high = correlation(of, by)
    print(f"{what}: rho {rho:.2f} ({low:.2f} ... {high:.2f}), {of.size} differences; 1 - rho^2 = {1 - rho * rho:.2f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=80, help="a multiple of four")
    parser.add_argument("--seconds", type=int, default=6)
    given = parser.parse_args()
    found = measure_loaded(campaign(given.seconds), lambda loaded: measure_series(loaded, given.runs))
    flushes, tps = np.log(np.array(found)).reshape(-1, 2).T
    print(f"SD of the logarithm of TPS, run to run: {float(np.diff(tps).std() / math.sqrt(2)):.3f}")
    told("flushes before each run", np.diff(tps.reshape(-1, 2)).ravel(), np.diff(flushes.reshape(-1, 2)).ravel())
    first, a, second, b = tps[: tps.size // 4 * 4].reshape(-1, 4).T
    told("a reference run before each run", b - a, second - first)
    return 0


if __name__ == "__main__":
    sys.exit(main())
