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
from pgstrata.trial.bench import Bench, Percentiles, cluster_of, outputs_directory, run_directory
from pgstrata.trial.site import Site
from pgstrata.trial.steps import Steps


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
    """Builds a planned stack, and makes the folder for raw output."""
    built = build(site.host, plan, journal, around=lambda step: steps.step(step.name))
    outputs = outputs_directory(plan.context)
    if site.host.status(outputs, follow=False) is not None:  # root will write there: nobody else's links
        raise PreflightError(f"{outputs} is there already on {site.host.name}", hint=f"ls -ld {outputs}")
    site.host.make_directory(outputs, mode=0o700, owner=site.user)
    cluster = cluster_of(site, plan.stack, plan)
    return Bench(site, trial, plan.stack, plan, built, cluster, outputs, recorder, steps, percentiles)


@contextmanager
def trial_journal(site: Site, context: PlanContext, steps: Steps) -> Iterator[Journal]:
    """The journal of a trial; everything in it is undone when the block ends."""
    journal = Journal.create(site.host, context.trial_id)
    try:
        register_outside(site, context, journal)
        yield journal
    finally:
        with steps.closing("undo"):
            report_failures(steps, failures(journal.undo_all()))


def register_outside(site: Site, context: PlanContext, journal: Journal) -> None:
    """Journals what is made outside the stack; commands carry the trial's marker from now on."""
    site.host.mark(context.marker)
    outside = (run_directory(context), outputs_directory(context))
    journal.register(StopProcesses(marker=context.marker), *(RemovePath(path=path) for path in outside))


def report_failures(steps: Steps, lines: tuple[str, ...]) -> None:
    """Teardown errors are told and logged; the error that came first stays the primary one."""
    for line in lines:
        steps.progress.notice(f"could not be undone: {line}; run `pgstrata clean`")
    if lines:
        steps.recorder.write_text("raw/undo-errors.txt", "\n".join(lines) + "\n")
