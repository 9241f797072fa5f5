"""Detects states that may come from someone else, whose database would run its author's settings, libraries and
functions here.

Nothing in a record proves who made it. A record counts as one's own if it was recorded on this machine, lies in a
directory, and belongs to a user who may become root anyway.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from pgstrata.crash.named_state import NamedState
from pgstrata.errors import PreflightError
from pgstrata.record.redact import MACHINE_ID
from pgstrata.record.source import FolderSource


def why_strange(named: NamedState, machines: Collection[str], uids: Collection[int]) -> str:
    """Reason why a state may come from someone else; empty if it was recorded on one of these machines, in files of
    these users."""
    source = named.data.source
    if not isinstance(source, FolderSource):
        return "it comes in a file"
    facts = named.trial.facts
    if facts is None or facts.checked.get(MACHINE_ID) not in machines:
        return "it was recorded on another machine"
    folder = named.trial.folder
    planned = f"{folder}/planned.json"
    for name in ("", "campaign.json", folder, planned, f"{folder}/durability.json", named.log, named.file):
        path = Path(source.root) / name
        if (uid := os.lstat(path).st_uid) not in uids:
            return f"{path} belongs to user {uid}"
    return ""


def refuse_to_run(named: NamedState, strange: str, user: str) -> None:
    """Raises PreflightError if a server would be started on someone else's state."""
    if strange:
        raise PreflightError(
            f"{named.title} may be somebody else's: {strange}; to make it smaller a server is started on it, which "
            f"runs as {user} what its author put into its settings, libraries and functions",
            hint="--trust, if you trust whoever made it; on a machine of its own: --host lab",
        )


def refuse_to_mount(named: NamedState, strange: str) -> None:
    """Raises PreflightError for someone else's pool, which defines its own mount points."""
    pools = [v.fs.kind for v in named.planned.stack.volumes.values() if v.fs.pools_disks]
    if strange and pools:
        raise PreflightError(
            f"{named.title} may be somebody else's: {strange}; its {pools[0]} pool is mounted where its author said, "
            "over whatever is there",
            hint="--trust, if you trust whoever made it; on a machine of its own: --host lab",
        )
