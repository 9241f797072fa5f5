"""Undoes what an interrupted run left behind on a host.

Ownership is decided by the undo journal alone. A loop device, mount or folder that merely has a name like pgstrata's is
left alone, as it may belong to a run with another state directory.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgstrata.errors import PgstrataError
from pgstrata.host.protocol import Host, HostLost
from pgstrata.stack.journal import UNFINISHED, Journal, journal_directory


@dataclass(frozen=True)
class Cleaned:
    """One line for everything undone, left alone or not possible; `failed` when something was not possible."""

    lines: tuple[str, ...] = ()
    failed: bool = False


def clean(host: Host) -> Cleaned:
    """Replay every journal whose owner is gone, and delete the notes of ended programs.

    Idempotent: a second run has nothing to do, or retries what failed.
    """
    cleaned = _clean_journals(host)
    host.forget_ended()
    return cleaned


def _clean_journals(host: Host) -> Cleaned:
    directory = journal_directory(host)
    if host.status(directory) is None:
        return Cleaned()
    names = (name.removesuffix(UNFINISHED) for name in host.list_directory(directory))
    found = {name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl")}
    # what outlives a trial comes last: the folder that the trials' own folders lie in
    trials = sorted(found, key=lambda trial: (trial.startswith("golden-"), trial))
    each = [_clean_one(host, trial_id) for trial_id in trials]
    return Cleaned(tuple(line for one in each for line in one.lines), any(one.failed for one in each))


def _clean_one(host: Host, trial_id: str) -> Cleaned:
    try:
        journal = Journal.take_over(host, trial_id)
        if journal is None:
            return Cleaned((f"{trial_id}: left alone, it is running",))
        undone = journal.undo_all()
    except HostLost:
        raise
    except (PgstrataError, OSError) as error:  # unreadable: the others are to be cleaned all the same
        return Cleaned((f"{trial_id}: error: {error}",), failed=True)
    lines = [f"{trial_id}: {u.line}" for u in undone if u.line]
    errors = [f"{trial_id}: error: {u.undo.kind}: {u.error}" for u in undone if u.error]
    return Cleaned((*lines, *errors) or (f"{trial_id}: nothing was left",), failed=bool(errors))
