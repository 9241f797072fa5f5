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
from pgstrata.record.schema import PlannedRecord, SpaceRecord, TrialVerdict
from pgstrata.spec.campaign import Trial
from pgstrata.stack.build import failures
from pgstrata.stack.clean import clean
from pgstrata.stack.journal import Journal
from pgstrata.stack.plan import plan_stack
from pgstrata.stack.undo import RemovePath
from pgstrata.trial.bench import Bench, Percentiles
from pgstrata.trial.collect import fetch_server_log
from pgstrata.trial.facts import run_facts
from pgstrata.trial.interruption import Interrupted, Interruption
from pgstrata.trial.keep import KeptStacks
from pgstrata.trial.load import run_load
from pgstrata.trial.measure import run_cell
from pgstrata.trial.planned import plan_trial
from pgstrata.trial.precondition import run_precondition
from pgstrata.trial.progress import Progress
from pgstrata.trial.scratch import make_scratch
from pgstrata.trial.site import Site
from pgstrata.trial.space import run_space
from pgstrata.trial.stand import standing
from pgstrata.trial.steps import Steps


def run_trial(bench: Bench) -> None:
    """Everything between build and undo; PgstrataError says why the trial has failed."""
    with bench.steps.step("facts of the host"):
        run_facts(bench)
    with bench.steps.step("attest the stack"):
        bench.attest_stack("built")
    run_precondition(bench)
    run_load(bench)
    spaces = [_measure_space(bench, "after load")]
    for cell in bench.trial.cells:
        sizes = run_cell(bench, cell)
        if spaces[-1].database_bytes is None:
            spaces[-1] = spaces[-1].model_copy(update={"database_bytes": sizes.before})
        spaces.append(_measure_space(bench, f"after {cell.id}").model_copy(update={"database_bytes": sizes.after}))
    bench.recorder.write_list("space.json", spaces)


def _measure_space(bench: Bench, moment: str) -> SpaceRecord:
    with bench.steps.step(f"space {moment}"):
        return run_space(bench.host, bench.plan, moment)


@dataclass
class PerformanceRunner:
    """Runs the trials of a campaign at one site; `close` takes back what outlives a trial."""

    site: Site
    interruption: Interruption
    percentiles: Percentiles
    kept: KeptStacks = field(init=False)
    _shared: Journal = field(init=False)
    _lost: bool = False

    def __post_init__(self) -> None:
        self.kept = KeptStacks(self.site, self.percentiles)
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

    def run(self, trial: Trial, directory: CampaignDirectory, progress: Progress) -> TrialVerdict:
        """One trial to its verdict. Raises Interrupted, with the trial undone and set aside, or RecordError."""
        if self._lost:
            self.clean_after_loss(progress)
        began, started = time.monotonic(), utc_now()
        plan = plan_stack(self.site.campaign.stack(trial.stack), self.site.context(trial))
        planned = PlannedRecord(trial=trial, stack=plan.stack, steps=plan_trial(self.site, trial, plan))
        recorder = directory.start_trial(trial, planned)
        steps = Steps(recorder, progress, self.interruption, self.site.campaign.runs.max_trial_duration)
        status: Literal["ok", "failed", "excluded"] = "ok"
        reason, hint = "", ""
        try:
            self._perform(trial, recorder, steps)
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
        verdict = TrialVerdict(
            trial_id=trial.id,
            status=status,
            reason=reason,
            hint=hint,
            started=started,
            ended=utc_now(),
            duration_s=round(time.monotonic() - began, 3),
        )
        recorder.finish(verdict)
        return verdict

    def _perform(self, trial: Trial, recorder: TrialRecorder, steps: Steps) -> None:
        with self._standing(trial, recorder, steps) as bench:
            try:
                run_trial(bench)
            finally:
                with suppress(HostLost):
                    fetch_server_log(bench)

    @contextmanager
    def _standing(self, trial: Trial, recorder: TrialRecorder, steps: Steps) -> Iterator[Bench]:
        """The trial's stack, built or still standing; undone afterwards unless it is kept for the next block."""
        if trial.load == "keep":
            with self.kept.standing(trial, recorder, steps) as bench:
                yield bench
        else:
            with standing(self.site, trial, recorder, steps, self.percentiles) as bench:
                yield bench

    def clean_after_loss(self, progress: Progress) -> None:
        """The host was lost in the middle of a trial; its own journal says what is left over there."""
        self.site.host.reconnect()
        for line in clean(self.site.host).lines:
            progress.notice(line)
        # our own journals were replayed with the others: golden copies and kept stacks are gone, and are made anew
        self.kept.forget()
        self._shared = self._golden_journal()
        self._lost = False


def _reason(error: PgstrataError) -> str:
    return "\n".join([error.message, *getattr(error, "__notes__", ())])
