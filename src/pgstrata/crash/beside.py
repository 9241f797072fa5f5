"""Crash trials of a campaign of runs: one of each stack that can be tested, in the campaign's own directory."""

from __future__ import annotations

from collections.abc import Iterator

from pgstrata.crash.cluster_program import FailuresAsked
from pgstrata.crash.faults import ledger_size
from pgstrata.crash.opening import crash_trials, open_crash_runner
from pgstrata.crash.program import CrashAsked, asked_of_nodes
from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Host
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import PlannedRecord, TrialVerdict
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.cluster_crash import (
    cluster_crash_campaign,
    cluster_power_campaign,
    failures_within,
    untested,
)
from pgstrata.spec.crash import crash_campaign
from pgstrata.spec.crash_trials import CrashTrials
from pgstrata.spec.stack import Stack
from pgstrata.stack.preflight import unsupported_on
from pgstrata.trial.events import Notice, Tell
from pgstrata.trial.interruption import Interruption

TRANSACTIONS = 50
"""Of each session: a recording takes a few seconds."""


def missing_trials(campaign: Campaign, directory: CampaignDirectory) -> tuple[Trial, ...]:
    """Of every stack that has had none, where the campaign asks for power cuts."""
    if campaign.crash is None:
        return ()
    there = {crash.id for crash in directory.data().crashes}
    return tuple(trial for trial in crash_trials(campaign, campaign.seed) if trial.id not in there)


def untestable(host: Host, campaign: Campaign) -> dict[str, str]:
    """By the names of stacks that have crash trials elsewhere, why they cannot have one on a host: what it lacks, and
    what brings it."""
    asked = campaign.crash
    if asked is None:
        return {}
    made = (_request(campaign, stack, asked)[0].stacks[0] for stack in campaign.stacks if not untested(stack, asked))
    found = (unsupported_on(host, stack) for stack in made)
    return {one.stack: f"{one.reason} ({one.hint})" for one in found if one is not None}


def cut_power(
    host: Host, campaign: Campaign, directory: CampaignDirectory, tell: Tell, by: Interruption
) -> Iterator[TrialVerdict]:
    """The missing crash trials, one after the other. A stack that cannot be tested has a verdict that says why. Raises
    Interrupted."""
    for trial in missing_trials(campaign, directory):
        yield _run(host, campaign, directory, trial, tell, by)


def _run(
    host: Host, campaign: Campaign, directory: CampaignDirectory, trial: Trial, tell: Tell, by: Interruption
) -> TrialVerdict:
    stack, wanted = campaign.stack(trial.stack), campaign.crash or CrashTrials()
    problem = untested(stack, wanted)
    if not problem:
        alone, asked = _request(campaign, stack, wanted)
        try:
            runner = open_crash_runner(host, alone, directory, asked, tell, by)
        except PreflightError as error:
            problem = error.message
        else:
            return runner.run(trial, directory, tell)
    tell(Notice(f"power cuts: {stack.name} is not tested: {problem}"))
    verdict = TrialVerdict(trial_id=trial.id, status="unsupported", reason=problem)
    directory.start_crash(trial, PlannedRecord(trial=trial, stack=stack, steps=())).finish(verdict)
    return verdict


def _request(campaign: Campaign, stack: Stack, wanted: CrashTrials) -> tuple[Campaign, CrashAsked | FailuresAsked]:
    """The campaign of one crash trial, and what is asked of it: power cuts of disks, or lost nodes of a cluster."""
    alone = campaign.model_copy(update={"stacks": (stack,)})
    asked = CrashAsked(
        wanted.states, wanted.time / 60, campaign.seed, size=ledger_size(TRANSACTIONS, "", wanted.script)
    )
    if stack.topology is None:
        return crash_campaign(alone), asked
    if wanted.power:
        return cluster_power_campaign(alone), asked_of_nodes(asked, wanted.gone)
    return (
        cluster_crash_campaign(alone),
        FailuresAsked(failures_within(wanted), seed=campaign.seed, rejoin=wanted.rejoin),
    )
