"""Further power cuts while a state is recovered.

A state is recovered on a disk that logs the writes of mounting and of the server. States of that log are checked like
any other: all entries acknowledged by the first cut must exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from pgstrata.crash.event_log_archive import keep_recovery_step
from pgstrata.crash.job import (
    CrashPlaces,
    Portion,
    job_file,
    parse_seen,
    plan_stages,
    plan_workers,
    recorded_disks,
    render_job,
    undos_of_stages,
)
from pgstrata.crash.ledger import BEGIN
from pgstrata.crash.program import (
    Batch,
    ChosenState,
    CrashContext,
    plan_states,
    states_step,
    take_new,
)
from pgstrata.errors import TrialError
from pgstrata.spec.crash_request import CrashRequest
from pgstrata.stack.block.media import call, log_path, plan_serve, undos_of
from pgstrata.stack.step import Step, planned
from pgstrata.stack.undo import RemovePath
from pgstrata.trial.context import TrialSetup

CUTS = 10
"""Per recovery."""
SHARE = 100
"""By default, one of this number of states is interrupted while it is recovered."""


@dataclass(frozen=True)
class Recovering:
    """A state whose recovery is recorded: its id in the record, and the log of its recovery."""

    id: str
    state: ChosenState
    folder: str
    log: str

    @classmethod
    def of(cls, setup: TrialSetup, batch: Batch, state: ChosenState) -> Recovering:
        id_ = batch.id_of(state)
        folder = CrashPlaces.of(setup).recovery(id_)
        return cls(id_, state, folder, log_path(folder))


def interrupted_count(context: CrashContext, states: int, number: int) -> int:
    """Number of states of a pass whose recovery is interrupted; a requested number applies to the first pass. Zero for
    a cluster all of whose nodes lose power."""
    nested = context.request.nested
    if context.setup.stack.topology is not None:
        return 0
    if nested is None:
        return states // SHARE
    return min(nested, states) if number == 0 else 0


def spread(states: Sequence[ChosenState], count: int) -> tuple[ChosenState, ...]:
    """Selects `count` states at equal distances."""
    many = min(count, len(states))
    return tuple(states[(2 * place + 1) * len(states) // (2 * many)] for place in range(many))


def nested_steps(context: CrashContext, recovering: Recovering, seconds: float | None) -> Iterator[Step]:
    """Creates each step after the previous one is done: the states are known once the log exists."""
    setup, request = context.setup, context.request
    yield record_step(setup, recovering)
    yield choose_cuts_step(setup, request, recovering)
    if context.chosen:
        states = context.chosen
        batch = Batch(recovering.id, recovering.log, states, seconds, interrupts=recovering.state)
        yield states_step(setup, request, batch)
        if any(one.interrupts == recovering.id and one.verdict != "held" for one in context.found):
            yield keep_recovery_step(recovering.log, recovering.id)
    yield Step(f"forget the recovery of state {recovering.id}", (planned("rm", "--force", recovering.log),))


def record_step(setup: TrialSetup, recovering: Recovering) -> Step:
    """Mounts and recovers one state as after a power cut, on a disk whose events are logged."""
    folder, log = recovering.folder, recovering.log
    files = tuple(f"{folder}/disks/{disk.name}" for disk in recorded_disks(setup.plan.volumes))
    return Step(
        f"record the recovery of state {recovering.id}",
        (
            plan_serve(folder, "--log", log),
            *plan_workers(setup, [[recovering.state]]),
            call("stop", folder),
        ),
        undo=(RemovePath(path=log), *undos_of(folder, files), *undos_of_stages(plan_stages(setup.plan.volumes))),
        act=partial(_record, recovering=recovering),
        tells=("as a state is looked at, but the server waits for the disk as it is set to",),
    )


def choose_cuts_step(setup: TrialSetup, request: CrashRequest, recovering: Recovering) -> Step:
    """States of the recovery: power is lost between mounting and the server's last answer."""
    states = plan_states(request, recovering.log, CUTS, setup.trial.workload_seed, BEGIN)
    return Step(f"choose states of the recovery of state {recovering.id}", (states,), act=take_new)


def _record(context: CrashContext, *, recovering: Recovering) -> None:
    setup, file, script = context.setup, job_file(context.setup, 0), context.size.script
    told = Portion(recovering.folder, CrashPlaces.of(setup).log, [recovering.state.line], script, recorded=True)
    context.host.write_text(file, render_job(setup, told), mode=0o600)
    context.executor.run_next()
    done = context.executor.run_next(check=False)
    seen = parse_seen(done.stdout)
    problem = next((one.problem for one in seen if one.problem), "")
    if done.exit_code != 0 or problem:
        why = problem or done.stderr.strip()[-300:]
        raise TrialError(f"the recovery of state {recovering.id} could not be recorded: {why}")
    context.executor.run_next()
