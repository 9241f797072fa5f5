"""Commits on the primary and reads on the standbys right after. Run on the node of pgbench; standard library only.

psql holds a session to each server. A mark is raised on the primary; as soon as that is acknowledged it is read on one
of the standbys, each in its turn, until it is there. A line tells of each read: the standby, whether the first answer
lacked what was acknowledged, and how many milliseconds after the acknowledgement an answer had it, or nothing more was
asked.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from itertools import cycle

PAUSE_S = 0.001
"""Between answers without the mark."""


class Session:
    """One psql, which prints a line for each statement when it is done."""

    def __init__(self, argv: list[str]) -> None:
        self._psql = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def number(self, statement: str) -> int:
        """The only value that a statement returns."""
        asked, answers = self._psql.stdin, self._psql.stdout
        assert asked is not None
        assert answers is not None
        try:
            asked.write(f"{statement};\n")
            asked.flush()
        except BrokenPipeError:
            pass
        answer = answers.readline()
        if not answer:
            raise ConnectionError(f"psql ended with exit code {self._psql.wait()}")
        return int(answer)

    def close(self) -> None:
        for pipe in (self._psql.stdin, self._psql.stdout):
            assert pipe is not None
            pipe.close()
        self._psql.wait()


def read_after(primary: Session, standby: Session, table: str, patience_s: float) -> tuple[bool, float]:
    """Return True if the first answer lacked what had been acknowledged, and the milliseconds until one had it."""
    mark = primary.number(f"UPDATE {table} SET mark = mark + 1 RETURNING mark")
    acknowledged_s = time.monotonic()
    if standby.number(f"SELECT mark FROM {table}") >= mark:
        return False, 0.0
    while time.monotonic() - acknowledged_s < patience_s:
        time.sleep(PAUSE_S)
        if standby.number(f"SELECT mark FROM {table}") >= mark:
            break
    return True, round(1000 * (time.monotonic() - acknowledged_s), 3)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    for name in ("psql", "port", "user", "database", "table", "primary"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("seconds", "patience"):
        parser.add_argument(f"--{name}", type=float, required=True)
    parser.add_argument("--standby", action="append", required=True, metavar="NAME=ADDRESS")
    given = parser.parse_args(arguments)

    def connect(address: str) -> Session:
        where = ["--host", address, "--port", given.port, "--username", given.user, "--dbname", given.database]
        return Session([given.psql, "-XAtq", "--no-password", "--set=ON_ERROR_STOP=1", *where])

    primary = connect(given.primary)
    standbys = {name: connect(address) for name, _, address in (word.partition("=") for word in given.standby)}
    try:
        end_s = time.monotonic() + given.seconds
        for name in cycle(standbys):
            stale, ms = read_after(primary, standbys[name], given.table, given.patience)
            print(json.dumps({"standby": name, "stale": stale, "ms": ms}))
            if time.monotonic() > end_s:
                return 0
    except ConnectionError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        for session in (primary, *standbys.values()):
            session.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
