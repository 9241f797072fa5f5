"""How long does a cluster of three take to be up and in sync, and to be taken down? Failures a minute? As root.

    python benches/bench_cluster.py [--scale 10] [--failures 40] [--stack 'cluster(3,ANY 1)/tmpfs'] [--hold 200]

Up counts every step of a trial until all standbys stream and are level with the primary: stack, namespaces, initdb,
loading, base backups, cold caches, start. Down counts stopping the servers and taking everything back. Failures a
minute counts the whole step that carries them out: ledger, moments, promotion, amcheck. Bounds: 15 s up, 5 s down, 20
failures a minute.

With --hold it looks at controls instead: of so many failures of one node none may lose anything, and what is done wrong
on purpose must be found out: two nodes lost at once, the wrong standby promoted, one promoted that forgot what it had.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROGRAM = Path(sys.executable).parent / "pgstrata"
UP_S, DOWN_S, FAILURES_A_MINUTE = 15.0, 5.0, 20.0

CAMPAIGN = """\
name: cluster
stacks: ["{stack}"]
workload: {{scale: {scale}, clients: 2, duration: 1, warmup: 0}}
runs: {{blocks: 1, fresh_blocks: 1}}
"""
UP, STOPPED, UNDONE = ": start the servers", ": stop the servers", "undo"
MISTAKES = (("--lost", "2"), ("--promote", "least"), ("--promote", "forgetful"))
MISTAKEN = 20
"""Failures of each: so many that some of them lose something."""
CARRIED_OUT = "stop all nodes, take some away, promote another"


def run(*argv: str) -> None:
    subprocess.run([str(PROGRAM), *argv, "--quiet"], stdout=subprocess.DEVNULL, check=True)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def steps(trial: Path) -> list[tuple[str, float]]:
    """Names and seconds, in order."""
    ended = (event for event in lines(trial / "events.jsonl") if event["event"] == "step_ended")
    return [(str(event["step"]), float(event["duration_s"])) for event in ended]


def up_and_down_s(taken: Sequence[tuple[str, float]]) -> tuple[float, float]:
    """Until the cluster is in sync, and from the end of the run on."""
    up = next(number for number, (name, _) in enumerate(taken) if name.endswith(UP))
    down = [seconds for name, seconds in taken if name.endswith(STOPPED) or name == UNDONE]
    return sum(seconds for _, seconds in taken[: up + 1]), sum(down)


def bring_up(stack: str, scale: int, place: Path) -> tuple[float, float]:
    """Prints what took longest."""
    file = place / "cluster.yaml"
    file.write_text(CAMPAIGN.format(stack=stack, scale=scale), encoding="utf-8")
    run("run", str(file), "--out", str(place / "run"))
    (trial,) = (place / "run" / "trials").iterdir()
    taken = steps(trial)
    up_s, down_s = up_and_down_s(taken)
    print(f"{stack} at scale {scale}: up and in sync in {up_s:.1f} s, down in {down_s:.1f} s")
    for name, seconds in sorted(taken, key=lambda step: -step[1])[:6]:
        print(f"  {seconds:5.1f} s  {name}")
    return up_s, down_s


def fail(stack: str, failures: int, place: Path) -> float:
    """Failures carried out in a minute."""
    out, scratch = str(place / "crash"), str(place)
    run("crash", stack, "--states", str(failures), "--out", out, "--scratch", scratch)
    (trial,) = (place / "crash" / "crash").iterdir()
    found = lines(trial / "failures.jsonl")
    (seconds,) = (seconds for name, seconds in steps(trial) if name == CARRIED_OUT)
    rate = 60 * len(found) / seconds
    print(f"{stack}: {len(found)} failures in {seconds:.1f} s, {rate:.0f} a minute")
    return rate


def measured(stack: str, scale: int, failures: int, place: Path) -> dict[str, bool]:
    """By what is said of a bound, whether it is missed."""
    up_s, down_s = bring_up(stack, scale, place)
    rate = fail(stack, failures, place)
    return {
        f"up later than {UP_S:g} s": up_s > UP_S,
        f"down later than {DOWN_S:g} s": down_s > DOWN_S,
        f"fewer than {FAILURES_A_MINUTE:g} failures a minute": rate < FAILURES_A_MINUTE,
    }


def controls(stack: str, failures: int, place: Path) -> dict[str, bool]:
    """Prints a line for each control; by what it says against it, whether it does."""
    kept = {"a failure of one node lost something": not _verdict_is("held", stack, failures, (), place / "hold")}
    for number, mistake in enumerate(MISTAKES):
        caught = _verdict_is("lost", stack, MISTAKEN, mistake, place / f"mistake{number}")
        kept[f"{' '.join(mistake)} was not found out"] = not caught
    return kept


def _verdict_is(wanted: str, stack: str, failures: int, options: Sequence[str], place: Path) -> bool:
    """Of crash trials in which as many failures as were asked for were carried out, and none is unknown."""
    scratch = str(place.parent)
    run("crash", stack, "--states", str(failures), *options, "--out", str(place), "--scratch", scratch)
    (trial,) = (place / "crash").iterdir()
    found = json.loads((trial / "durability.json").read_text(encoding="utf-8"))
    counts = ", ".join(f"{found[word]} {word}" for word in ("lost", "corrupt", "unknown"))
    print(f"{' '.join((stack, *options))}: {found['verdict']} in {found['states']} failures ({counts})", flush=True)
    return (found["verdict"], found["states"], found["unknown"]) == (wanted, failures, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=10)
    parser.add_argument("--failures", type=int, default=40)
    parser.add_argument("--stack", default="cluster(3,ANY 1)/tmpfs")
    parser.add_argument("--scratch", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--hold", type=int, metavar="N", help="look at controls: N failures of one node")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-cluster-", dir=asked.scratch) as folder:
        place = Path(folder)
        place.chmod(0o755)
        if asked.hold is None:
            missed = measured(asked.stack, asked.scale, asked.failures, place)
        else:
            missed = controls(asked.stack, asked.hold, place)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    for what in (what for what, is_missed in missed.items() if is_missed):
        print(f"missed: {what}")
    return 1 if any(missed.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
