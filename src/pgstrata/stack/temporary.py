"""Folders of this machine that a killed program does not leave: `pgstrata clean` removes them."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pgstrata.host.local import LocalHost
from pgstrata.stack.journal import journaled
from pgstrata.stack.undo import OURS, RemovePath


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """A private folder in TMPDIR, journaled before it is made and removed in the end."""
    name = f"{purpose}-{secrets.token_hex(6)}"
    folder = Path(tempfile.gettempdir(), f"{OURS}{name}")
    with closing(LocalHost()) as here, journaled(here, name, RemovePath(path=str(folder), uid=os.geteuid())):
        folder.mkdir(mode=0o700)
        yield folder
