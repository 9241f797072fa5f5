"""Crash trials of a campaign of runs: one of each stack that can be tested, in the campaign's own directory."""

from __future__ import annotations

from collections.abc import Iterator

from pgstrata.crash.cluster_program import FailuresAsked
from pgstrata.crash.ledger import LedgerSize
from pgstrata.crash.opening import crash_trials, open_crash_runner
from pgstrata.crash.program import CrashAsked
from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Host
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import PlannedRecord, TrialVerdict
from pgstrata.spec.campaign import Campaign, CrashTrials, Trial
from pgstrata.spec.cluster_crash import cluster_crash_campaign, failures_within, untested
from pgstrata.spec.crash import crash_campaign
from pgstrata.spec.stack import Stack
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
    stack = campaign.stack(trial.stack)
    problem = untested(stack)
    if not problem:
        alone, asked = _request(campaign, stack)
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


def _request(campaign: Campaign, stack: Stack) -> tuple[Campaign, CrashAsked | FailuresAsked]:
    """The campaign of one crash trial, and what is asked of it: power cuts of a disk, or lost nodes of a cluster."""
    alone, asked = campaign.model_copy(update={"stacks": (stack,)}), campaign.crash or CrashTrials()
    if stack.topology is not None:
        return cluster_crash_campaign(alone), FailuresAsked(failures_within(asked), seed=campaign.seed)
    size = LedgerSize(transactions=TRANSACTIONS)
    return crash_campaign(alone), CrashAsked(
        states=asked.states, minutes=asked.time / 60, seed=campaign.seed, size=size
    )
