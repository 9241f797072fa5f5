"""One performance trial, from an empty device to a verdict, and back to an empty device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from pgstrata.errors import PgstrataError, PreflightError
from pgstrata.host.protocol import HostLost
from pgstrata.record.recorder import CampaignDirectory, TrialRecorder
from pgstrata.record.schema import TrialVerdict
from pgstrata.spec.campaign import Slices, Trial
from pgstrata.stack.build import StepRunner
from pgstrata.stack.journal import Journal, clean, failures
from pgstrata.stack.plan import StackPlan
from pgstrata.stack.undo import RemovePath, StopProcesses, Undo
from pgstrata.trial.context import TrialContext
from pgstrata.trial.events import Notice, Tell
from pgstrata.trial.executor import Executor
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.outcome import TrialOutcome, Turns, exclude_cut, take_turns
from pgstrata.trial.program import Program, make_program, undo_name
from pgstrata.trial.standing import report_left, standing
from pgstrata.trial.steps.collect import fetch_server_log, rescue_outputs
from pgstrata.trial.steps.load import GoldenChanged, Present
from pgstrata.trial.survey.host_survey import Site, make_scratch
from pgstrata.trial.survey.media_range import record_check


@dataclass(frozen=True)
class KeptStack:
    """A stack that stays up: the results of its steps, and the journal that takes it down."""

    plan: StackPlan
    bindings: Mapping[str, str]
    journal: Journal

    def undo(self) -> tuple[str, ...]:
        """Takes it down; what could not be undone, a line each."""
        return failures(self.journal.undo_all())


@dataclass
class KeptStacks:
    """By stack and scale."""

    _kept: dict[tuple[str, int], KeptStack] = field(default_factory=dict)

    def of(self, trial: Trial) -> KeptStack | None:
        """The stack that the trial would find still standing, with its data."""
        return self._kept.get((trial.stack, trial.scale))

    def keep(self, trial: Trial, kept: KeptStack) -> None:
        self._kept[trial.stack, trial.scale] = kept

    def give_up(self, trial: Trial) -> None:
        """Keeps it no longer; the caller takes it down."""
        self._kept.pop((trial.stack, trial.scale), None)

    def undo_all(self) -> tuple[str, ...]:
        """Takes every kept stack down; what could not be undone, a line each."""
        lines: list[str] = []
        while self._kept:
            _, kept = self._kept.popitem()
            lines += kept.undo()
        return tuple(lines)

    def forget(self) -> None:
        """After `clean` has taken every stack down, because the host was lost."""
        self._kept.clear()


# ---------------------------------------------------------------- trials


@dataclass
class PerformanceRunner:
    """Runs the trials of a campaign at one site; `close` takes back what outlives a trial."""

    site: Site
    interruption: Interruption
    slices: Slices | None = None
    """Turns of the stacks of a block, which stand side by side; none if they run one after the other."""
    kept: KeptStacks = field(default_factory=KeptStacks)
    _golden: frozenset[str] = frozenset()
    """The golden directories that were made so far."""
    _shared: tuple[Journal, ...] = field(init=False)
    """On each host, the journal of everything that outlives a trial: golden copies, folders that contain those of
    trials.
    """
    _lost: bool = False

    def __post_init__(self) -> None:
        self._shared = self._shared_journals()

    def _shared_journals(self) -> tuple[Journal, ...]:
        journals = [self._golden_journal()]
        try:
            for site in self.site.elsewhere.values():
                journals.append(_shared_journal(site))
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
        journal = _shared_journal(self.site, RemovePath(path=folder))
        host.make_directory(folder, mode=0o700)
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
        """Checks whether the medium has changed."""
        if self._lost:
            return
        try:
            record_check(self.site, directory, block)
        except HostLost:
            self._lost = True  # the next trial goes on from there

    def program(self, trial: Trial) -> Program:
        """The program of the trial, given the leftovers of earlier trials on the host."""
        kept = self.kept.of(trial)
        return make_program(self.site, trial, Present(self._golden, kept.plan if kept else None))

    def run(self, trial: Trial, directory: CampaignDirectory, tell: Tell) -> TrialVerdict:
        """Runs one trial to its verdict, as `run_together` does."""
        (verdict,) = self.run_together((trial,), directory, tell)
        return verdict

    def run_together(
        self, trials: Sequence[Trial], directory: CampaignDirectory, tell: Tell
    ) -> tuple[TrialVerdict, ...]:
        """Runs trials side by side to their verdicts. Raises Interrupted, with all of them set aside, or RecordError.

        If the host is lost in the middle, the trials restart when it is back; HostLost is raised if it does not come
        back. A second loss fails them. Trials beside one that had ended are excluded: they cannot stand beside it any
        more.
        """
        if self._lost:
            self.clean_after_loss(tell)
        try:
            return self._attempt(trials, directory, tell, passed_on=(HostLost,))
        except HostLost as error:
            tell(Notice(f"{', '.join(t.stack for t in trials)} is set aside: {error.message}"))
            self.clean_after_loss(tell)
            ended = [trial for trial in trials if directory.has_finished(trial.id)]
            if not ended:
                return self._attempt(trials, directory, tell)
            found = (directory.finished_trial(t.id).verdict if t in ended else None for t in trials)
            return tuple(v or exclude_cut(directory, t, ended) for t, v in zip(trials, found, strict=True))

    def _attempt(
        self,
        trials: Sequence[Trial],
        directory: CampaignDirectory,
        tell: Tell,
        passed_on: tuple[type[PgstrataError], ...] = (),
    ) -> tuple[TrialVerdict, ...]:
        return take_turns([self._turns_of(trial, directory, tell, passed_on) for trial in trials])

    def _turns_of(
        self, trial: Trial, directory: CampaignDirectory, tell: Tell, passed_on: tuple[type[PgstrataError], ...]
    ) -> Turns:
        """The trial begins when it is first continued: what those before it left is known by then."""
        recorder = directory.start_trial(trial, self.program(trial).planned)

        def act(executor: Executor) -> Iterator[None]:
            try:
                yield from self._perform(trial, recorder, executor)
            except HostLost:
                self._lost = True
                raise

        outcome = TrialOutcome(self.site, trial, directory, recorder, self.interruption, passed_on)
        return (yield from outcome.turns(act, tell))

    def _perform(self, trial: Trial, recorder: TrialRecorder, executor: Executor) -> Iterator[None]:
        """Runs the planned program; if a golden copy has changed, another program that recreates it."""
        while True:
            try:
                yield from self._run(self.program(trial), recorder, executor)
                return
            except GoldenChanged as changed:
                executor.tell(Notice(f"golden copy {changed} has changed since it was created; it is recreated"))
                self.site.host.remove(changed.directory)
                self._golden -= {changed.directory}
                recorder.write("planned.json", self.program(trial).planned)

    def _run(self, program: Program, recorder: TrialRecorder, executor: Executor) -> Iterator[None]:
        trial = program.setup.trial
        with ExitStack() as journals:
            runner = self._step_runner(trial, recorder, executor, journals)
            context = TrialContext(program.setup, recorder, executor, runner.bindings)
            executor.run(program.before, runner, context)
            with self._stack(program, runner, context):
                try:
                    # Closed before anything is undone, so that the host is this trial's again.
                    with closing(executor.turns((*program.prepare, *program.measure), runner, context)) as turns:
                        for _ in turns:
                            self._golden |= program.keeps  # the first turn begins when all is loaded
                            yield
                finally:
                    with suppress(HostLost):
                        rescue_outputs(context)
                        fetch_server_log(context)
        self._golden |= program.keeps

    def _step_runner(
        self, trial: Trial, recorder: TrialRecorder, executor: Executor, journals: ExitStack
    ) -> StepRunner:
        """A runner for every host of the trial's nodes, with a journal there."""
        runners: dict[str, StepRunner] = {}
        bindings: dict[str, str] = {}
        for name, site in self.site.sites_of(trial).items():
            trial_id, told = site.context(trial).trial_id, partial(report_left, recorder, executor)
            journal = journals.enter_context(standing(site, trial_id, executor, told, undo_name(name)))
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
                report_left(context.recorder, context.executor, kept.undo())
            raise

    def _build_kept(self, program: Program, context: TrialContext) -> KeptStack:
        site, plan = self.site, program.stack_plan
        journal = Journal.create(site.host, plan.context.trial_id)
        runner = StepRunner(site.host, journal, site.campaign.erase, context.bindings)
        try:
            site.host.mark(plan.context.marker)
            journal.register(StopProcesses(marker=plan.context.marker))
            context.executor.run(program.build, runner, context)
        except BaseException:
            with context.executor.undoing("take the kept stack down"):
                report_left(context.recorder, context.executor, failures(journal.undo_all()))
            raise
        kept = KeptStack(plan, dict(runner.bindings), journal)
        self.kept.keep(program.setup.trial, kept)
        return kept

    def clean_after_loss(self, tell: Tell) -> None:
        """A host was lost in the middle of a trial; its own journal says what is left over there."""
        for site in self.site.sites.values():
            site.host.reconnect()
            for line in clean(site.host).lines:
                tell(Notice(line))
        # our own journals were replayed with the others: golden copies and kept stacks are gone, and are recreated
        self.kept.forget()
        self._golden = frozenset()
        self._shared = self._shared_journals()
        self._lost = False


def _shared_journal(site: Site, *undos: Undo) -> Journal:
    """Journal of everything at a site that outlives a trial."""
    journal = Journal.create(site.host, f"golden-{site.token}")
    try:
        make_scratch(site.host, site.scratch, journal)
        journal.register(*undos)
    except BaseException:
        journal.undo_all()
        raise
    return journal


def _undo(journal: Journal) -> tuple[str, ...]:
    return failures(journal.undo_all())
