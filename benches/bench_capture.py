"""How fast are logs captured and loads replayed? As root, on an idle machine.

    python benches/bench_capture.py [--megabytes 400] [--sessions 200] [--seconds 5]

Bounds: a csvlog is captured at 100 MB a second of one core or more; one thread replays 20,000 simple statements a
second over 200 sessions or more; at 70 % of the rate that it reached, the 99th percentile of its own lateness is 5 ms
or less; the replay of a captured run of pgbench has its TPS within 3 %.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = Path(sys.executable).with_name("strata-load")
USER = "postgres"
MB_PER_S, STATEMENTS_PER_S, LATENESS_MS, TPS_WITHIN = 100.0, 20_000.0, 5.0, 0.03
SHARE_OF_RATE = 0.7
CLIENTS, RATE = 8, 300
SUMMARY = {
    "format": 1, "first_us": 0, "last_us": 0, "without_duration": 0, "whole_seconds": False, "literals": "keep",
    "database": None, "left_out": {}, "bytes": 0,
}  # fmt: skip


def run(*argv: object, user: str | None = None) -> str:
    words = [str(word) for word in argv]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=600, user=user, cwd="/").stdout


def programs() -> Path:
    """The folder with the server of the newest major."""
    found = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((path.parent for path in found), key=lambda path: float(path.parent.name))


@contextmanager
def server(folder: Path, sessions: int) -> Iterator[Path]:
    """A server with pgbench's tables that logs statements; yields its csvlog."""
    shutil.chown(folder, USER)
    data = folder / "data"
    run(programs() / "initdb", "--pgdata", data, "--auth", "trust", "--no-sync", user=USER)
    settings = {
        "listen_addresses": "", "unix_socket_directories": folder, "max_connections": sessions + 20, "fsync": "off",
        "logging_collector": "on", "log_directory": folder, "log_filename": "statements.log",
        "log_destination": "csvlog", "log_rotation_size": 0,
    }  # fmt: skip
    options = " ".join(f"-c {name}={str(value) or repr('')}" for name, value in settings.items())
    control = (programs() / "pg_ctl", "--pgdata", data, "--wait")
    run(*control, "start", "--log", data / "log", "--options", options, user=USER)
    try:
        run(programs() / "pgbench", "--host", folder, "--initialize", "--quiet", "--scale", 5, "postgres", user=USER)
        yield folder / "statements.csv"
    finally:
        run(*control, "stop", "--mode", "immediate", user=USER)


def pgbench_and_replay(log: Path, seconds: int) -> tuple[float, float]:
    """TPS of pgbench at a rate, logged and captured, and of its replay."""
    folder = log.parent
    logged = "ALTER ROLE postgres SET log_min_duration_statement = "
    psql = (programs() / "psql", "--host", folder, "--quiet", "--no-psqlrc", "--command")
    run(*psql, f"{logged}0", user=USER)
    os.truncate(log, 0)
    options = ("--client", CLIENTS, "--rate", RATE, "--time", seconds, "--no-vacuum", "--select-only")
    told = run(programs() / "pgbench", "--host", folder, *options, "postgres", user=USER)
    found = re.search(r"tps = ([\d.]+) \(without", told)
    assert found, told
    run(*psql, "ALTER ROLE postgres RESET log_min_duration_statement", user=USER)
    run(PROGRAM, "capture", log, "--out", folder / "pgbench.load")
    return float(found[1]), replay(folder / "pgbench.load")["tps"]


def replay(load: Path, *options: object) -> dict[str, Any]:
    said = run(PROGRAM, "replay", load, "--host", load.parent, *options)
    result: dict[str, Any] = json.loads(said.splitlines()[-1])
    assert not result["errors"], result
    assert not result["unfinished"], result
    return result


def capture_mb_per_s(log: Path, megabytes: int) -> float:
    """Megabytes of a csvlog, repeated, that are captured in a second of one processor."""
    text = log.read_bytes()
    large = log.with_name("large.csv")
    with large.open("wb") as file:
        for _ in range(max(1, megabytes * 10**6 // len(text))):
            file.write(text)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(PROGRAM, "capture", large, "--out", log.with_name("large.load"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    size = large.stat().st_size
    large.unlink()
    log.with_name("large.load").unlink()
    return size / 1e6 / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def write_load(path: Path, sessions: int, rate: float, seconds: int) -> None:
    """A load of simple statements at an even rate, in turn from each session."""
    with path.open("w", encoding="utf-8") as file:
        file.write('["d",0,"00","select ?"]\n')
        count = round(rate * seconds)
        for number in range(count):
            file.write(f'["x",{number % sessions},{round(number * 1e6 / rate)},10,0,"SELECT {number}"]\n')
        file.write(json.dumps({**SUMMARY, "statements": count, "sessions": sessions, "digests": 1}) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=5)
    asked = parser.parse_args()
    pwd.getpwnam(USER)
    with tempfile.TemporaryDirectory(prefix="bench-capture-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with server(folder, asked.sessions) as log:
            tps, again = pgbench_and_replay(log, 2 * asked.seconds)
            speed = capture_mb_per_s(log, asked.megabytes)
            write_load(folder / "even.load", asked.sessions, STATEMENTS_PER_S * 2, asked.seconds)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            fast = replay(folder / "even.load", "--speed", "max", "--threads", 1)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            reached = fast["statements_per_s"]
            write_load(folder / "even.load", asked.sessions, SHARE_OF_RATE * reached, asked.seconds)
            late = replay(folder / "even.load", "--threads", 1)["lateness_driver"]
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"capture: {speed:.0f} MB of csvlog a second of one core")
    print(f"replay: {reached:.0f} statements a second over {fast['connections']} sessions from one thread")
    print(f"replay: {1e6 * used_s / fast['statements']:.1f} us of processor a statement, with reading the load")
    print(f"replay at {SHARE_OF_RATE:.0%} of that: lateness p50 {late['p50_ms']:.2f} ms, p99 {late['p99_ms']:.2f} ms")
    print(f"pgbench: {tps:.1f} TPS, its replay {again:.1f} ({again / tps - 1:+.1%})")
    held = (
        speed >= MB_PER_S
        and reached >= STATEMENTS_PER_S
        and late["p99_ms"] <= LATENESS_MS
        and abs(again / tps - 1) <= TPS_WITHIN
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
