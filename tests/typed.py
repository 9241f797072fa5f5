"""A command line as if it had been typed, in this process: a new one would spend most of its time on imports."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgstrata.cli.main import main
from pgstrata.trial.fake import FAKE_MODE


def typed(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """What `pgstrata WORDS` ends with and prints in the fake mode, in a folder, with no other setting of ours."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        for name in [name for name in os.environ if name.startswith("PGSTRATA_")]:
            patch.delenv(name)
        patch.setenv(FAKE_MODE, "1")
        patch.setattr(sys, "argv", ["pgstrata", *words])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main()
    return subprocess.CompletedProcess(words, int(ended.value.code or 0), out.getvalue(), err.getvalue())
