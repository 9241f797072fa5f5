"""Trials that stand side by side on one host, in one thread: each goes on to its next turn while the others wait.

Every second round of turns is in the reverse order of the one before (ABBA). So each trial follows each trial, itself
too, equally often, and what one leaves to the next falls on all alike.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from pgstrata.record.schema import TrialVerdict
from pgstrata.spec.expand import turn_order
from pgstrata.trial.interruption import Interrupted

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
