"""Periods that appear in no log (btrfs commits, zfs transaction groups): a line in the spectrum of the seconds.

Hann-windowed periodogram over a running-median background (Vaughan, A&A 431, 2005, on red noise): under noise alone
power is exponential, with median ln 2. The background is itself estimated, as precisely as by m averaged powers, so
a ratio R to it has tail (1 + R/m)^-m (an F distribution with 2 and 2m degrees of freedom), and the largest of M ratios
p = 1 - (1 - (1 + R/m)^-m)^M.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pgstrata.analyze.stats.interval import Floats

ALPHA = 0.01
_HALF_WINDOW = 30
"""Frequencies on each side that form the background."""
_BACKGROUND_POWERS = 20
"""m: 61 Hann-windowed powers hold about 40 independent ones, and a median is half as efficient as a mean."""
_SLOWEST_CYCLES = 8
"""Minimum number of cycles in the run; slower swings cannot be distinguished from drift."""
_FASTEST_S = 3.0
_ENOUGH_S = 240


@dataclass(frozen=True)
class Line:
    """The strongest period of a run."""

    period_s: float
    power: float
    """Power in multiples of the background."""
    p: float
    swing: float
    """Crest to trough of a sine of that power, as a share of the mean."""

    @property
    def found(self) -> bool:
        return self.p < ALPHA


def _running_median(values: Floats) -> Floats:
    wide = np.lib.stride_tricks.sliding_window_view(np.pad(values, _HALF_WINDOW, "symmetric"), 2 * _HALF_WINDOW + 1)
    return np.asarray(np.median(wide, axis=1))


def strongest_period(tps: Floats) -> Line | None:
    """Return the strongest period; None for a run below 4 minutes or without any variation."""
    n = tps.size
    if n < _ENOUGH_S or float(np.ptp(tps)) == 0:
        return None
    t = np.arange(n)
    detrended = tps - np.polyval(np.polyfit(t, tps, 1), t)
    power = np.abs(np.fft.rfft(detrended * np.hanning(n))) ** 2
    frequency = np.fft.rfftfreq(n)
    log_power = np.log(np.maximum(power[1:], 1e-300))
    # The median of logarithms is the logarithm of the median; mirrored ends follow the slope of red noise.
    background = np.exp(_running_median(log_power)) / math.log(2)
    ratio = power[1:] / background
    wanted = (frequency[1:] >= _SLOWEST_CYCLES / n) & (frequency[1:] <= 1 / _FASTEST_S)
    candidates = np.flatnonzero(wanted)
    best = int(candidates[ratio[candidates].argmax()])
    tail = (1 + float(ratio[best]) / _BACKGROUND_POWERS) ** -_BACKGROUND_POWERS
    p = -math.expm1(candidates.size * math.log1p(-tail))
    # A sine of amplitude a has power (a n / 4)^2 under a Hann window, whose sum is n / 2.
    swing = 2 * 4 * math.sqrt(float(power[1 + best])) / n / float(tps.mean())
    return Line(1 / float(frequency[1 + best]), float(ratio[best]), p, swing)
