"""One performance trial, from an empty device to a verdict, and back to an empty device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from pgstrata.errors import PgstrataError, PreflightError
from pgstrata.host.protocol import HostLost
from pgstrata.record.recorder import CampaignDirectory, TrialRecorder
from pgstrata.record.schema import TrialVerdict
from pgstrata.spec.campaign import Trial
from pgstrata.stack.build import StepRunner, failures
from pgstrata.stack.clean import clean
from pgstrata.stack.journal import Journal
from pgstrata.stack.undo import RemovePath, StopProcesses
from pgstrata.trial.collect import fetch_server_log, rescue_outputs
from pgstrata.trial.context import Percentiles, TrialContext
from pgstrata.trial.ending import Attempt
from pgstrata.trial.events import Notice, Tell
from pgstrata.trial.executor import Executor
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.kept_stacks import KeptStack, KeptStacks
from pgstrata.trial.load import GoldenChanged, Present
from pgstrata.trial.medium import record_check
from pgstrata.trial.program import Program, make_program, undo_name
from pgstrata.trial.scratch import make_scratch
from pgstrata.trial.site import Site
from pgstrata.trial.undo_errors import note_undo_errors


@dataclass
class PerformanceRunner:
    """Runs the trials of a campaign at one site; `close` takes back what outlives a trial."""

    site: Site
    interruption: Interruption
    percentiles: Percentiles
    kept: KeptStacks = field(default_factory=KeptStacks)
    _golden: frozenset[str] = frozenset()
    """The golden directories that were made so far."""
    _shared: tuple[Journal, ...] = field(init=False)
    """Of each host, what outlives a trial: golden copies, folders that trials' own lie in."""
    _lost: bool = False

    def __post_init__(self) -> None:
        self._shared = self._shared_journals()

    def _shared_journals(self) -> tuple[Journal, ...]:
        journals = [self._golden_journal()]
        try:
            for site in self.site.elsewhere.values():
                journals.append(Journal.create(site.host, f"golden-{site.token}"))
                make_scratch(site.host, site.scratch, journals[-1])
        except BaseException:
            for journal in reversed(journals):
                with suppress(HostLost):
                    journal.undo_all()
            raise
        return tuple(journals)

    def _golden_journal(self) -> Journal:
        host, folder = self.site.host, self.site.golden_directory
        if host.status(folder, follow=False) is not None:
            raise PreflightError(f"{folder} is there already on {host.name}", hint=f"ls -ld {folder}")
        journal = Journal.create(host, f"golden-{self.site.token}")
        try:
            make_scratch(host, self.site.scratch, journal)
            journal.register(RemovePath(path=folder))
            host.make_directory(folder, mode=0o700)
        except BaseException:
            journal.undo_all()
            raise
        return journal

    def close(self) -> tuple[str, ...]:
        """Undoes golden copies and kept stacks; what could not be undone, a line each."""
        lines: list[str] = []
        undos: list[Callable[[], tuple[str, ...]]] = [self.kept.undo_all]
        undos += [partial(_undo, journal) for journal in reversed(self._shared)]
        for undo in undos:
            try:
                lines += undo()
            except HostLost as error:
                lines.append(error.message)
        return tuple(lines)

    def begin_block(self, block: int, directory: CampaignDirectory) -> None:
        """Looks whether the medium is what it was."""
        if self._lost:
            return
        try:
            record_check(self.site, directory, block)
        except HostLost:
            self._lost = True  # the next trial goes on from there

    def program(self, trial: Trial) -> Program:
        """What the trial will do, given what earlier trials left on the host."""
        kept = self.kept.of(trial)
        return make_program(self.site, trial, Present(self._golden, kept.plan if kept else None))

    def run(self, trial: Trial, directory: CampaignDirectory, tell: Tell) -> TrialVerdict:
        """One trial to its verdict. Raises Interrupted, with the trial undone and set aside, or RecordError.

        A trial in the middle of which the host is lost begins anew when it is back; HostLost where it does not come
        back. A second loss fails the trial.
        """
        if self._lost:
            self.clean_after_loss(tell)
        try:
            return self._attempt(trial, directory, tell, passed_on=(HostLost,))
        except HostLost as error:
            tell(Notice(f"{trial.stack} is set aside: {error.message}"))
            self.clean_after_loss(tell)
            return self._attempt(trial, directory, tell)

    def _attempt(
        self, trial: Trial, directory: CampaignDirectory, tell: Tell, passed_on: tuple[type[PgstrataError], ...] = ()
    ) -> TrialVerdict:
        recorder = directory.start_trial(trial, self.program(trial).planned)

        def act(executor: Executor) -> None:
            try:
                self._perform(trial, recorder, executor)
            except HostLost:
                self._lost = True
                raise

        return Attempt(self.site, trial, directory, recorder, self.interruption, passed_on).to_verdict(act, tell)

    def _perform(self, trial: Trial, recorder: TrialRecorder, executor: Executor) -> None:
        """The program that was planned; where a golden copy has changed, another one that makes it anew."""
        while True:
            try:
                self._run(self.program(trial), recorder, executor)
                return
            except GoldenChanged as changed:
                executor.tell(Notice(f"golden copy {changed} is not what it was when it was made: it is made anew"))
                self.site.host.remove(changed.directory)
                self._golden -= {changed.directory}
                recorder.write("planned.json", self.program(trial).planned)

    def _run(self, program: Program, recorder: TrialRecorder, executor: Executor) -> None:
        trial = program.setup.trial
        with ExitStack() as journals:
            runner = self._step_runner(trial, recorder, executor, journals)
            context = TrialContext(program.setup, recorder, executor, self.percentiles, runner.bindings)
            executor.run(program.before, runner, context)
            with self._stack(program, runner, context):
                try:
                    executor.run((*program.prepare, *program.measure), runner, context)
                finally:
                    with suppress(HostLost):
                        rescue_outputs(context)
                        fetch_server_log(context)
        self._golden |= program.keeps

    def _step_runner(
        self, trial: Trial, recorder: TrialRecorder, executor: Executor, journals: ExitStack
    ) -> StepRunner:
        """Of every host that the trial's nodes are on, with a journal there."""
        runners: dict[str, StepRunner] = {}
        bindings: dict[str, str] = {}
        for name, site in self.site.sites_of(trial).items():
            journal = journals.enter_context(self._journal(site, name, trial, recorder, executor))
            runners[name] = StepRunner(site.host, journal, site.campaign.erase, bindings, at=name)
        own = runners.pop("")
        own.elsewhere = runners
        return own

    @contextmanager
    def _stack(self, program: Program, runner: StepRunner, context: TrialContext) -> Iterator[None]:
        """Builds the stack, or takes the one that stands still. One that is to be kept is taken down by the first trial
        that fails."""
        trial = program.setup.trial
        if trial.load != "keep":
            context.executor.run(program.build, runner, context)
            yield
            return
        kept = self.kept.of(trial) or self._build_kept(program, context)
        runner.bindings.update(kept.bindings)
        try:
            yield
        except BaseException:
            self.kept.give_up(trial)
            with context.executor.undoing("take the kept stack down"):
                self._report(kept.undo(), context.recorder, context.executor)
            raise

    def _build_kept(self, program: Program, context: TrialContext) -> KeptStack:
        site, plan = self.site, program.stack_plan
        journal = Journal.create(site.host, plan.context.trial_id)
        runner = StepRunner(site.host, journal, site.campaign.erase, context.bindings)
        try:
            _mark(site, plan.context.marker, journal)
            context.executor.run(program.build, runner, context)
        except BaseException:
            with context.executor.undoing("take the kept stack down"):
                self._report(failures(journal.undo_all()), context.recorder, context.executor)
            raise
        kept = KeptStack(plan, dict(runner.bindings), journal)
        self.kept.keep(program.setup.trial, kept)
        return kept

    @contextmanager
    def _journal(
        self, site: Site, name: str, trial: Trial, recorder: TrialRecorder, executor: Executor
    ) -> Iterator[Journal]:
        """The journal of a trial on a host; everything in it is undone when the block ends."""
        trial_id = site.context(trial).trial_id
        journal = Journal.create(site.host, trial_id)
        try:
            _mark(site, trial_id, journal)
            yield journal
        finally:
            with executor.undoing(undo_name(name)):
                self._report(failures(journal.undo_all()), recorder, executor)

    def _report(self, lines: tuple[str, ...], recorder: TrialRecorder, executor: Executor) -> None:
        """Errors of undoing are reported and logged; the error that came first stays the reason."""
        for line in lines:
            executor.tell(Notice(f"could not be undone: {line}; run `pgstrata clean`"))
        if lines:
            recorder.write_text("raw/undo-errors.txt", "\n".join(lines) + "\n")
            own = [f"{recorder.trial.id}: {line}" for line in lines]
            note_undo_errors(recorder.final.parents[1], own, recorder.trial.host)

    def clean_after_loss(self, tell: Tell) -> None:
        """A host was lost in the middle of a trial; its own journal says what is left over there."""
        for site in self.site.sites.values():
            site.host.reconnect()
            for line in clean(site.host).lines:
                tell(Notice(line))
        # our own journals were replayed with the others: golden copies and kept stacks are gone, and are made anew
        self.kept.forget()
        self._golden = frozenset()
        self._shared = self._shared_journals()
        self._lost = False


def _mark(site: Site, marker: str, journal: Journal) -> None:
    """Commands carry the trial's marker from now on; those that have it are ended with the trial."""
    site.host.mark(marker)
    journal.register(StopProcesses(marker=marker))


def _undo(journal: Journal) -> tuple[str, ...]:
    return failures(journal.undo_all())
