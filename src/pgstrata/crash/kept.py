"""What is kept of the event log where a state did not hold: enough to make every state of the trial again.

The log is condensed: what was durable at the last moment before the transactions at which nothing was volatile stands
for what happened until then. States have the same content as of the whole log, and their digests say so.
"""

from __future__ import annotations

from dataclasses import replace

from pgstrata.crash.job import CrashPlaces
from pgstrata.crash.ledger import BEGIN, END
from pgstrata.stack.block.media import call
from pgstrata.stack.step import Step, planned
from pgstrata.trial.context import TrialContext, TrialSetup

LOG = "raw/events.log.gz"
TIMEOUT_S = 1800.0


def keep_log_step(setup: TrialSetup) -> Step:
    """Brings the condensed log into the record."""
    file = f"{setup.outputs}/events.log"
    condense = call("condense", CrashPlaces.of(setup).log, file, "--after", BEGIN, "--until", END)
    commands = (replace(condense, timeout_s=TIMEOUT_S), planned("gzip", "--fast", file, timeout_s=TIMEOUT_S))
    return Step("keep the event log", commands, act=_keep)


def _keep(context: TrialContext) -> None:
    context.executor.run_next()
    context.executor.run_next()
    file = f"{context.setup.outputs}/events.log.gz"
    context.host.fetch(file, str(context.recorder.path(LOG)))
    context.host.remove(file)
