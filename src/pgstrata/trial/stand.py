"""Building a trial's stack and taking it down again, whatever happens between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pgstrata.errors import PreflightError
from pgstrata.record.recorder import TrialRecorder
from pgstrata.spec.campaign import Trial
from pgstrata.stack.build import build, failures
from pgstrata.stack.journal import Journal
from pgstrata.stack.plan import PlanContext, StackPlan, plan_stack
from pgstrata.stack.undo import RemovePath, StopProcesses
from pgstrata.trial.bench import Bench, Percentiles, cluster_of, outputs_directory, trial_directory
from pgstrata.trial.site import Site
from pgstrata.trial.steps import Steps
from pgstrata.trial.undo_errors import note_undo_errors


@contextmanager
def standing(
    site: Site, trial: Trial, recorder: TrialRecorder, steps: Steps, percentiles: Percentiles
) -> Iterator[Bench]:
    """The stack of a trial, built; undone when the block ends, however it ends."""
    context = site.context(trial)
    with trial_journal(site, context, steps) as journal:
        plan = plan_stack(site.campaign.stack(trial.stack), context)
        yield build_bench(site, trial, plan, journal, recorder, steps, percentiles)


def build_bench(
    site: Site,
    trial: Trial,
    plan: StackPlan,
    journal: Journal,
    recorder: TrialRecorder,
    steps: Steps,
    percentiles: Percentiles,
) -> Bench:
    """Makes the trial's folder, and builds a planned stack."""
    _make_folder(site, plan.context, journal)
    built = build(site.host, plan, journal, around=lambda step: steps.step(step.name))
    cluster = cluster_of(site, plan.stack, plan)
    outputs = outputs_directory(plan.context)
    return Bench(site, trial, plan.stack, plan, built, cluster, outputs, recorder, steps, percentiles)


def _make_folder(site: Site, context: PlanContext, journal: Journal) -> None:
    """The folder beside the stack: the caller's, and only the server's user may pass through it.

    One that is there already was not made by this trial, so its removal is not journaled either; where somebody is
    quicker than we are, the undo leaves alone what belongs to somebody else.
    """
    host, folder = site.host, trial_directory(context)
    if host.status(folder, follow=False) is not None:
        raise PreflightError(f"{folder} is there already on {host.name}", hint=f"ls -ld {folder}; remove it")
    ours = host.status(journal.path)
    journal.register(RemovePath(path=folder, uid=ours.uid if ours is not None else None))
    host.make_directory(folder, mode=0o710, group=site.user, new=True)
    host.make_directory(outputs_directory(context), mode=0o710, group=site.user, new=True)


@contextmanager
def trial_journal(site: Site, context: PlanContext, steps: Steps) -> Iterator[Journal]:
    """The journal of a trial; everything in it is undone when the block ends."""
    journal = Journal.create(site.host, context.trial_id)
    try:
        mark_processes(site, context, journal)
        yield journal
    finally:
        with steps.closing("undo"):
            report_failures(steps, failures(journal.undo_all()))


def mark_processes(site: Site, context: PlanContext, journal: Journal) -> None:
    """Commands carry the trial's marker from now on; those that have it are ended with the trial."""
    site.host.mark(context.marker)
    journal.register(StopProcesses(marker=context.marker))


def report_failures(steps: Steps, lines: tuple[str, ...]) -> None:
    """Teardown errors are told and logged; the error that came first stays the primary one."""
    for line in lines:
        steps.progress.notice(f"could not be undone: {line}; run `pgstrata clean`")
    if lines:
        steps.recorder.write_text("raw/undo-errors.txt", "\n".join(lines) + "\n")
        campaign = steps.recorder.final.parents[1]
        note_undo_errors(campaign, [f"{steps.recorder.trial.id}: {line}" for line in lines])
