"""A failing state of a record made as small as possible, later and with more patience than its trial had."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pgstrata.crash.faults import ledger_size
from pgstrata.crash.job import CrashPlaces, failover_steps, plan_stages
from pgstrata.crash.kept import state_file
from pgstrata.crash.ledger import LedgerSize, parse_marks
from pgstrata.crash.named_state import NamedState
from pgstrata.crash.program import CrashAsked, CrashContext, serve_steps
from pgstrata.crash.reduction import MINIMAL, Patience, Reduction
from pgstrata.crash.replay import log_steps, replay_setup, unpacked
from pgstrata.crash.runner import no_percentiles
from pgstrata.errors import TrialError, UsageError
from pgstrata.record.recorder import TrialRecorder
from pgstrata.record.schema import MinimalRecord, StateRecord
from pgstrata.stack.block.media import call
from pgstrata.stack.build import StepRunner, failures
from pgstrata.stack.journal import Journal
from pgstrata.stack.step import Step, planned
from pgstrata.stack.undo import RemovePath, StopProcesses
from pgstrata.trial.context import TrialSetup
from pgstrata.trial.events import Notice, Tell
from pgstrata.trial.executor import Executor, Identity
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.program import folder_steps
from pgstrata.trial.scratch import make_scratch
from pgstrata.trial.site import Site

LIMIT_S = 86400.0


def refuse_small(named: NamedState) -> StateRecord:
    """What was seen in a state that can be made smaller; UsageError for one that cannot."""
    record = named.record
    if record is None:
        raise UsageError(f"{named.title} was made as small as possible already", hint="name the state it was made from")
    if record.interrupts is not None or record.verdict not in ("lost", "corrupt"):
        raise UsageError(
            f"{named.title} is no state in which transactions that were recorded are lost or damaged",
            hint="states of an interrupted recovery, and those of which nothing is known, are not made smaller",
        )
    return record


def minimise_state(
    site: Site, named: NamedState, patience: Patience, tell: Tell, by: Interruption
) -> tuple[MinimalRecord, dict[str, bytes]]:
    """The smallest state, and the files that belong into the record of its trial. Everything is undone. TrialError
    where the state does not fail again."""
    failing = refuse_small(named)
    setup = replay_setup(site, named)
    with tempfile.TemporaryDirectory(prefix="pgstrata-minimise-") as folder, unpacked(named) as packed:
        recorder = TrialRecorder(setup.trial, Path(folder), Path(folder))
        executor = Executor(site.host, Identity("minimise", setup.trial.id), tell, by, LIMIT_S)
        try:
            with _standing(site, setup, executor, tell) as runner:
                found = named.trial.found
                asked = CrashAsked(
                    seed=found.seed,
                    ignored_flushes=found.ignored_flushes,
                    size=ledger_size(LedgerSize.transactions, found.fault, found.script),
                    fault=found.fault,
                    gone=found.power.gone if found.power else (),
                )
                context = CrashContext(setup, recorder, executor, no_percentiles, runner.bindings, asked=asked)
                steps = (*folder_steps(setup), *log_steps(setup, named, packed), *_ready_steps(setup, asked))
                executor.run(steps, runner, context)
                take = partial(_take, runner=runner, context=context)
                record = Reduction(context, take, failing, named.state.line, patience).run()
        finally:
            executor.close()
        names = (MINIMAL, state_file(record.state))
        return record, {name: (Path(folder) / name).read_bytes() for name in names}


@contextmanager
def _standing(site: Site, setup: TrialSetup, executor: Executor, tell: Tell) -> Iterator[StepRunner]:
    """Runs steps; in the end everything that they did is undone."""
    host, context = site.host, setup.plan.context
    journal = Journal.create(host, context.trial_id)
    try:
        host.mark(context.marker)
        journal.register(StopProcesses(marker=context.marker))
        make_scratch(host, site.scratch, journal)
        yield StepRunner(host, journal)
    finally:
        with executor.undoing():
            lines = failures(journal.undo_all())
        for line in lines:
            tell(Notice(f"could not be undone: {line}; run `pgstrata clean`"))


def _ready_steps(setup: TrialSetup, asked: CrashAsked) -> tuple[Step, ...]:
    stages = plan_stages(setup.plan.volumes)
    points = [stage.mount_point for stage in stages if stage.mount_point]
    return (
        *(step for stage in stages for step in stage.readies),
        Step(
            "mount points",
            (planned("mkdir", "--parents", points),),
            undo=tuple(RemovePath(path=point) for point in points),
        ),
        Step("acknowledgements", (call("marks", CrashPlaces.of(setup).log),), act=_take_marks),
        *failover_steps(setup),
        *serve_steps(setup, asked),
    )


def _take_marks(context: CrashContext) -> None:
    context.marks = parse_marks(context.executor.run_next().stdout)
    if not context.marks:
        raise TrialError("no transaction was acknowledged in this event log")


def _take(step: Step, *, runner: StepRunner, context: CrashContext) -> None:
    context.executor.run((step,), runner, context)
