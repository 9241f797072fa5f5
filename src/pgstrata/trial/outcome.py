"""The outcome of a trial: it is carried out, and any result or error becomes its verdict.

Trials that stand side by side on one host run in one thread: each goes on to its next turn while the others wait. Every
second round of turns is in the reverse order of the one before (ABBA). So each trial follows each trial, itself too,
equally often, and what one leaves to the next falls on all alike.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pgstrata.errors import PgstrataError, RecordError, TrialExcluded
from pgstrata.record.recorder import CampaignDirectory, TrialRecorder, utc_now
from pgstrata.record.schema import PlannedRecord, TrialVerdict
from pgstrata.spec.campaign import Trial
from pgstrata.spec.expand import turn_order
from pgstrata.trial.events import Event, EventLog, Tell, TrialEnded
from pgstrata.trial.executor import Executor, Identity
from pgstrata.trial.interruption import Interrupted, Interruption
from pgstrata.trial.survey.host_survey import Site

Turns = Generator[None, None, TrialVerdict]
"""A trial that yields before each of its turns, and returns its verdict."""


def take_turns(trials: Sequence[Turns]) -> tuple[TrialVerdict, ...]:
    """The verdict of each trial, once all have ended. When one raises an error, all others are interrupted and undone,
    and the error is raised."""
    verdicts: dict[int, TrialVerdict] = {}
    turn = 0
    try:
        while len(verdicts) < len(trials):
            waiting = [number for number in range(len(trials)) if number not in verdicts]
            for number in turn_order(waiting, turn):
                try:
                    next(trials[number])
                except StopIteration as ended:
                    verdicts[number] = ended.value
            turn += 1
    except BaseException as error:
        _end(trials, error)
        raise
    return tuple(verdicts[number] for number in range(len(trials)))


def _end(trials: Sequence[Turns], error: BaseException) -> None:
    """Interrupts every trial that has not ended, so that it is set aside: the error is not its own. What a trial raises
    besides becomes a note."""
    interrupted = Interrupted(type(error).__name__)
    for trial in trials:
        try:
            trial.throw(interrupted)
        except StopIteration:
            continue
        except BaseException as raised:
            if raised is not interrupted:
                error.add_note(f"while the trials beside it were undone: {type(raised).__name__}: {raised}")


def exclude_cut(directory: CampaignDirectory, trial: Trial, ended: Sequence[Trial]) -> TrialVerdict:
    """Records a trial that cannot stand beside those any more that have ended."""
    reason = f"interrupted after {', '.join(t.stack for t in ended)} had ended, beside which it stood"
    return record_without_run(directory, trial, "excluded", reason)


def record_without_run(
    directory: CampaignDirectory, trial: Trial, status: Literal["excluded", "unsupported"], reason: str, hint: str = ""
) -> TrialVerdict:
    """Records a trial of which no step was run."""
    planned = PlannedRecord(trial=trial, stack=directory.campaign.stack(trial.stack), steps=())
    now = utc_now()
    verdict = TrialVerdict(trial_id=trial.id, status=status, reason=reason, hint=hint, started=now, ended=now)
    directory.start_trial(trial, planned).finish(verdict)
    return verdict


@dataclass(frozen=True)
class TrialOutcome:
    """A trial about to be carried out. `passed_on` are errors that say nothing of the trial and are left to the
    caller."""

    site: Site
    trial: Trial
    directory: CampaignDirectory
    recorder: TrialRecorder
    interruption: Interruption
    passed_on: tuple[type[PgstrataError], ...] = ()

    def to_verdict(self, act: Callable[[Executor], None], tell: Tell) -> TrialVerdict:
        """Records the outcome of `act`, of a trial that stands alone. Raises as `turns` does."""

        def alone(executor: Executor) -> Iterator[None]:
            act(executor)
            yield from ()

        (verdict,) = take_turns([self.turns(alone, tell)])
        return verdict

    def turns(self, act: Callable[[Executor], Iterator[None]], tell: Tell) -> Turns:
        """Records the outcome of `act`; yields where it does. Raises RecordError, Interrupted and the errors of
        `passed_on`, with the trial set aside."""
        started = utc_now()
        log, name = EventLog(self.recorder), self.site.campaign.name

        def tell_both(event: Event) -> None:
            log(event)
            tell(event)

        limit_s = self.site.campaign.runs.max_trial_duration
        identity = Identity(name, self.trial.id)
        hosts = {name: site.host for name, site in self.site.sites_of(self.trial).items() if name}
        executor = Executor(self.site.host, identity, tell_both, self.interruption, limit_s, hosts)
        aside: tuple[type[BaseException], ...] = (RecordError, Interrupted, *self.passed_on)
        status: Literal["ok", "failed", "excluded"] = "ok"
        reason, hint = "", ""
        try:
            yield from act(executor)
        except aside:
            self.directory.set_aside(self.recorder)
            raise
        except PgstrataError as error:
            status = "excluded" if isinstance(error, TrialExcluded) else "failed"
            reason, hint = "\n".join([error.message, *getattr(error, "__notes__", ())]), error.hint
        except OSError as error:
            status = "failed"
            reason = f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
        except Exception as error:
            # A defect of ours must not end a campaign of many hours; the trial is lost, and says where.
            status = "failed"
            self.recorder.write_text("raw/traceback.txt", traceback.format_exc())
            reason = f"internal error: {type(error).__name__}: {error}"
            hint = "please report it with raw/traceback.txt of this trial"
        finally:
            executor.close()
        verdict = TrialVerdict(
            trial_id=self.trial.id,
            status=status,
            reason=reason,
            hint=hint,
            started=started,
            ended=utc_now(),
            duration_s=round(executor.elapsed_s, 3),
        )
        log(TrialEnded(name, self.trial, verdict))
        self.recorder.finish(verdict)
        return verdict
