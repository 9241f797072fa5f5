"""Progress on a terminal: lines that stay, and one that lives."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CAMPAIGN = "name: small\nstacks: [ext4, tmpfs]\nworkload: {scale: 1, duration: 2, warmup: 0}\nruns: {blocks: 2}\n"


def on_a_terminal(cwd: Path, *argv: str, **env: str) -> tuple[int, str]:
    """Exit code, and what a terminal behind stderr got."""
    leader, follower = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        while True:
            try:
                part = os.read(leader, 4096)
            except OSError:  # the other end is closed
                return
            if not part:
                return
            shown.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PGSTRATA_") and k != "NO_COLOR"}
    done = subprocess.run(
        [sys.executable, "-m", "pgstrata.cli.main", *argv],
        cwd=cwd,
        env={**kept, "PGSTRATA_FAKE": "1", "TERM": "xterm", "COLUMNS": "100", **env},
        stdout=subprocess.DEVNULL,
        stderr=follower,
        timeout=120,
        check=False,
    )
    os.close(follower)
    reader.join(10)
    os.close(leader)
    return done.returncode, b"".join(shown).decode()


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}])
def test_lines_stay_and_the_live_one_goes(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "small.yaml").write_text(CAMPAIGN)
    code, shown = on_a_terminal(tmp_path, "run", "small.yaml", "--out", "out", **env)
    assert code == 0, shown
    assert shown.count(": ok in 1 min") == 4
    assert "block 2, screen: 2 trials" in shown
    assert ("\x1b[3" in shown) is False, "no colour is used for progress"


def test_quiet_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(CAMPAIGN)
    assert on_a_terminal(tmp_path, "run", "small.yaml", "--out", "out", "--quiet") == (0, "")
