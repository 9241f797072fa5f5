"""The best length of a run: long enough that the noise within it does not matter, short enough for many runs.

Kalibera & Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013:

    T* = sqrt(c0 s_w^2 tau / s_b^2);  tau = (1 + phi) / (1 - phi)

c0: restore and warm-up before each run; s_w: standard deviation of a second within a run; phi: its autocorrelation;
s_b: between runs, beyond what the seconds explain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pgstrata.analyze.stats.interval import Floats

_LEAST_BETWEEN = 0.25
"""Minimum share of the variance of the runs' means that counts as between runs, even if the seconds explain it all."""


@dataclass(frozen=True)
class RunLength:
    """The suggestion and its inputs; relative standard deviations."""

    best_s: float
    within: float
    between: float
    tau_s: float


def best_length_s(overhead_s: float, within: float, tau_s: float, between: float) -> float:
    """Return T* in seconds; infinite if runs do not differ."""
    return math.sqrt(overhead_s * within**2 * tau_s / between**2) if between > 0 else math.inf


def suggest(runs: Sequence[Floats], overhead_s: float, sigma_run: float) -> RunLength | None:
    """Suggest a length from the seconds of runs and the run-to-run SD (relative, drift removed); None below 3 runs of a
    minute."""
    usable = [r for r in runs if r.size >= 60 and float(r.mean()) > 0]
    if len(usable) < 3 or not sigma_run > 0:
        return None
    relative = [r / float(r.mean()) for r in usable]
    within = math.sqrt(float(np.mean([r.var() for r in relative])))
    phi = min(0.99, max(0.0, float(np.mean([autocorrelation(r) for r in relative]))))
    tau_s = (1 + phi) / (1 - phi)
    explained = within**2 * tau_s / float(np.mean([r.size for r in usable]))
    between = math.sqrt(max(sigma_run**2 - explained, _LEAST_BETWEEN * sigma_run**2))
    return RunLength(best_length_s(overhead_s, within, tau_s, between), within, between, tau_s)


def autocorrelation(values: Floats) -> float:
    """Return the autocorrelation at lag 1; 0 for a constant series."""
    centred = values - values.mean()
    square = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / square if square > 0 else 0.0
