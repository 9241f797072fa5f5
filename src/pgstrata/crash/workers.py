"""Local workers: a step has a command for each, and each checks a portion of the states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from pgstrata.crash.job import (
    CrashPlaces,
    Portion,
    Seen,
    WorkerOutput,
    fitting_workers,
    parse_seen,
    plan_worker,
    render_job,
    shares,
)
from pgstrata.host.protocol import marked
from pgstrata.stack.step import PlannedCommand
from pgstrata.trial.context import TrialContext, TrialSetup


class State(Protocol):
    """A state as `strata-disk states` printed it."""

    @property
    def line(self) -> str: ...


S = TypeVar("S", bound=State)
Told = Callable[[str, list[str]], Portion]
"""Creates a worker's job, given the folder of its daemon and the lines of its states."""


def portions_of(setup: TrialSetup, states: Sequence[S], workers: int | None) -> list[list[S]]:
    """The states of each worker, as many workers as fit; empty without states."""
    return [portion for portion in shares(states, fitting_workers(setup, workers)) if portion]


def job_file(setup: TrialSetup, worker: int) -> str:
    return f"{setup.outputs}/worker{worker}.json"


def plan_workers(setup: TrialSetup, portions: Sequence[Sequence[S]]) -> tuple[PlannedCommand, ...]:
    """The commands of a step, executed by `look`."""
    return tuple(
        plan_worker(job_file(setup, worker), len(portion), marked(setup.server.marker))
        for worker, portion in enumerate(portions)
    )


def look(context: TrialContext, portions: Sequence[Sequence[S]], told: Told) -> list[WorkerOutput]:
    """Exit status of each worker of the step; all work at once."""
    host, setup, started = context.host, context.setup, []
    for worker, portion in enumerate(portions):
        job = job_file(setup, worker)
        asked = told(CrashPlaces.of(setup).states(worker), [state.line for state in portion])
        host.write_text(job, render_job(setup, asked), mode=0o600)
        outputs = (f"{job}.out", f"{job}.err")
        started.append((outputs, *context.executor.start_next(stdout=outputs[0], stderr=outputs[1])))
    ended = []
    for outputs, process, command in started:
        code = process.wait(command.timeout_s)
        ended.append(WorkerOutput(code, *(host.read_text(path) for path in outputs)))
        for path in outputs:
            host.remove(path)
    return ended


def seen_by(worker: WorkerOutput) -> tuple[Seen, ...]:
    """A worker's reports on its states, in order; if it died, the reason comes last."""
    seen = parse_seen(worker.stdout)
    if worker.code != 0 and not any(one.problem for one in seen):
        why = f"the worker ended with {worker.code}: {worker.stderr.strip()[-300:]}"
        return (*seen, Seen(-1, "", None, "", "", why))
    return seen
