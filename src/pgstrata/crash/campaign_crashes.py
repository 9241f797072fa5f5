"""Crash trials of a campaign of runs: one for each stack that can be tested, in the campaign's own directory."""

from __future__ import annotations

from collections.abc import Iterator

from pgstrata.crash.opening import crash_trials, open_crash_runner
from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Host
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import PlannedRecord, TrialVerdict
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.cluster_crash import (
    cluster_crash_campaign,
    cluster_power_campaign,
    untested,
)
from pgstrata.spec.crash import crash_campaign
from pgstrata.spec.crash_request import BESIDE, CrashRequest
from pgstrata.spec.stack import Stack
from pgstrata.stack.preflight import unsupported_on
from pgstrata.trial.events import Notice, Tell
from pgstrata.trial.interruption import Interruption


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
