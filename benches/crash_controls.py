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
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean

from pgstrata.crash.verdict import UNMOUNTABLE, summarise
from pgstrata.errors import ExitCode
from pgstrata.record.crash import FAILED, CrashRecord, StateRecord
from pgstrata.record.schema import HostFacts
from pgstrata.spec.expand import slug

PROGRAM = Path(sys.executable).parent / "pgstrata"
UNKNOWN_ONE_IN = 50
"""States of a control that must lose, of which one may stay unknown: a torn page can keep a recovery from ending."""
CAUGHT_WITHIN_S = 60.0
"""Of looking at states."""
SURE = 5
"""States of a control that loses in nearly each of them."""


@dataclass(frozen=True)
class Control:
    """A stack of which it is known whether power cuts make it lose, and what its disk does besides."""

    stack: str
    loses: bool
    ignored_flushes: str = "0"
    fault: str = ""
    at_first: int = 40
    """States of one that must lose, before all of them are looked at: so many that one of them shows it."""
    panics: bool | None = None
    """Whether PostgreSQL must end itself at the fault; None where either will do."""
    repaired: bool = False
    """Whether some of its states must need a repair after which they hold; others may lose even then."""
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
    Control("ext4:nojournal", loses=True, repaired=True),
    Control("ext4@full_page_writes=off", loses=True),
    Control("xfs@full_page_writes=off", loses=True, unmountable=True),
    Control("btrfs:nodatacow@full_page_writes=off", loses=True, at_first=100),
    Control("ext4", loses=True, ignored_flushes="3"),
    Control("xfs", loses=True, ignored_flushes="all"),
    Control("ext4@wal=ext4:nobarrier", loses=True),
    Control("ext4@data_sync_retry=on", loses=True, fault="write-error", panics=False),
    Control("ext4", loses=False, fault="write-error", panics=True),
    Control("ext4", loses=False, fault="flush-error", panics=True),
    Control("ext4", loses=False, fault="gone", panics=True),
    Control("ext4", loses=False, fault="full", panics=True),
    Control("ext4", loses=False, fault="slow-flush", panics=False),
    Control("ext4", loses=False),
    Control("xfs", loses=False, unmountable=True),
    Control("btrfs", loses=False),
    Control("ext4:fast_commit", loses=False, unmountable=True),
    Control("ext4:data=writeback", loses=False),
    Control("btrfs@full_page_writes=off", loses=True, at_first=500),
    Control("ext4:data=journal", loses=False),
    Control("ext4@wal=xfs", loses=False, unmountable=True),
    Control("btrfs(raid1)", loses=False),
    Control("ext4:nobarrier+log", loses=True),
    Control("ext4+log", loses=False),
    Control("media(nvme)/ext4:nobarrier", loses=False),
    Control("xfs+log", loses=False, unmountable=True),
    Control("ext4:data=journal@full_page_writes=off", loses=True, at_first=500),
    Control("xfs@fsync=off", loses=True, unmountable=True),
    Control("btrfs@fsync=off", loses=True),
    Control("xfs@synchronous_commit=off", loses=True, unmountable=True),
    Control("btrfs@synchronous_commit=off", loses=True),
    Control("ext4:data=writeback@full_page_writes=off", loses=True),
    Control("ext4@data_checksums=off@full_page_writes=off", loses=True),
    Control("xfs@data_checksums=off@full_page_writes=off", loses=True, at_first=100, unmountable=True),
    Control("btrfs:nodatacow@data_checksums=off@full_page_writes=off", loses=True, at_first=100),
    Control("btrfs:nobarrier", loses=True),
    Control("xfs@wal=btrfs:nobarrier", loses=True, unmountable=True),
    Control("ext4", loses=True, ignored_flushes="1"),
    Control("xfs", loses=True, ignored_flushes="1", unmountable=True),
    Control("btrfs", loses=True, ignored_flushes="1"),
    Control("media(cloud-volume)/ext4:nobarrier", loses=False),
    Control("ext4@commit_delay=1000@commit_siblings=1", loses=False),
    Control("ext4@wal_sync_method=open_datasync", loses=False),
    Control("xfs@wal_sync_method=open_datasync", loses=False, unmountable=True),
    Control("btrfs@wal_sync_method=open_sync", loses=False),
    Control("ext4:commit=60", loses=False),
    Control("btrfs:nodatacow", loses=False),
    Control("ext4@wal_init_zero=off@wal_recycle=off", loses=False),
    Control("ext4@wal_level=minimal@max_wal_senders=0", loses=False),
    Control("ext4@autovacuum_naptime=1s", loses=False),
)

LAYERED = (
    Control("zfs", loses=False),
    Control("zfs:sync=disabled", loses=True, at_first=SURE),
    Control("zfs:module.zfs_nocacheflush=1", loses=True, at_first=SURE),
    Control("md(raid1,2)/ext4", loses=False),
    Control("md(raid5,3):state=degraded/ext4", loses=True, at_first=SURE),
    Control("lvm/ext4@full_page_writes=off", loses=True),
    Control("ext4@wal=nfs:async", loses=True, at_first=SURE),
    Control("zfs:recordsize=8k@full_page_writes=off", loses=False),
    Control("lvm/ext4", loses=False),
    Control("md(raid10,4)/ext4", loses=False),
    Control("nfs", loses=False, unmountable=True),
    Control("zfs(mirror)+log", loses=False),
    Control("lvm(2)/ext4", loses=False),
)
"""Those whose layers a kernel may lack: in the lab where it does."""


def without_unmountable(control: Control, found: CrashRecord, states: Sequence[StateRecord]) -> CrashRecord:
    """What the states of a control show when those that are known not to be mounted count neither for nor against it;
    those of an interrupted recovery are for every control."""
    return summarise(found, [s.model_copy(update={"verdict": "held"}) if excused(control, s) else s for s in states])


def excused(control: Control, state: StateRecord) -> bool:
    return state.reason.startswith(UNMOUNTABLE) and (control.unmountable or state.interrupts is not None)


def problem(control: Control, found: CrashRecord, states: int, first_s: float | None = None) -> str:
    """Why the result is not what this control must have; empty where it is. `states` are those that were asked for,
    `first_s` is how long was looked before one failed, where that is to be short."""
    if found.transactions == 0:
        return "nothing was acknowledged, so nothing could be lost"
    if found.request.ignore_flushes != control.ignored_flushes:
        return f"its disk ignored {found.request.ignore_flushes} flushes, not {control.ignored_flushes}"
    if (found.request.fault or "") != control.fault:
        return f"its disk had the fault {found.request.fault!r}, not {control.fault!r}"
    if control.panics not in (None, found.panicked):
        return f"PostgreSQL {'panicked' if found.panicked else 'did not panic'} at the fault"
    if found.unknown * (UNKNOWN_ONE_IN if control.loses else 1) > (found.states if control.loses else 0):
        return f"{found.unknown} states could not be looked at to the end"
    if control.repaired and not found.repair:
        return f"the verdict is {found.verdict}, and a state must need repair"
    if control.loses and not control.repaired and found.verdict not in ("lost", "corrupt"):
        return f"the verdict is {found.verdict}, and it must lose"
    if control.loses:
        late = first_s is not None and first_s > CAUGHT_WITHIN_S
        return f"the first failure took {first_s:.0f} s, and must take at most {CAUGHT_WITHIN_S:.0f} s" if late else ""
    if found.verdict != "held":
        return f"the verdict is {found.verdict}, and it must hold: {found.first_counterexample}"
    return "" if found.states >= states or control.fault else f"only {found.states} of {states} states were found"


@dataclass(frozen=True)
class Outcome:
    """What was found of a control on a host, as a line of `--results` has it. `problem` is empty where it is as it must
    be."""

    control: str
    host: str
    states: int
    verdict: str
    counts: str
    duration_s: float
    problem: str
    server: str = ""
    """Its version, and whether it has amcheck."""

    @property
    def line(self) -> str:
        server = f", {self.server}" if self.server else ""
        told = f"{self.control}{server}: {self.verdict} ({self.counts}) in {self.duration_s:.0f} s"
        return f"FAIL {told}: {self.problem}" if self.problem else f"ok   {told}"


def full_name(control: Control, stack: str) -> str:
    """With what was added to its stack."""
    return f"{control.name}{stack.removeprefix(control.stack)}"


def settled(control: Control, stack: str, host: str, states: int, before: Sequence[Outcome]) -> bool:
    """Whether an earlier run has looked at this control there, in so many states, and it was as it must be."""
    return any(
        (one.control, one.host, one.problem) == (full_name(control, stack), host, "")
        and (control.loses or bool(control.fault) or one.states >= states)
        for one in before
    )


def first_failure(states: Sequence[StateRecord], workers: int) -> tuple[int, float] | None:
    """Of how many states, and for how long, was looked until one failed; None where none did."""
    spent_s = 0.0
    for number, state in enumerate(states, start=1):
        spent_s += state.duration_s / workers
        if state.verdict in FAILED:
            return number, spent_s
    return None


def first_words(states: Sequence[StateRecord], workers: int) -> str:
    first = first_failure(states, workers)
    return f", the first after {first[0]} states and {first[1]:.0f} s" if first else ""


def mean_state(states: Sequence[StateRecord]) -> str:
    """What a state took, and its longest part."""
    if not states:
        return ""
    parts = {part: fmean(state.parts_s.get(part, 0.0) for state in states) for part in states[0].parts_s}
    longest = max(parts, key=lambda part: parts[part], default="")
    return f", {sum(parts.values()):.2f} s a state" + (f", {parts[longest]:.2f} s of it {longest}" if longest else "")


def run(control: Control, stack: str, asked: argparse.Namespace, folder: Path) -> Path:
    """The record of a control: so many states of one that must hold, a few of one that must lose, and a minute of them
    where these are not as they must be."""
    if not control.loses:
        return crash(control, stack, asked, folder / "hold", ["--states", str(asked.hold)])
    out = crash(control, stack, asked, folder / "few", ["--states", str(min(control.at_first, asked.lose))])
    if asked.lose <= control.at_first or not problem(control, without_unmountable(control, *read(out)), asked.hold):
        return out
    states = ["--states", str(asked.lose), "--minutes", str(CAUGHT_WITHIN_S / 60)]
    return crash(control, stack, asked, folder / "all", states)


def crash(control: Control, stack: str, asked: argparse.Namespace, out: Path, states: list[str]) -> Path:
    """One crash trial. Exit code 4 of one that must lose is accepted if there is a result: states may be unknown."""
    size = ["--seed", str(asked.seed), "--transactions", str(asked.transactions), "--workers", str(asked.workers)]
    places = ["--out", str(out), "--scratch", str(asked.scratch / out.parent.name)]
    disk = ["--ignore-flushes", control.ignored_flushes, *(["--fault", control.fault] if control.fault else [])]
    argv = [str(PROGRAM), "crash", stack, *states, *size, *disk, *places, *asked.more, "--json", "--quiet"]
    code = subprocess.run(argv, stdout=subprocess.DEVNULL, check=False).returncode
    is_told = code == ExitCode.TRIALS_FAILED and control.loses and any(out.glob("crash/*/durability.json"))
    if code and not is_told:
        raise subprocess.CalledProcessError(code, argv)
    return out


def read(out: Path) -> tuple[CrashRecord, list[StateRecord]]:
    """What a crash trial found."""
    trial = folder_of(out)
    lines = (trial / "states.jsonl").read_text(encoding="utf-8").splitlines()
    found = CrashRecord.model_validate_json((trial / "durability.json").read_text(encoding="utf-8"))
    return found, [StateRecord.model_validate(json.loads(line)) for line in lines]


def folder_of(out: Path) -> Path:
    """Of the one crash trial."""
    (trial,) = (out / "crash").iterdir()
    return trial


def server_of(out: Path, found: CrashRecord) -> str:
    """Which server it was, and what it had to look with."""
    facts = HostFacts.model_validate_json((folder_of(out) / "facts.json").read_text(encoding="utf-8"))
    version = facts.checked.get("PostgreSQL version", "of unknown version")
    return f"PostgreSQL {version} with{'' if found.amcheck else 'out'} amcheck"


def chosen(asked: argparse.Namespace) -> Iterator[tuple[Control, str]]:
    """The controls with the stacks that they are on each major, or with the server that was named."""
    servers = [f"@major={major}" for major in asked.majors or ()]
    servers += [f"@installation={asked.installation}"] if asked.installation else []
    for server in servers or [""]:
        for control in LAYERED if asked.layers else CONTROLS:
            wanted = any(fnmatchcase(control.name, pattern) for pattern in asked.only)
            if wanted and asked.kind in ("all", "lose" if control.loses else "hold"):
                yield control, f"{control.stack}{server}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lose", type=int, default=1000, help="at most so many states of each control that must lose")
    parser.add_argument("--hold", type=int, default=1000, help="states of each control that must hold")
    parser.add_argument("--kind", choices=("all", "lose", "hold"), default="all", help="which controls")
    parser.add_argument("--transactions", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scratch", type=Path, default=Path("/var/tmp"))
    parser.add_argument(
        "--majors",
        type=int,
        nargs="*",
        help="of PostgreSQL; else the newest system installation",
    )
    parser.add_argument("--installation", metavar="PATH", help="a tree of PostgreSQL, besides those majors or alone")
    parser.add_argument("--keep", type=Path, help="where the records of controls that do otherwise are copied to")
    parser.add_argument("--only", nargs="+", default=["*"], help="controls whose name one of these patterns matches")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="takes a line for each control; those that it has are left out"
    )
    parser.add_argument("--layers", action="store_true", help="the controls with lvm, md, zfs and nfs")
    parser.add_argument("--host", help="where: local, ssh://... or lab/NAME")
    parser.add_argument("--nested", type=int, help="of so many states the recovery is interrupted")
    parser.add_argument("--minimise", type=int, help="states tried to make one that failed smaller")
    asked = parser.parse_args()
    given = {"--host": asked.host, "--nested": asked.nested, "--minimise": asked.minimise}
    asked.more = [word for option, value in given.items() if value is not None for word in (option, str(value))]
    controls = list(chosen(asked))
    if not controls:
        parser.error(f"no control is called {' or '.join(asked.only)}")
    before = results(asked.results)
    outcomes = []
    for control, stack in controls:
        if not settled(control, stack, asked.host or "local", asked.hold, before):
            outcomes.append(outcome(control, stack, asked))
            print(outcomes[-1].line, flush=True)
            if asked.results:
                with asked.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(outcomes[-1])) + "\n")
    return 1 if any(one.problem for one in outcomes) else 0


def results(file: Path | None) -> list[Outcome]:
    """Of earlier runs; none where there were none."""
    if file is None or not file.exists():
        return []
    return [Outcome(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def nothing_found(stack: str, seed: int) -> tuple[CrashRecord, list[StateRecord]]:
    """Of a crash trial that came to no end."""
    return CrashRecord(stack=stack, seed=seed), []


def outcome(control: Control, stack: str, asked: argparse.Namespace) -> Outcome:
    """Runs a control and compares; a crash trial that comes to no end is a problem of this control alone."""
    server = ""
    with tempfile.TemporaryDirectory(prefix="crash-control-") as folder:
        began_s = time.monotonic()
        try:
            out = run(control, stack, asked, Path(folder))
        except subprocess.CalledProcessError as error:
            found, states = nothing_found(stack, asked.seed)
            why = f"pgstrata crash ended with {error.returncode}"
        else:
            found, states = read(out)
            server = server_of(out, found)
            first = first_failure(states, asked.workers)
            first_s = first[1] if first and asked.host is None else None
            why = problem(control, without_unmountable(control, found, states), asked.hold, first_s)
        if why and asked.keep:
            shutil.copytree(folder, asked.keep / slug(f"{control.name} {stack}"), dirs_exist_ok=True)
    counts = ", ".join(f"{word} {getattr(found, word)}" for word in ("states", "lost", "corrupt", "repair", "unknown"))
    return Outcome(
        control=full_name(control, stack),
        host=asked.host or "local",
        states=found.states,
        verdict=found.verdict,
        counts=counts + first_words(states, asked.workers) + mean_state(states),
        duration_s=round(time.monotonic() - began_s, 1),
        problem=why,
        server=server,
    )


if __name__ == "__main__":
    sys.exit(main())
