"""Stacks that stay built from block to block (`load: keep`), as some published comparisons ran theirs.

What belongs to the whole host (sysctl, huge pages) is set for the length of a trial alone, because other stacks run
in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pgstrata.record.recorder import TrialRecorder
from pgstrata.spec.campaign import Trial
from pgstrata.spec.stack import Kernel, Stack
from pgstrata.stack.build import Built, failures, run_step
from pgstrata.stack.journal import Journal
from pgstrata.stack.plan import StackPlan, plan_stack
from pgstrata.stack.tuning.kernel import plan_kernel
from pgstrata.trial.bench import Bench, Percentiles, cluster_of, outputs_directory
from pgstrata.trial.site import Site
from pgstrata.trial.stand import build_bench, mark_processes, report_failures, trial_journal
from pgstrata.trial.steps import Steps


@dataclass(frozen=True)
class _Kept:
    """One stack that stands, with the journal that will take it down."""

    plan: StackPlan
    built: Built
    journal: Journal


@dataclass
class KeptStacks:
    """By stack and scale."""

    site: Site
    percentiles: Percentiles
    _kept: dict[tuple[str, int], _Kept] = field(default_factory=dict)

    @contextmanager
    def standing(self, trial: Trial, recorder: TrialRecorder, steps: Steps) -> Iterator[Bench]:
        """The stack of a trial: the one of the last block, or a new one. A trial that fails takes it down."""
        key = (trial.stack, trial.scale)
        with trial_journal(self.site, self.site.context(trial), steps) as journal:
            try:
                bench = self._again(trial, recorder, steps) if key in self._kept else self._anew(trial, recorder, steps)
                yield self._tuned(bench, journal, steps)
            except BaseException:
                self._take_down(key, steps)
                raise

    def undo_all(self) -> tuple[str, ...]:
        """Takes every kept stack down; what could not be undone, a line each."""
        lines: list[str] = []
        while self._kept:
            _, kept = self._kept.popitem()
            lines += failures(kept.journal.undo_all())
        return tuple(lines)

    def forget(self) -> None:
        """After `clean` has taken every stack down, because the host was lost."""
        self._kept.clear()

    def _anew(self, trial: Trial, recorder: TrialRecorder, steps: Steps) -> Bench:
        context = self.site.context_named(f"keep-{trial.id}")
        journal = Journal.create(self.site.host, context.trial_id)
        try:
            mark_processes(self.site, context, journal)
            plan = plan_stack(without_host_wide(self.site.campaign.stack(trial.stack)), context)
            bench = build_bench(self.site, trial, plan, journal, recorder, steps, self.percentiles)
        except BaseException:
            journal.undo_all()
            raise
        self._kept[trial.stack, trial.scale] = _Kept(plan, bench.built, journal)
        return bench

    def _again(self, trial: Trial, recorder: TrialRecorder, steps: Steps) -> Bench:
        kept = self._kept[trial.stack, trial.scale]
        plan = kept.plan
        return Bench(
            site=self.site,
            trial=trial,
            stack=plan.stack,
            plan=plan,
            built=kept.built,
            cluster=cluster_of(self.site, plan.stack, plan),
            outputs=outputs_directory(plan.context),
            recorder=recorder,
            steps=steps,
            percentiles=self.percentiles,
            loaded=True,
        )

    def _tuned(self, bench: Bench, journal: Journal, steps: Steps) -> Bench:
        """Sets what concerns the whole host, to be put back after this trial."""
        stack = self.site.campaign.stack(bench.trial.stack)
        host_wide = stack.kernel.model_copy(update={"queue": Kernel().queue})
        tuning, checks = plan_kernel(host_wide, ())
        for step in tuning:
            with steps.step(step.name):
                run_step(self.site.host, step, journal, {}, ())
        return replace(bench, plan=replace(bench.plan, checks=(*bench.plan.checks, *checks)))

    def _take_down(self, key: tuple[str, int], steps: Steps) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            report_failures(steps, failures(kept.journal.undo_all()))


def without_host_wide(stack: Stack) -> Stack:
    """The stack with only those kernel settings that belong to its own devices."""
    return stack.model_copy(update={"kernel": Kernel(queue=stack.kernel.queue)})
