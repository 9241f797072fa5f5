"""Whether throughput had settled: the steady-state rule of the SNIA.

SNIA Solid State Storage Performance Test Specification, steady state: five windows whose range is at most 20 % of their
mean and whose least-squares line rises or falls by at most 10 % of it from the first window to the last.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

WINDOWS = 5
RANGE = 0.20
TREND = 0.10


def settled(values: Floats) -> bool:
    """Of the last five window means."""
    if values.size < WINDOWS:
        return False
    last = values[-WINDOWS:]
    mean = float(last.mean())
    if not mean > 0:
        return False
    rise = float(np.polyfit(np.arange(WINDOWS), last, 1)[0]) * (WINDOWS - 1)
    return float(np.ptp(last)) <= RANGE * mean and abs(rise) <= TREND * mean


def settled_seconds(tps: Floats) -> bool:
    """Of the seconds of a warm-up, cut into five windows."""
    width = tps.size // WINDOWS
    if width < 1:
        return False
    return settled(np.asarray(tps[: width * WINDOWS].reshape(WINDOWS, width).mean(axis=1)))
