"""The controls of crash trials: stacks that must lose and stacks that must hold, each for itself; as root.

Prints a line for each control and ends with 1 when one does otherwise. A control that must lose proves that losses are
found, and within a minute of looking at states; one that must hold proves that none are made up.
Example: .venv/bin/python benches/crash_controls.py --scratch /var/tmp --hold 1000 --majors 15 18
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from pgstrata.crash.verdict import UNMOUNTABLE, summarise
from pgstrata.record.schema import CrashRecord, StateRecord
from pgstrata.spec.expand import slug

PROGRAM = Path(sys.executable).parent / "pgstrata"
CAUGHT_WITHIN_S = 60.0
"""Of looking at states."""
AT_FIRST = 40
"""States of a control that must lose, before all of them are looked at."""


@dataclass(frozen=True)
class Control:
    """A stack of which it is known whether power cuts make it lose, and what its disk does besides."""

    stack: str
    loses: bool
    ignored_flushes: str = "0"
    fault: str = ""
    unmountable: bool = False
    """Whether the kernel is known not to mount some states in which a block of metadata is torn: docs/crash.md."""

    @property
    def name(self) -> str:
        ignored = f" --ignore-flushes {self.ignored_flushes}" if self.ignored_flushes != "0" else ""
        fault = f" --fault {self.fault}" if self.fault else ""
        return f"{self.stack}{ignored}{fault}"


CONTROLS = (
    Control("ext4@fsync=off", loses=True),
    Control("ext4@synchronous_commit=off", loses=True),
    Control("ext4:nobarrier", loses=True),
    Control("ext4@full_page_writes=off", loses=True),
    Control("xfs@full_page_writes=off", loses=True, unmountable=True),
    Control("btrfs:nodatacow@full_page_writes=off", loses=True),
    Control("ext4", loses=True, ignored_flushes="3"),
    Control("xfs", loses=True, ignored_flushes="all"),
    Control("ext4@wal=ext4:nobarrier", loses=True),
    Control("ext4@data_sync_retry=on", loses=True, fault="write-error"),
    Control("ext4", loses=False, fault="write-error"),
    Control("ext4", loses=False, fault="flush-error"),
    Control("ext4", loses=False, fault="gone"),
    Control("ext4", loses=False, fault="full"),
    Control("ext4", loses=False),
    Control("xfs", loses=False, unmountable=True),
    Control("btrfs", loses=False),
    Control("ext4:fast_commit", loses=False, unmountable=True),
    Control("ext4:data=writeback", loses=False),
    Control("btrfs@full_page_writes=off", loses=False),
    Control("ext4:data=journal@full_page_writes=off", loses=False),
    Control("ext4@wal=xfs", loses=False, unmountable=True),
    Control("btrfs(raid1)", loses=False),
)


def without_unmountable(control: Control, found: CrashRecord, states: Sequence[StateRecord]) -> CrashRecord:
    """What the states of a control show when those that are known not to be mounted count neither for nor against it;
    those of an interrupted recovery are for every control."""
    return summarise(found, [s.model_copy(update={"verdict": "held"}) if excused(control, s) else s for s in states])


def excused(control: Control, state: StateRecord) -> bool:
    return state.reason.startswith(UNMOUNTABLE) and (control.unmountable or state.interrupts is not None)


def problem(control: Control, found: CrashRecord, states: int) -> str:
    """Why the result is not what this control must have; empty where it is. `states` are those that were asked for."""
    if found.transactions == 0:
        return "nothing was acknowledged, so nothing could be lost"
    if found.ignored_flushes != control.ignored_flushes:
        return f"its disk ignored {found.ignored_flushes} flushes, not {control.ignored_flushes}"
    if found.fault != control.fault:
        return f"its disk had the fault {found.fault!r}, not {control.fault!r}"
    if found.unknown:
        return f"{found.unknown} states could not be looked at to the end"
    if control.loses:
        return "" if found.verdict in ("lost", "corrupt") else f"it {found.verdict}, and must lose"
    if found.verdict != "held":
        return f"it {found.verdict}, and must hold: {found.first_counterexample}"
    return "" if found.states >= states or control.fault else f"only {found.states} of {states} states were found"


def first_failure(states: Sequence[StateRecord], workers: int) -> str:
    """How long was looked before a state failed."""
    spent_s = 0.0
    for number, state in enumerate(states, start=1):
        spent_s += state.duration_s / workers
        if state.verdict in ("lost", "corrupt"):
            return f", the first after {number} states and {spent_s:.0f} s"
    return ""


def run(control: Control, stack: str, asked: argparse.Namespace, folder: Path) -> Path:
    """The record of a control: so many states of one that must hold, a few of one that must lose, and a minute of them
    where these did not show it."""
    if not control.loses:
        return crash(control, stack, asked, folder / "hold", ["--states", str(asked.hold)])
    out = crash(control, stack, asked, folder / "few", ["--states", str(min(AT_FIRST, asked.lose))])
    if read(out)[0].verdict in ("lost", "corrupt") or asked.lose <= AT_FIRST:
        return out
    states = ["--states", str(asked.lose), "--minutes", str(CAUGHT_WITHIN_S / 60)]
    return crash(control, stack, asked, folder / "all", states)


def crash(control: Control, stack: str, asked: argparse.Namespace, out: Path, states: list[str]) -> Path:
    """One crash trial."""
    size = ["--seed", str(asked.seed), "--transactions", str(asked.transactions), "--workers", str(asked.workers)]
    places = ["--out", str(out), "--scratch", str(asked.scratch / out.parent.name)]
    disk = ["--ignore-flushes", control.ignored_flushes, *(["--fault", control.fault] if control.fault else [])]
    argv = [str(PROGRAM), "crash", stack, *states, *size, *disk, *places, "--json", "--quiet"]
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    return out


def read(out: Path) -> tuple[CrashRecord, list[StateRecord]]:
    """What a crash trial found."""
    (trial,) = (out / "crash").iterdir()
    lines = (trial / "states.jsonl").read_text(encoding="utf-8").splitlines()
    found = CrashRecord.model_validate_json((trial / "durability.json").read_text(encoding="utf-8"))
    return found, [StateRecord.model_validate(json.loads(line)) for line in lines]


def chosen(asked: argparse.Namespace) -> Iterator[tuple[Control, str]]:
    """The controls with the stacks that they are on each major."""
    for major in asked.majors or [None]:
        for control in CONTROLS:
            wanted = any(fnmatchcase(control.name, pattern) for pattern in asked.only)
            if wanted and asked.kind in ("all", "lose" if control.loses else "hold"):
                yield control, control.stack if major is None else f"{control.stack}@major={major}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lose", type=int, default=1000, help="at most so many states of each control that must lose")
    parser.add_argument("--hold", type=int, default=1000, help="states of each control that must hold")
    parser.add_argument("--kind", choices=("all", "lose", "hold"), default="all", help="which controls")
    parser.add_argument("--transactions", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scratch", type=Path, default=Path("/var/tmp"))
    parser.add_argument(
        "--majors", type=int, nargs="*", help="of PostgreSQL; the newest of the host where none is named"
    )
    parser.add_argument("--keep", type=Path, help="where the records of controls that do otherwise are copied to")
    parser.add_argument("--only", nargs="+", default=["*"], help="controls whose name one of these patterns matches")
    asked = parser.parse_args()
    controls = list(chosen(asked))
    if not controls:
        parser.error(f"no control is called {' or '.join(asked.only)}")
    wrong = 0
    for control, stack in controls:
        with tempfile.TemporaryDirectory(prefix="crash-control-") as folder:
            began_s = time.monotonic()
            out = run(control, stack, asked, Path(folder))
            found, states = read(out)
            why = problem(control, without_unmountable(control, found, states), asked.hold)
            if why and asked.keep:
                shutil.copytree(out, asked.keep / slug(f"{control.name} {stack}"), dirs_exist_ok=True)
        wrong += bool(why)
        counts = ", ".join(f"{word} {getattr(found, word)}" for word in ("states", "lost", "corrupt", "unknown"))
        first = first_failure(states, asked.workers)
        name = f"{control.name}{stack.removeprefix(control.stack)}"
        told = f"{name}: {found.verdict} ({counts}{first}) in {time.monotonic() - began_s:.0f} s"
        print(f"FAIL {told}: {why}" if why else f"ok   {told}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
