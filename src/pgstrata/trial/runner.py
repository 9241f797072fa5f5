"""One performance trial, from an empty device to a verdict, and back to an empty device."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

from pgstrata.errors import PgstrataError, PreflightError, RecordError, TrialExcluded
from pgstrata.host.protocol import HostLost
from pgstrata.record.recorder import CampaignDirectory, TrialRecorder, utc_now
from pgstrata.record.schema import TrialVerdict
from pgstrata.spec.campaign import Trial
from pgstrata.stack.build import StepRunner, failures
from pgstrata.stack.clean import clean
from pgstrata.stack.journal import Journal
from pgstrata.stack.undo import RemovePath, StopProcesses
from pgstrata.trial.collect import fetch_server_log, rescue_outputs
from pgstrata.trial.context import Percentiles, TrialContext
from pgstrata.trial.events import Event, EventLog, Notice, Tell, TrialEnded
from pgstrata.trial.executor import Executor, Identity
from pgstrata.trial.interruption import Interrupted, Interruption
from pgstrata.trial.kept_stacks import KeptStack, KeptStacks
from pgstrata.trial.load import GoldenChanged, Present
from pgstrata.trial.medium import record_check
from pgstrata.trial.program import Program, make_program
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
    _shared: Journal = field(init=False)
    _lost: bool = False

    def __post_init__(self) -> None:
        self._shared = self._golden_journal()

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
        return (*self.kept.undo_all(), *failures(self._shared.undo_all()))

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
        """One trial to its verdict. Raises Interrupted, with the trial undone and set aside, or RecordError."""
        if self._lost:
            self.clean_after_loss(tell)
        began_s, started = time.monotonic(), utc_now()
        recorder = directory.start_trial(trial, self.program(trial).planned)
        log = EventLog(recorder)

        def tell_both(event: Event) -> None:
            log(event)
            tell(event)

        identity = Identity(self.site.campaign.name, trial.id)
        limit_s = self.site.campaign.runs.max_trial_duration
        executor = Executor(self.site.host, identity, tell_both, self.interruption, limit_s)
        status: Literal["ok", "failed", "excluded"] = "ok"
        reason, hint = "", ""
        try:
            self._perform(trial, recorder, executor)
        except (RecordError, Interrupted):
            directory.set_aside(recorder)
            raise
        except PgstrataError as error:
            self._lost = isinstance(error, HostLost)
            status = "excluded" if isinstance(error, TrialExcluded) else "failed"
            reason, hint = _reason(error), error.hint
        except OSError as error:
            status = "failed"
            reason = f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
        except Exception as error:
            # A defect of ours must not end a campaign of many hours; the trial is lost, and says where.
            status = "failed"
            recorder.write_text("raw/traceback.txt", traceback.format_exc())
            reason = f"internal error: {type(error).__name__}: {error}"
            hint = "please report it with raw/traceback.txt of this trial"
        finally:
            executor.close()
        verdict = TrialVerdict(
            trial_id=trial.id,
            status=status,
            reason=reason,
            hint=hint,
            started=started,
            ended=utc_now(),
            duration_s=round(time.monotonic() - began_s, 3),
        )
        log(TrialEnded(self.site.campaign.name, trial, verdict))
        recorder.finish(verdict)
        return verdict

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
        with self._journal(self.site.context(trial).trial_id, recorder, executor) as journal:
            runner = StepRunner(self.site.host, journal, self.site.campaign.erase)
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
            self._mark(plan.context.marker, journal)
            context.executor.run(program.build, runner, context)
        except BaseException:
            with context.executor.undoing("take the kept stack down"):
                self._report(failures(journal.undo_all()), context.recorder, context.executor)
            raise
        kept = KeptStack(plan, dict(runner.bindings), journal)
        self.kept.keep(program.setup.trial, kept)
        return kept

    @contextmanager
    def _journal(self, trial_id: str, recorder: TrialRecorder, executor: Executor) -> Iterator[Journal]:
        """The journal of a trial; everything in it is undone when the block ends."""
        journal = Journal.create(self.site.host, trial_id)
        try:
            self._mark(trial_id, journal)
            yield journal
        finally:
            with executor.undoing():
                self._report(failures(journal.undo_all()), recorder, executor)

    def _mark(self, marker: str, journal: Journal) -> None:
        """Commands carry the trial's marker from now on; those that have it are ended with the trial."""
        self.site.host.mark(marker)
        journal.register(StopProcesses(marker=marker))

    def _report(self, lines: tuple[str, ...], recorder: TrialRecorder, executor: Executor) -> None:
        """Errors of undoing are reported and logged; the error that came first stays the reason."""
        for line in lines:
            executor.tell(Notice(f"could not be undone: {line}; run `pgstrata clean`"))
        if lines:
            recorder.write_text("raw/undo-errors.txt", "\n".join(lines) + "\n")
            note_undo_errors(recorder.final.parents[1], [f"{recorder.trial.id}: {line}" for line in lines])

    def clean_after_loss(self, tell: Tell) -> None:
        """The host was lost in the middle of a trial; its own journal says what is left over there."""
        self.site.host.reconnect()
        for line in clean(self.site.host).lines:
            tell(Notice(line))
        # our own journals were replayed with the others: golden copies and kept stacks are gone, and are made anew
        self.kept.forget()
        self._golden = frozenset()
        self._shared = self._golden_journal()
        self._lost = False


def _reason(error: PgstrataError) -> str:
    return "\n".join([error.message, *getattr(error, "__notes__", ())])
