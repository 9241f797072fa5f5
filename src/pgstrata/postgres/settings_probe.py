"""Asks a server whether it would start with these settings: `settings_probe PROGRAM MAJOR NAME=VALUE...`.

Runs on the host as the server's user. The server checks pairs of settings once it has found a data directory, and then
takes its lock file: in the directory that is made here, and removed, that is a folder, at which it stops. So nothing
starts. What the server said is printed; exit code 0 where it came as far as the lock file.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

LOCK_FILE = "postmaster.pid"
TIMEOUT_S = 30
PLAIN = ("log_destination=stderr", "logging_collector=off", "log_min_messages=warning")
"""Settings that keep its messages from being written elsewhere."""


def probe(program: str, major: str, settings: list[str]) -> tuple[bool, str]:
    """Return True if the server takes all of them together, with its output."""
    with tempfile.TemporaryDirectory(prefix="pgstrata-settings-") as folder:
        data = Path(folder)
        for name in ("global", LOCK_FILE):
            (data / name).mkdir()
        for name in ("postgresql.conf", "global/pg_control"):
            (data / name).touch()
        (data / "PG_VERSION").write_text(f"{major}\n")
        options = [word for setting in (*settings, *PLAIN) for word in ("-c", setting)]
        done = subprocess.run(
            [program, "-D", folder, *options], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    return LOCK_FILE in done.stderr, done.stderr


if __name__ == "__main__":
    taken, said = probe(sys.argv[1], sys.argv[2], sys.argv[3:])
    sys.stdout.write(said)
    sys.exit(0 if taken else 1)
