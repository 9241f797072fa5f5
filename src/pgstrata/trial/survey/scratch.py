"""The folder for loop files and golden copies: root writes there, so nobody else may change what lies in it."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

from pgstrata.errors import PreflightError
from pgstrata.host.ownership import folder_problems, trusted
from pgstrata.host.protocol import Host
from pgstrata.stack.journal import Journal
from pgstrata.stack.undo import RemoveEmptyFolder
from pgstrata.trial.survey.host_survey import Site


def check_scratch(site: Site) -> None:
    """PreflightError when others may change the scratch folder or a folder above it, and so replace what root made.

    Without root the check is unnecessary.
    """
    if not site.as_root:
        return
    for folder, problem in folder_problems(site.host, site.scratch, trusted(site.host, os.environ)):
        raise PreflightError(
            f"scratch folder {site.scratch} on {site.host.name} is not safe: {folder} {problem}",
            hint=f"name a folder of root's with --scratch, or: chown root {folder} && chmod go-w {folder}",
        )


def make_scratch(host: Host, scratch: str, journal: Journal) -> None:
    """Makes the folder and those above it that are missing, and journals each by its device and inode.

    Only afterwards, when these are known: a folder that a kill leaves in between is empty. A folder that was there
    before, such as /var/tmp, is never removed.
    """
    folders = [str(folder) for folder in (*reversed(PurePosixPath(scratch).parents), PurePosixPath(scratch))]
    for folder in [folder for folder in folders if host.status(folder) is None]:
        try:
            host.make_directory(folder, new=True)
        except FileExistsError:  # made by another run meanwhile
            continue
        made = host.status(folder, follow=False)
        if made is not None:
            journal.register(RemoveEmptyFolder(path=folder, device=made.device, inode=made.inode))
