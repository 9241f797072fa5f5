"""Takes back what an interrupted run left on a host.

Only the undo journal says what is ours: a loop device, mount or folder that is merely named like one of pgstrata's is
left alone, as it may belong to a run with another state directory.
"""

from __future__ import annotations

from pgstrata.errors import PgstrataError
from pgstrata.host.protocol import Host
from pgstrata.stack.journal import Journal, journal_directory


def clean(host: Host) -> tuple[str, ...]:
    """Replays every journal whose owner is gone; a line for everything done, left alone or not possible.

    Idempotent: a second run finds nothing to do, or tries again what could not be done.
    """
    directory = journal_directory(host)
    if host.status(directory) is None:
        return ()
    lines: list[str] = []
    for name in host.list_directory(directory):
        if name.endswith(".jsonl"):
            lines += _clean_one(host, name.removesuffix(".jsonl"))
    return tuple(lines)


def _clean_one(host: Host, trial_id: str) -> list[str]:
    journal = Journal.take_over(host, trial_id)
    if journal is None:
        return [f"{trial_id}: left alone, it is running"]
    try:
        undone = journal.undo_all()
    except PgstrataError as error:  # unreadable: the others are to be cleaned all the same
        return [f"{trial_id}: error: {error}"]
    lines = [f"{trial_id}: {u.line}" for u in undone if u.line]
    lines += [f"{trial_id}: error: {u.undo.kind}: {u.error}" for u in undone if u.error]
    return lines or [f"{trial_id}: nothing was left"]
