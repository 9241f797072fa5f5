"""One crash trial, from a disk to a verdict, and back to nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from pgstrata.crash.cluster_program import ClusterContext, cluster_program, summarise_failures
from pgstrata.crash.event_log_archive import CHOICES, MIB, keep_log_step, state_file
from pgstrata.crash.job import CrashPlaces, fitting_workers, has_amcheck
from pgstrata.crash.program import (
    Batch,
    ChosenState,
    CrashContext,
    choose_step,
    crash_program,
    planned_record,
    states_step,
)
from pgstrata.crash.recovery_cuts import Recovering, interrupted_count, nested_steps, spread
from pgstrata.crash.reduction import Patience, Reduction, failing_state
from pgstrata.crash.remote_workers import RemoteWorkers, remote_states_step, send_log_step
from pgstrata.crash.script import SCRIPTS
from pgstrata.crash.verdict import power_cut_nodes, summarise
from pgstrata.errors import NotUnderstood, TrialError
from pgstrata.host.protocol import CommandFailed, HostLost
from pgstrata.record.crash import FAILED, CrashRecord
from pgstrata.record.recorder import CampaignDirectory, TrialRecorder
from pgstrata.record.schema import TrialVerdict
from pgstrata.spec.campaign import Trial
from pgstrata.spec.crash_request import STATES, CrashRequest
from pgstrata.stack.build import StepRunner
from pgstrata.stack.step import Step
from pgstrata.trial.context import TrialSetup
from pgstrata.trial.events import Notice, Tell, TrialBegun, TrialEnded
from pgstrata.trial.executor import Executor
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.outcome import TrialOutcome
from pgstrata.trial.program import Program
from pgstrata.trial.standing import report_left, standing
from pgstrata.trial.steps.collect import fetch_server_log
from pgstrata.trial.survey.host_survey import Site

PROVEN = 10
"""Failing states after which no further ones are checked, unless a number of states was requested."""
EXAMINED_SHARE = 10
"""One of this number of states is examined further."""
BATCH = 50
"""States that a worker looks at in one step."""


def batches(states: Sequence[ChosenState], size: int) -> Iterator[tuple[ChosenState, ...]]:
    """Splits states into runs of `size`, in order."""
    return (tuple(states[at : at + size]) for at in range(0, len(states), size))


def examined_ids(setup: TrialSetup, states: Sequence[ChosenState], number: int) -> frozenset[int]:
    """One state in ten of a pass, and at least one of the first pass; none of a cluster, whose servers keep
    running.
    """
    if setup.stack.topology is not None:
        return frozenset()
    count = max(len(states) // EXAMINED_SHARE, 1 if number == 0 else 0)
    return frozenset(state.id for state in spread(states, count))


@dataclass
class CrashRunner:
    """Runs crash trials at one site."""

    site: Site
    interruption: Interruption
    request: CrashRequest = field(default_factory=CrashRequest)
    remote: RemoteWorkers | None = None
    """Checks states instead of local workers."""

    def program(self, trial: Trial) -> Program:
        """The part of a trial that is known beforehand."""
        return crash_program(self.site, trial, self.request)

    def context(
        self, program: Program, recorder: TrialRecorder, executor: Executor, bindings: dict[str, str]
    ) -> CrashContext:
        return CrashContext(program.setup, recorder, executor, bindings, request=self.request)

    def run(self, trial: Trial, directory: CampaignDirectory, tell: Tell) -> TrialVerdict:
        """Runs one trial to its verdict. Raises Interrupted, with the trial undone and set aside, or RecordError."""
        program = self.program(trial)
        recorder = directory.start_crash(trial, program.planned)
        tell(TrialBegun(self.site.campaign.name, trial))
        attempt = TrialOutcome(self.site, trial, directory, recorder, self.interruption, passed_on=(HostLost,))
        verdict = attempt.to_verdict(partial(self._run, program, recorder), tell)
        tell(TrialEnded(self.site.campaign.name, trial, verdict))
        return verdict

    def _run(self, program: Program, recorder: TrialRecorder, executor: Executor) -> None:
        host = self.site.host
        trial_id, told = program.setup.plan.context.trial_id, partial(report_left, recorder, executor)
        with standing(self.site, trial_id, executor, told) as journal:
            runner = StepRunner(host, journal, self.site.campaign.erase)
            context = self.context(program, recorder, executor, runner.bindings)
            try:
                executor.run(program.steps, runner, context)
            finally:
                with suppress(HostLost):
                    fetch_server_log(context)
            self.look(program, runner, context)

    def look(self, program: Program, runner: StepRunner, context: CrashContext) -> None:
        """Records the results even if an error ends the check early."""
        setup, requested = program.setup, self.request.requested
        further: list[Step] = []
        try:
            self._explore(setup, further, runner, context)
            context.explored = not context.problem
            self._keep_log(setup, further, runner, context)
            self._reduce(further, runner, context)
        finally:
            context.recorder.write("planned.json", planned_record(program, further))
            told = CrashRecord(
                stack=setup.stack.name,
                seed=setup.trial.workload_seed,
                request=self.request,
                panicked=context.panicked,
                transactions=len(context.marks),
                recordings=context.recordings,
                checkpoints=context.checkpoints,
                recorded_s=round(context.marks[-1].at_s - context.marks[0].at_s, 3) if context.marks else 0.0,
                flush_epochs=context.flushes,
                amcheck=has_amcheck(setup),
                token=self.site.token,
                mount_root=self.site.mount_root or "",
                power=power_cut_nodes(setup.stack, self.request.gone, context.found),
                missing=0 if context.explored else max(0, (requested or 0) - _looked_at(context)),
                unknown_reason=context.problem,
            )
            context.recorder.write("durability.json", summarise(told, context.found))

    def _keep_log(self, setup: TrialSetup, further: list[Step], runner: StepRunner, context: CrashContext) -> None:
        """Keeps what makes the states: always where one failed, else up to a size; a held verdict stands without it."""
        context.recorder.write_text(CHOICES, "".join(f"{line}\n" for line in context.choices))
        failed = any(state.verdict in FAILED for state in context.found)
        if failed:
            self._take(keep_log_step(setup), further, runner, context)
        elif context.choices and self.request.keep_log_mib:
            try:
                self._take(keep_log_step(setup, self.request.keep_log_mib * MIB), further, runner, context)
            except (TrialError, CommandFailed) as error:
                context.executor.tell(Notice(f"the event log of {context.trial.stack} is not kept: {error.message}"))

    def _reduce(self, further: list[Step], runner: StepRunner, context: CrashContext) -> None:
        """Minimises a failure; the failure stands even if this fails."""
        failing = failing_state(context.found)
        if failing is None or context.problem or self.request.minimise == 0:
            return
        line = context.recorder.path(state_file(failing.id)).read_text(encoding="utf-8")
        take = partial(self._take, further=further, runner=runner, context=context)
        reduction = Reduction(context, take, failing, line, Patience(states=self.request.minimise))
        try:
            reduction.run()
        except (TrialError, CommandFailed, NotUnderstood) as error:
            context.executor.tell(Notice(f"state {failing.id} of {context.trial.stack}: {error.message}"))

    def _explore(self, setup: TrialSetup, further: list[Step], runner: StepRunner, context: CrashContext) -> None:
        """Runs pass by pass until the requested number of states is reached, the time is up, or a pass finds no new
        one.
        """
        request = self.request
        deadline_s = None if request.time is None else time.monotonic() + request.time
        most, number = request.requested, 0
        while not self._enough(context, most, deadline_s):
            left = STATES * request.recordings if most is None else most - _looked_at(context)
            choose = choose_step(setup, request, number, left)
            self._take(choose, further, runner, context)
            chosen = context.chosen
            if not chosen:
                return
            name, log = str(number + 1), CrashPlaces.of(setup).log
            if self.remote is not None and not context.packed_log:
                self._take(send_log_step(setup), further, runner, context)
            examined = examined_ids(setup, chosen, number)
            for states in batches(chosen, BATCH * self._width(setup)):
                if self._enough(context, most, deadline_s):
                    return
                step = self._states_step(setup, Batch(name, log, states, _left(deadline_s), examined))
                self._take(step, further, runner, context)
            self._interrupt(Batch(name, log, chosen), number, deadline_s, further, runner, context)
            number += 1

    def _width(self, setup: TrialSetup) -> int:
        """Number of states checked in parallel."""
        return fitting_workers(setup, self.request.workers) if self.remote is None else self.remote.width

    def _states_step(self, setup: TrialSetup, batch: Batch) -> Step:
        if self.remote is None:
            return states_step(setup, self.request, batch)
        return remote_states_step(setup, SCRIPTS[self.request.script], batch, self.remote)

    def _interrupt(
        self,
        batch: Batch,
        number: int,
        deadline_s: float | None,
        further: list[Step],
        runner: StepRunner,
        context: CrashContext,
    ) -> None:
        """Loses power again while some of the states that held are recovered."""
        verdicts = {state.id: state.verdict for state in context.found}
        held = [state for state in batch.states if verdicts.get(batch.id_of(state)) == "held"]
        for state in spread(held, interrupted_count(context, len(batch.states), number)):
            recovering = Recovering.of(context.setup, batch, state)
            for step in nested_steps(context, recovering, _left(deadline_s)):
                if self._enough(context, None, deadline_s):
                    return
                self._take(step, further, runner, context)

    def _take(self, step: Step, further: list[Step], runner: StepRunner, context: CrashContext) -> None:
        further.append(step)
        context.executor.run((step,), runner, context)

    def _enough(self, context: CrashContext, most: int | None, deadline_s: float | None) -> bool:
        looked = _looked_at(context)
        enough = most is not None and looked >= most
        if self.request.states is None and looked >= STATES:
            enough = enough or sum(state.verdict in FAILED for state in context.found) >= PROVEN
        return bool(context.problem) or enough or (deadline_s is not None and time.monotonic() > deadline_s)


def _looked_at(context: CrashContext) -> int:
    """Number of checked states of the transactions' log."""
    return sum(state.interrupts is None for state in context.found)


def _left(deadline_s: float | None) -> float | None:
    return None if deadline_s is None else max(0.0, deadline_s - time.monotonic())


@dataclass
class ClusterRunner(CrashRunner):
    """Runs crash trials of clusters at one site."""

    def program(self, trial: Trial) -> Program:
        return cluster_program(self.site, trial, self.request)

    def context(
        self, program: Program, recorder: TrialRecorder, executor: Executor, bindings: dict[str, str]
    ) -> ClusterContext:
        return ClusterContext(program.setup, recorder, executor, bindings, request=self.request)

    def look(self, program: Program, runner: StepRunner, context: CrashContext) -> None:
        """Does nothing: the program's own steps carried out all checks."""
        assert isinstance(context, ClusterContext)
        assert context.cluster is not None
        told = CrashRecord(
            stack=program.setup.stack.name, seed=program.setup.trial.workload_seed, amcheck=has_amcheck(program.setup),
            transactions=max((failure.acknowledged for failure in context.carried_out), default=0),
            request=self.request,
        )  # fmt: skip
        context.recorder.write("durability.json", summarise_failures(told, context.carried_out, context.cluster))
