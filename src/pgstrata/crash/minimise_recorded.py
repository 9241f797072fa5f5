"""Minimises a failing state of a record after its trial, with a larger budget."""

from __future__ import annotations

from functools import partial

from pgstrata.crash.event_log_archive import state_file
from pgstrata.crash.job import CrashPlaces, failover_steps, plan_stages
from pgstrata.crash.ledger import parse_marks
from pgstrata.crash.named_state import NamedState
from pgstrata.crash.program import CrashContext, serve_steps
from pgstrata.crash.reduction import MINIMAL, Patience, Reduction
from pgstrata.crash.replay import log_steps, packed_log, replay_setup
from pgstrata.errors import TrialError, UsageError
from pgstrata.record.crash import MinimalRecord, StateRecord
from pgstrata.record.recorder import TrialRecorder
from pgstrata.spec.crash_request import CrashRequest
from pgstrata.stack.block.media import call
from pgstrata.stack.build import StepRunner
from pgstrata.stack.journal import temporary_folder
from pgstrata.stack.step import Step, planned
from pgstrata.stack.undo import RemovePath
from pgstrata.trial.context import TrialSetup
from pgstrata.trial.events import Tell
from pgstrata.trial.executor import Executor, Identity
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.program import folder_steps
from pgstrata.trial.standing import standing, tell_left
from pgstrata.trial.survey.host_survey import Site

LIMIT_S = 86400.0


def refuse_small(named: NamedState) -> StateRecord:
    """The report on a state that can be minimised. Raises UsageError for one that cannot."""
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
    """The smallest state, and its files for the record of the trial. Everything is undone. Raises TrialError if the
    state does not fail again."""
    failing = refuse_small(named)
    setup = replay_setup(site, named)
    with temporary_folder("minimise") as folder, packed_log(named.data.source, named.log) as packed:
        recorder = TrialRecorder(setup.trial, folder, folder)
        executor = Executor(site.host, Identity("minimise", setup.trial.id), tell, by, LIMIT_S)
        try:
            with standing(site, setup.plan.context.trial_id, executor, partial(tell_left, tell)) as journal:
                runner = StepRunner(site.host, journal)
                request = named.trial.found.request.model_copy(update={"workers": None})
                context = CrashContext(setup, recorder, executor, runner.bindings, request=request)
                steps = (*folder_steps(setup), *log_steps(setup, named, packed), *_ready_steps(setup, request))
                executor.run(steps, runner, context)
                take = partial(_take, runner=runner, context=context)
                record = Reduction(context, take, failing, named.state.line, patience).run()
        finally:
            executor.close()
        names = (MINIMAL, state_file(record.state))
        return record, {name: (folder / name).read_bytes() for name in names}


def _ready_steps(setup: TrialSetup, request: CrashRequest) -> tuple[Step, ...]:
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
        *failover_steps(setup, CrashPlaces.of(setup)),
        *serve_steps(setup, request),
    )


def _take_marks(context: CrashContext) -> None:
    context.marks = parse_marks(context.executor.run_next().stdout)
    if not context.marks:
        raise TrialError("no transaction was acknowledged in this event log")


def _take(step: Step, *, runner: StepRunner, context: CrashContext) -> None:
    context.executor.run((step,), runner, context)
