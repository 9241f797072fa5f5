"""Whether a state may come from somebody else, whose database would run here what its author put into it: settings,
libraries, functions.

Nothing in a record proves who made it. What was recorded on this machine, lies in a directory, and belongs to who may
become root anyway, is taken for one's own.
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
    """Why a state may be somebody else's; empty for one that was recorded on one of these machines, in files of these
    users."""
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
    """PreflightError for a state of somebody else's on which a server would be started."""
    if strange:
        raise PreflightError(
            f"{named.title} may be somebody else's: {strange}; to make it smaller a server is started on it, which "
            f"runs as {user} what its author put into its settings, libraries and functions",
            hint="--trust, if you trust whoever made it; on a machine of its own: --host lab",
        )


def refuse_to_mount(named: NamedState, strange: str) -> None:
    """PreflightError for a pool of somebody else's: it says itself where it is mounted."""
    pools = [v.fs.kind for v in named.planned.stack.volumes.values() if v.fs.pools_disks]
    if strange and pools:
        raise PreflightError(
            f"{named.title} may be somebody else's: {strange}; its {pools[0]} pool is mounted where its author said, "
            "over whatever is there",
            hint="--trust, if you trust whoever made it; on a machine of its own: --host lab",
        )
