"""A trial in progress on a host: its journal, its marker, its scratch folder, and the undo of all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from pgstrata.record.recorder import TrialRecorder
from pgstrata.stack.journal import Journal, journaled
from pgstrata.stack.undo import StopProcesses
from pgstrata.trial.events import Notice, Tell
from pgstrata.trial.executor import Executor
from pgstrata.trial.survey.host_survey import Site, make_scratch
from pgstrata.trial.undo_errors import note_undo_errors


@contextmanager
def standing(
    site: Site,
    trial_id: str,
    executor: Executor,
    told: Callable[[tuple[str, ...]], None],
    undo_name: str = "undo",
) -> Iterator[Journal]:
    """The journal of a trial at a site. Commands carry the trial's marker from now on; those that have it are ended
    when the block ends, and everything in the journal is undone. `told` receives the undo errors, a line each."""
    undos, undoing = (StopProcesses(marker=trial_id),), partial(executor.undoing, undo_name)
    with journaled(site.host, trial_id, *undos, undoing=undoing, told=told) as journal:
        site.host.mark(trial_id)
        if site.host is executor.host:
            executor.marker = trial_id
        make_scratch(site.host, site.scratch, journal)
        yield journal


def tell_left(tell: Tell, lines: tuple[str, ...]) -> None:
    for line in lines:
        tell(Notice(f"could not be undone: {line}; run `pgstrata clean`"))


def report_left(recorder: TrialRecorder, executor: Executor, lines: tuple[str, ...]) -> None:
    """Errors of undoing are told and recorded; the error that came first stays the trial's reason."""
    tell_left(executor.tell, lines)
    if lines:
        recorder.write_text("raw/undo-errors.txt", "\n".join(lines) + "\n")
        own = [f"{recorder.trial.id}: {line}" for line in lines]
        note_undo_errors(recorder.final.parents[1], own, recorder.trial.host)
