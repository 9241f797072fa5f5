"""Brings up the furthest of the remaining servers of a cluster and reads its data. Run on the host as the servers'
user; standard library only.

Its argument describes the remaining servers as JSON: the name of each, the locations of its data and WAL, and its kind.
A primary recovers, a standby is started by itself and promoted, a base backup restores an archive. How far a server
reaches is read from its WAL (pg_waldump), from where its recovery begins. The choice is printed in the format of a
single-user server's answer. Then this process becomes a single-user server on it, with the statements from standard
input.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from typing import Any

RECORD = re.compile(r"lsn: ([0-9A-F]+)/([0-9A-F]+), .*desc: COMMIT ")
REDO = re.compile(r"Latest checkpoint's REDO location:\s+([0-9A-F]+/[0-9A-F]+)")
NOWHERE = -1


def lsn(text: str) -> int:
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def run(argv: list[str], timeout_s: float) -> tuple[int, str, str]:
    """Exit code, output and errors; 124 on timeout."""
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout_s,
            check=False, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124, "", f"{argv[0]} did not end in time"
    return done.returncode, done.stdout, done.stderr


def last_commit(printed: str, start: int) -> int:
    """Position of the last commit among records that pg_waldump printed; `start` if there is none."""
    return max((lsn(f"{high}/{low}") for high, low in RECORD.findall(printed)), default=start)


class Server:
    """A remaining server."""

    def __init__(self, given: dict[str, Any], job: dict[str, Any]) -> None:
        self.job = job
        self.name: str = given["name"]
        self.role: str = given["role"]
        self.data: str = given["data"]
        self.wal: str = given["wal"] or f"{self.data}/pg_wal"
        self.archive: str = given.get("archive", "")

    def reach(self) -> int:
        """Position of its last commit, or of the start of its recovery; `NOWHERE` without a readable control file."""
        _, printed, _ = run([self.job["pg_controldata"], self.data], self.job["timeout_s"])
        redo = REDO.search(printed)
        if redo is None:
            return NOWHERE
        argv = [self.job["pg_waldump"], "--path", self.wal, "--start", redo[1], "--rmgr", "Transaction"]
        _, records, _ = run(argv, self.job["timeout_s"])  # it always ends with an error: that of the end
        return last_commit(records, lsn(redo[1]))

    def bring_up(self) -> str:
        """Prepares it for the check; returns the error if that failed."""
        try:
            return self._bring_up()
        except OSError as error:
            return f"FATAL: what {self.name} has cannot be used: {error.strerror}: {error.filename}\n"

    def _bring_up(self) -> str:
        with suppress(FileNotFoundError):
            os.unlink(f"{self.data}/postmaster.pid")
        if self.role == "archive":
            self._set(f"restore_command = 'cp {self.archive}/%f \"%p\"'\n")
            with open(f"{self.data}/recovery.signal", "x", encoding="utf-8"):
                return ""
        if self.role == "primary":
            self._set("")
            return ""
        self._set("primary_conninfo = ''\nprimary_slot_name = ''\n")
        return self._promote()

    def _set(self, further: str) -> None:
        """Settings that isolate it from all others; the last value of a setting counts. Its socket lies in the data
        directory, by a path that is always short enough."""
        own = (
            "listen_addresses = ''\n"
            "unix_socket_directories = '.'\n"
            "archive_mode = off\nsynchronous_standby_names = ''\nfsync = off\nhot_standby = on\n"
            "dynamic_shared_memory_type = sysv\n"
        )
        conf = os.open(f"{self.data}/postgresql.conf", os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        with os.fdopen(conf, "w", encoding="utf-8") as file:
            file.write(f"\n{own}{further}")

    def _promote(self) -> str:
        """Starts a standby by itself, promotes it and stops it again."""
        log = f"{self.data}/failover.log"
        patience_s = self.job["timeout_s"]
        pg_ctl = [self.job["pg_ctl"], "--pgdata", self.data, "--silent", "--timeout", str(int(patience_s))]
        for action in (["start", "--wait", "--log", log], ["promote", "--wait"], ["stop", "--wait", "--mode", "fast"]):
            code, _, error = run([*pg_ctl, *action], 2 * patience_s)
            if code != 0:
                run([*pg_ctl, "stop", "--mode", "immediate"], 2 * patience_s)
                with suppress(OSError), open(log, encoding="utf-8", errors="replace") as file:
                    error = file.read() + error
                return f"{error}\nFATAL: the standby could not be promoted\n"
        return ""


def furthest(servers: list[Server]) -> Server:
    """The server that reaches furthest, the first of equals. A single server need not be measured."""
    return max(servers, key=Server.reach) if len(servers) > 1 else servers[0]


def main(arguments: list[str]) -> int:
    job = json.loads(arguments[0])
    chosen = furthest([Server(given, job) for given in job["servers"]])
    print(f'\t 1: promoted = "{chosen.name}"\t(typeid = 25)', flush=True)
    problem = chosen.bring_up()
    if not problem:
        argv = [job["postgres"], "--single", "-D", chosen.data, "postgres"]
        os.execv(argv[0], argv)
    print(problem, end="", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
