"""Prepares a host for crash trials: cleans leftovers, runs the preflight, and collects facts once.

In a campaign of runs each stack that can be tested has one crash trial, in the campaign's own directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgstrata.crash.remote_workers import NODES_HINT, RemoteWorkers, disks_problem, require_machines
from pgstrata.crash.runner import ClusterRunner, CrashRunner
from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Host
from pgstrata.record.crash import CrashRecord
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import PlannedRecord, TrialVerdict
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.crash import (
    cluster_crash_campaign,
    cluster_power_campaign,
    crash_campaign,
    untested,
)
from pgstrata.spec.crash_request import BESIDE, CrashRequest
from pgstrata.spec.expand import slug
from pgstrata.spec.stack import Stack
from pgstrata.stack.preflight import Unsupported, unsupported_on
from pgstrata.trial.context import TrialSetup
from pgstrata.trial.events import Notice, Tell
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.opening import refuse_leftovers, take_up_host
from pgstrata.trial.program import plan_built
from pgstrata.trial.survey.host_survey import Site, check_scratch
from pgstrata.trial.survey.media_range import deliver_media
from pgstrata.trial.survey.preflight import check_servers, notices, render_lacking, run_preflight
from pgstrata.trial.survey.survey import open_site, survey
from pgstrata.trial.undo_errors import forget_undo_errors


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
