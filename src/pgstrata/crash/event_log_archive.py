"""The event log and the choices kept with a verdict, sufficient to recreate every state of the trial.

The log is condensed: the durable content at the last moment before the transactions at which nothing was volatile
replaces the events until then. States have the same content as with the whole log, and their digests prove it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pgstrata.crash.job import CrashPlaces
from pgstrata.crash.ledger import BEGIN, END
from pgstrata.stack.block.media import call
from pgstrata.stack.step import PlannedCommand, Step, planned
from pgstrata.trial.context import TrialContext, TrialSetup

LOG = "raw/events.log.gz"
CHOICES = "raw/choices.jsonl"
"""The lines that make the checked states of the transactions' log."""
MIB = 1 << 20
TIMEOUT_S = 1800.0


def kept_log(interrupted: str | None) -> str:
    """The event log of a recorded state: that of the transactions, or of the recovery that it interrupts."""
    return f"raw/recovery-{interrupted}.log.gz" if interrupted else LOG


def state_file(name: str) -> str:
    """The line that makes a state."""
    return f"raw/states/{name}.json"


def keep_log_step(setup: TrialSetup, most_bytes: int | None = None) -> Step:
    """Brings the condensed log into the record, unless it is larger than `most_bytes` when packed."""
    file = f"{setup.outputs}/events.log"
    condense = call("condense", CrashPlaces.of(setup).log, file, "--after", BEGIN, "--until", END)
    return _keep_step("keep the event log", (replace(condense, timeout_s=TIMEOUT_S),), file, LOG, most_bytes)


def keep_recovery_step(log: str, interrupted: str) -> Step:
    """Brings the event log of an interrupted recovery into the record."""
    return _keep_step(f"keep the recovery of state {interrupted}", (), log, kept_log(interrupted))


def _keep_step(
    name: str, making: tuple[PlannedCommand, ...], file: str, kept: str, most_bytes: int | None = None
) -> Step:
    commands = (*making, planned("gzip", "--fast", file, timeout_s=TIMEOUT_S))
    return Step(name, commands, act=partial(_keep, file=file, kept=kept, most_bytes=most_bytes))


def _keep(context: TrialContext, *, file: str, kept: str, most_bytes: int | None) -> None:
    context.executor.run_rest()
    status = context.host.status(f"{file}.gz")
    if most_bytes is None or (status is not None and status.size_bytes <= most_bytes):
        context.host.fetch(f"{file}.gz", str(context.recorder.path(kept)))
    context.host.remove(f"{file}.gz")
