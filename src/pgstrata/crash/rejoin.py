"""Has a lost server follow the one that was promoted in its place. Run on the host as the servers' user; standard
library only.

Its argument is JSON with the locations of both servers' data, and the method: `rewind` undoes the lost server's excess
over the other (pg_rewind), `backup` copies it from scratch (pg_basebackup). The promoted server is started for that;
the other follows it until it has applied everything. Then both are stopped. They listen only in a private folder. Exit
code 0 means that it followed; else standard error contains the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

POLL_S = 0.05
PROMOTED_PORT, LOST_PORT = 1, 2
"""Parts of the names of sockets: nothing listens on the network."""


class Refused(Exception):
    """Reason why it does not follow."""


def run(argv: list[str], timeout_s: float, stdin: str = "") -> str:
    """The output of a program. Raises Refused if it fails or times out."""
    try:
        done = subprocess.run(
            argv, input=stdin, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Refused(f"{argv[0]} did not end in time") from None
    if done.returncode != 0:
        raise Refused(f"{os.path.basename(argv[0])}: {done.stderr.strip()[-1000:]}")
    return done.stdout


def append(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    with os.fdopen(file, "w", encoding="utf-8") as opened:
        opened.write(f"\n{text}")


def empty(folder: str) -> None:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


class Rejoining:
    """A promoted server, and the one that follows it."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.promoted: str = job["promoted"]
        self.lost: str = job["lost"]
        self.timeout_s: float = job["timeout_s"]

    def run(self) -> None:
        append(f"{self.promoted}/pg_hba.conf", f"local replication all peer map={self.job['map']}\n")
        append(f"{self.promoted}/postgresql.conf", self._settings(PROMOTED_PORT))
        try:
            self._start(self.promoted)
            if self.job["how"] == "backup":
                self._copy()
            else:
                self._rewind()
            self._follow()
        finally:
            self._stop(self.promoted)

    def _settings(self, port: int) -> str:
        """The last value of a setting counts."""
        return (
            f"port = {port}\nunix_socket_directories = '{self.job['sockets']}'\nlisten_addresses = ''\n"
            "archive_mode = off\nsynchronous_standby_names = ''\nfsync = off\nhot_standby = on\n"
            "dynamic_shared_memory_type = sysv\n"
        )

    def _reached(self, port: int) -> str:
        return f"host={self.job['sockets']} port={port} user={self.job['user']}"

    def _copy(self) -> None:
        empty(self.lost)
        argv = [self.job["pg_basebackup"], "--pgdata", self.lost, "--dbname", self._reached(PROMOTED_PORT)]
        run([*argv, "--checkpoint", "fast", "--no-sync"], self.timeout_s)

    def _rewind(self) -> None:
        """Runs pg_rewind, which first recovers the killed server by itself."""
        with suppress(FileNotFoundError):
            os.unlink(f"{self.lost}/postmaster.pid")
        append(f"{self.lost}/postgresql.conf", self._settings(LOST_PORT))
        source = f"{self._reached(PROMOTED_PORT)} dbname=postgres"
        argv = [self.job["pg_rewind"], "--target-pgdata", self.lost, "--source-server", source, "--no-sync"]
        run(argv, self.timeout_s)

    def _follow(self) -> None:
        """Waits until it streams and has applied everything that the other one has by now."""
        conninfo = f"primary_conninfo = '{self._reached(PROMOTED_PORT)}'\nprimary_slot_name = ''\n"
        append(f"{self.lost}/postgresql.conf", self._settings(LOST_PORT) + conninfo)
        with open(f"{self.lost}/standby.signal", "w", encoding="utf-8"):
            pass
        wanted = self._ask(PROMOTED_PORT, "SELECT pg_current_wal_flush_lsn()")
        there = f"SELECT pg_last_wal_replay_lsn() >= '{wanted}' FROM pg_stat_wal_receiver WHERE status = 'streaming'"
        try:
            self._start(self.lost)
            until_s = time.monotonic() + self.timeout_s
            while self._ask(LOST_PORT, there) != "t":
                if time.monotonic() > until_s:
                    raise Refused(f"it does not get to {wanted}: {self._last_words()}")
                time.sleep(POLL_S)
        finally:
            self._stop(self.lost)

    def _last_words(self) -> str:
        with open(f"{self.lost}/rejoin.log", encoding="utf-8", errors="replace") as file:
            return next((line.strip() for line in reversed(file.readlines()) if "FATAL:" in line), "it says nothing")

    def _ask(self, port: int, query: str) -> str:
        argv = [self.job["psql"], "-XAtq", "--dbname", f"{self._reached(port)} dbname=postgres"]
        return run(argv, self.timeout_s, query).strip()

    def _start(self, data: str) -> None:
        log = f"{data}/rejoin.log"
        with suppress(FileNotFoundError):
            os.unlink(log)
        self._pg_ctl(data, "start", "--wait", "--log", log)

    def _stop(self, data: str) -> None:
        """Stops it immediately if it does not shut down cleanly; does nothing if none runs."""
        if not os.path.exists(f"{data}/postmaster.pid"):
            return
        try:
            self._pg_ctl(data, "stop", "--wait", "--mode", "fast")
        except Refused:
            self._pg_ctl(data, "stop", "--wait", "--mode", "immediate")

    def _pg_ctl(self, data: str, *action: str) -> None:
        patience = ("--timeout", str(int(self.timeout_s)))
        run([self.job["pg_ctl"], "--pgdata", data, "--silent", *patience, *action], 2 * self.timeout_s)


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("it did not end in time"))  # servers are stopped on the way out
    try:
        Rejoining(json.loads(arguments[0])).run()
    except (Refused, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
