"""Processor time that other programs took of the server's host during a run or a turn."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pgstrata.host.protocol import ProcessorSeconds
from pgstrata.record.others_use import OthersUse
from pgstrata.trial.context import TrialContext

_OUR_PROGRAMS = ("strata-disk",)


@dataclass(frozen=True)
class ProcessorsLook:
    """The counters of the host at one moment."""

    at_s: float
    """By the monotonic clock of this machine."""
    counted: ProcessorSeconds


def read_processors(context: TrialContext) -> ProcessorsLook:
    """Return the counters of the server's host now."""
    with context.host.looking():
        counted = context.host.processor_seconds((context.site.user,), _OUR_PROGRAMS)
    return ProcessorsLook(time.monotonic(), counted)


def others_use(before: ProcessorsLook, after: ProcessorsLook) -> OthersUse:
    """Return the time between two looks that was neither the kernel's threads' nor ours.

    Processes are counted in clock ticks, so that a difference of a few hundredths of a second means nothing.
    """
    then, now = before.counted, after.counted
    return OthersUse(
        used_s=max(0.0, (now.busy_s - then.busy_s) - (now.own_s - then.own_s)),
        stolen_s=max(0.0, now.stolen_s - then.stolen_s),
        elapsed_s=max(0.0, after.at_s - before.at_s),
        processors=now.processors,
    )
