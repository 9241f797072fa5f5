"""Power that is lost again while a state is recovered.

A state is recovered on a disk that logs what mounting it and the server write. States of that log are looked at as any
other: what had been acknowledged at the first cut must be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from pgstrata.crash.job import (
    CrashPlaces,
    Portion,
    parse_seen,
    plan_stages,
    plan_worker,
    recorded_disks,
    render_job,
    undos_of_stages,
)
from pgstrata.crash.kept import keep_recovery_step
from pgstrata.crash.ledger import BEGIN
from pgstrata.crash.program import (
    Batch,
    ChosenState,
    CrashAsked,
    CrashContext,
    job_file,
    plan_states,
    states_step,
    take_new,
)
from pgstrata.errors import TrialError
from pgstrata.host.protocol import marked
from pgstrata.stack.block.media import call, log_path, undos_of
from pgstrata.stack.step import Step, planned
from pgstrata.stack.undo import RemovePath
from pgstrata.trial.context import TrialSetup

CUTS = 10
"""Of one recovery."""
SHARE = 100
"""Of so many states one is interrupted while it is recovered, where nothing is said."""


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


def interrupted_count(asked: CrashAsked, states: int, number: int) -> int:
    """Of how many states of a pass the recovery is interrupted; a number that was asked for is of the first pass."""
    if asked.nested is None:
        return states // SHARE
    return min(asked.nested, states) if number == 0 else 0


def spread(states: Sequence[ChosenState], count: int) -> tuple[ChosenState, ...]:
    """So many of them, at equal distances."""
    many = min(count, len(states))
    return tuple(states[(2 * place + 1) * len(states) // (2 * many)] for place in range(many))


def nested_steps(context: CrashContext, recovering: Recovering, seconds: float | None) -> Iterator[Step]:
    """Each is made when those before it have been done: which states there are is known once the log is there."""
    setup, asked = context.setup, context.asked
    yield record_step(setup, recovering)
    yield choose_cuts_step(setup, asked, recovering)
    if context.chosen:
        states = context.chosen
        batch = Batch(recovering.id, recovering.log, states, seconds, interrupts=recovering.state)
        yield states_step(setup, asked, batch)
        if any(one.interrupts == recovering.id and one.verdict != "held" for one in context.found):
            yield keep_recovery_step(recovering.log, recovering.id)
    yield Step(f"forget the recovery of state {recovering.id}", (planned("rm", "--force", recovering.log),))


def record_step(setup: TrialSetup, recovering: Recovering) -> Step:
    """One state is mounted and recovered as it would be after a power cut, on a disk whose events are logged."""
    folder, log = recovering.folder, recovering.log
    files = tuple(f"{folder}/disks/{disk.name}" for disk in recorded_disks(setup.plan.volumes))
    return Step(
        f"record the recovery of state {recovering.id}",
        (
            call("serve", folder, "--background", "--log", log),
            plan_worker(job_file(setup, 0), 1, marked(setup.server.marker)),
            call("stop", folder),
        ),
        undo=(RemovePath(path=log), *undos_of(folder, files), *undos_of_stages(plan_stages(setup.plan.volumes))),
        act=partial(_record, recovering=recovering),
        tells=("as a state is looked at, but the server waits for the disk as it is set to",),
    )


def choose_cuts_step(setup: TrialSetup, asked: CrashAsked, recovering: Recovering) -> Step:
    """States of the recovery: power is lost between mounting and the server's last answer."""
    states = plan_states(asked, recovering.log, CUTS, asked.seed, BEGIN)
    return Step(f"choose states of the recovery of state {recovering.id}", (states,), act=take_new)


def _record(context: CrashContext, *, recovering: Recovering) -> None:
    setup, file, script = context.setup, job_file(context.setup, 0), context.asked.size.script
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
