"""Crash trials of clusters: run like those of disks, with node failures instead of states."""

from __future__ import annotations

from dataclasses import dataclass

from pgstrata.crash.cluster_program import ClusterContext, cluster_program, summarise_failures
from pgstrata.crash.job import has_amcheck
from pgstrata.crash.program import CrashContext
from pgstrata.crash.runner import CrashRunner
from pgstrata.record.crash import CrashRecord
from pgstrata.record.recorder import TrialRecorder
from pgstrata.spec.campaign import Trial
from pgstrata.stack.build import StepRunner
from pgstrata.trial.executor import Executor
from pgstrata.trial.program import Program


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
