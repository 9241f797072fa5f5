"""The machine's own folders are as they were: after campaigns, kills and `clean`, on this host and over ssh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import untouched

from apart import apart
from campaigning import reachable
from loopback_sshd import SSHD


@pytest.mark.root
@pytest.mark.skipif(SSHD is None, reason="sshd is not installed: apt-get install openssh-server")
@pytest.mark.timeout(900)
def test_nothing_outside_is_made_removed_or_changed(tmp_path: Path) -> None:
    with reachable(tmp_path) as folder:
        argv = apart(sys.executable, untouched.__file__, folder)
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "PYTHONPATH": paths}
        environment.pop("PGSTRATA_STATE_DIRECTORY", None)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=800, env=environment)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1]) == {"local": {}, "ssh": {}}
