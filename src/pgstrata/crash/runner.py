"""Crash trials: the host is prepared once, and each goes from a disk to a verdict, and back to nothing.

In a campaign of runs each stack that can be tested has one crash trial, in the campaign's own directory.
"""

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
from pgstrata.crash.remote_workers import (
    NODES_HINT,
    RemoteWorkers,
    disks_problem,
    remote_states_step,
    require_machines,
    send_log_step,
)
from pgstrata.crash.script import SCRIPTS
from pgstrata.crash.verdict import power_cut_nodes, summarise
from pgstrata.errors import NotUnderstood, PreflightError, TrialError
from pgstrata.host.protocol import CommandFailed, Host, HostLost
from pgstrata.record.crash import FAILED, CrashRecord
from pgstrata.record.recorder import CampaignDirectory, TrialRecorder
from pgstrata.record.schema import PlannedRecord, TrialVerdict
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.crash import (
    cluster_crash_campaign,
    cluster_power_campaign,
    crash_campaign,
    untested,
)
from pgstrata.spec.crash_request import BESIDE, STATES, CrashRequest
from pgstrata.spec.expand import slug
from pgstrata.spec.stack import Stack
from pgstrata.stack.build import StepRunner
from pgstrata.stack.preflight import Unsupported, unsupported_on
from pgstrata.stack.step import Step
from pgstrata.trial.context import TrialSetup
from pgstrata.trial.events import Notice, Tell, TrialBegun, TrialEnded
from pgstrata.trial.executor import Executor
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.opening import refuse_leftovers, take_up_host
from pgstrata.trial.outcome import TrialOutcome
from pgstrata.trial.program import Program, plan_built
from pgstrata.trial.standing import report_left, standing
from pgstrata.trial.steps.collect import fetch_server_log
from pgstrata.trial.survey.host_survey import Site, check_scratch
from pgstrata.trial.survey.media_range import deliver_media
from pgstrata.trial.survey.preflight import check_servers, notices, render_lacking, run_preflight
from pgstrata.trial.survey.survey import open_site, survey
from pgstrata.trial.undo_errors import forget_undo_errors

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


def open_crash_runner(
    host: Host,
    campaign: Campaign,
    directory: CampaignDirectory,
    request: CrashRequest,
    tell: Tell,
    by: Interruption,
    remote: RemoteWorkers | None = None,
) -> CrashRunner:
    """A runner for power cuts or node failures. Raises PreflightError, with nothing changed, if a stack of the campaign
    cannot be built here, or its states cannot be checked by `remote` workers."""
    site = _open_site(host, campaign, directory, tell, by)
    if not request.power and any(stack.topology for stack in campaign.stacks):
        return ClusterRunner(site, by, request)
    if problem := "" if remote else disks_problem(host):
        raise PreflightError(f"states of disks cannot be attached: {problem}", hint=NODES_HINT)
    if remote is not None:
        for trial in crash_trials(campaign):
            require_machines(TrialSetup.of(site, trial, plan_built(site, trial)), remote, tell)
    return CrashRunner(site, by, request, remote)


def _open_site(host: Host, campaign: Campaign, directory: CampaignDirectory, tell: Tell, by: Interruption) -> Site:
    take_up_host(host, by, tell)
    site = survey(host, campaign, directory.path)
    refuse_leftovers(site)
    forget_undo_errors(directory.path)
    check_scratch(site)
    if not site.as_root:
        raise PreflightError("crash trials mount states of disks, which only root may do", hint="run it as root")
    _refuse(run_preflight(site).unsupported)
    for line in notices(site):
        tell(Notice(line))
    site = open_site(site)
    _refuse(check_servers(site, tuple(s.name for s in campaign.stacks), site.user))
    deliver_media(site)
    return site


def _refuse(unsupported: Sequence[Unsupported]) -> None:
    for stack in unsupported:
        raise PreflightError(render_lacking(stack), hint=stack.hint)


def same_request(found: CrashRecord, campaign: Campaign, request: CrashRequest) -> bool:
    """True if a recorded trial came from such a request; a trial that failed early has recorded none."""
    here = {"workers": found.request.workers}
    return not found.states or (found.seed, found.request) == (campaign.seed, request.model_copy(update=here))


def crash_trials(campaign: Campaign) -> tuple[Trial, ...]:
    """One for each stack, in their order."""
    return tuple(
        Trial(
            id=f"{slug(stack.name)}-{position}",
            stack=stack.name,
            block=0,
            position=position,
            load="fresh",
            scale=campaign.workload.scale[0],
            cells=(),
            workload_seed=campaign.seed,
        )
        for position, stack in enumerate(campaign.stacks)
    )


def missing_trials(campaign: Campaign, directory: CampaignDirectory) -> tuple[Trial, ...]:
    """The crash trial of every stack without one, if the campaign requests power cuts."""
    if campaign.crash is None:
        return ()
    there = {crash.id for crash in directory.data().crashes}
    return tuple(trial for trial in crash_trials(campaign) if trial.id not in there)


def untestable(host: Host, campaign: Campaign) -> dict[str, str]:
    """Reasons why stacks with crash trials cannot be tested on a host, by name: what is missing, and how to get it."""
    request = campaign.crash
    if request is None:
        return {}
    made = [_alone(campaign, stack).stacks[0] for stack in campaign.stacks if not untested(stack, request)]
    return {one.stack: f"{one.reason} ({one.hint})" for one in unsupported_on(host, made)}


def cut_power(
    host: Host, campaign: Campaign, directory: CampaignDirectory, tell: Tell, by: Interruption
) -> Iterator[TrialVerdict]:
    """Runs the missing crash trials one after the other. A stack that cannot be tested gets a verdict with the reason.
    Raises Interrupted."""
    for trial in missing_trials(campaign, directory):
        yield _run(host, campaign, directory, trial, tell, by)


def _run(
    host: Host, campaign: Campaign, directory: CampaignDirectory, trial: Trial, tell: Tell, by: Interruption
) -> TrialVerdict:
    stack, request = campaign.stack(trial.stack), (campaign.crash or CrashRequest()).beside_runs
    problem = untested(stack, request)
    if not problem:
        try:
            runner = open_crash_runner(host, _alone(campaign, stack), directory, request, tell, by)
        except PreflightError as error:
            problem = error.message
        else:
            return runner.run(trial, directory, tell)
    tell(Notice(f"power cuts: {stack.name} is not tested: {problem}"))
    verdict = TrialVerdict(trial_id=trial.id, status="unsupported", reason=problem)
    directory.start_crash(trial, PlannedRecord(trial=trial, stack=stack, steps=())).finish(verdict)
    return verdict


def _alone(campaign: Campaign, stack: Stack) -> Campaign:
    """The campaign of one crash trial: disk power cuts, or lost nodes of a cluster."""
    alone = campaign.model_copy(update={"stacks": (stack,)})
    if stack.topology is None:
        return crash_campaign(alone, loaded=campaign.crash is not None and campaign.crash.script == BESIDE)
    powered = campaign.crash is not None and campaign.crash.power
    return cluster_power_campaign(alone) if powered else cluster_crash_campaign(alone)
