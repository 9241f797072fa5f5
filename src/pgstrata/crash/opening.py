"""From a host to crash trials that can begin: leftovers cleaned, preflight passed, facts looked up once."""

from __future__ import annotations

from collections.abc import Sequence

from pgstrata.crash.cluster_program import FailuresAsked
from pgstrata.crash.cluster_runner import ClusterRunner
from pgstrata.crash.elsewhere import Elsewhere, require_machines
from pgstrata.crash.program import CrashAsked
from pgstrata.crash.runner import CrashRunner
from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Host
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.expand import slug
from pgstrata.stack.clean import clean
from pgstrata.stack.preflight import Unsupported
from pgstrata.trial.context import TrialSetup
from pgstrata.trial.events import Notice, Tell
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.media_range import deliver_media
from pgstrata.trial.opening import refuse_leftovers
from pgstrata.trial.preflight import check_servers, notices, render_lacking, run_preflight
from pgstrata.trial.program import plan_built
from pgstrata.trial.scratch import check_scratch
from pgstrata.trial.site import Site
from pgstrata.trial.survey import open_site, survey
from pgstrata.trial.undo_errors import forget_undo_errors


def open_crash_runner(
    host: Host,
    campaign: Campaign,
    directory: CampaignDirectory,
    asked: CrashAsked | FailuresAsked,
    tell: Tell,
    by: Interruption,
    elsewhere: Elsewhere | None = None,
) -> CrashRunner:
    """Of power cuts, or of failures of nodes. PreflightError, with nothing changed, when a stack of the campaign cannot
    be built here, or its states cannot be looked at `elsewhere`."""
    site = _open_site(host, campaign, directory, tell, by)
    if isinstance(asked, FailuresAsked):
        return ClusterRunner(site, by, failing=asked)
    if elsewhere is not None:
        for trial in crash_trials(campaign, asked.seed):
            require_machines(TrialSetup.of(site, trial, plan_built(site, trial)), elsewhere, tell)
    return CrashRunner(site, by, asked, elsewhere)


def _open_site(host: Host, campaign: Campaign, directory: CampaignDirectory, tell: Tell, by: Interruption) -> Site:
    host.interruptible(by.waiting)
    for line in clean(host).lines:
        tell(Notice(f"left by earlier runs: {line}"))
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


def crash_trials(campaign: Campaign, seed: int) -> tuple[Trial, ...]:
    """One for each stack, in their order."""
    return tuple(
        Trial(
            id=f"{slug(stack.name)}-{position}",
            stack=stack.name,
            block=0,
            position=position,
            load="fresh",
            scale=1,
            cells=(),
            workload_seed=seed,
        )
        for position, stack in enumerate(campaign.stacks)
    )
