"""Small campaigns on real filesystems, run in a process of their own that may be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from leavings import leftovers, lost_loops
from pgstrata.host.agent.places import runtime_directory
from pgstrata.spec.expand import block_trials
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.stack.plan import PlanContext
from pgstrata.trial.context import outputs_directory, run_directory
from pgstrata.trial.survey.host_survey import site_token

STATE = "PGSTRATA_STATE_DIRECTORY"

SMALL = """\
name: small
stacks: [{stacks}]
workload: {{scale: 1, clients: 2, duration: 1, warmup: 0, rate: 100}}
runs: {{blocks: {blocks}, fresh_blocks: 1, load: {load}}}
defaults:
  device: {{loop: 1, size: 2560M}}
  postgresql: {{initdb: [--no-sync], settings: {{fsync: "off", max_wal_size: 64MB}}}}
"""


def write_campaign(folder: Path, *stacks: str, blocks: int = 1, load: str = "copy") -> Path:
    """The smallest campaign that goes through every step."""
    file = folder / "small.yaml"
    shown = ", ".join(f'"{stack}"' for stack in stacks)
    file.write_text(SMALL.format(stacks=shown, blocks=blocks, load=load), encoding="utf-8")
    return file


def run_in_fork(
    argv: list[str], env: Mapping[str, str], output: Path, around: AbstractContextManager[object] | None = None
) -> int:
    """Runs the command line in a child of this process, which spares it the imports; there, inside `around`.

    Returns the exit code, or minus the signal that ended it.
    """
    with lost_loops() if argv[0] == "clean" else nullcontext():
        pid = os.fork()
        if pid:
            _, status = os.waitpid(pid, 0)
            return os.waitstatus_to_exitcode(status)
    code = 70
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
        os.environ.update(env)
        sys.argv = ["pgstrata", *argv]
        from pgstrata.cli.main import main

        try:
            with around or nullcontext():
                main()
            code = 0
        except SystemExit as end:
            code = 0 if end.code is None else end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@contextmanager
def reachable(tmp_path: Path) -> Iterator[Path]:
    """A folder that the server's user can reach: its mounts are below the state directory. Nothing may stay in it.

    Its name is not one of ours: in such a folder undo would remove what it leaves alone elsewhere.
    """
    folder = Path("/var/tmp") / f"test-{os.getpid()}-{tmp_path.name}"
    folder.mkdir(mode=0o755)
    yield folder
    assert leftovers(folder) == []
    subprocess.run(["rm", "--recursive", "--force", str(folder)], check=True, timeout=60)


def environment(place: Path) -> dict[str, str]:
    return {STATE: str(place / "state")}


def run(file: Path, place: Path, *, around: AbstractContextManager[object] | None = None, **env: str) -> int:
    """`pgstrata run` in a child; what it prints goes to `log.txt`."""
    argv = ["run", str(file), "--out", str(place / "out"), "--quiet"]
    return run_in_fork(argv, {**environment(place), **env}, place / "log.txt", around)


def clean(place: Path) -> int:
    return run_in_fork(["clean"], environment(place), place / "log.txt")


def servers_of(place: Path) -> list[str]:
    """Processes that belong to this folder, and files of theirs in /tmp."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            text = environ.read_bytes() + (environ.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if str(place).encode() in text and environ.parent.name != str(os.getpid()):
            found.append(text.decode(errors="replace")[:200])
    return found


def nothing_left(place: Path) -> None:
    assert remains(place) == []


def remains(place: Path) -> list[str]:
    """What a campaign has left on the machine and in its state directory."""
    state, scratch = place / "state", place / "out" / "scratch"
    folders = [folder for folder in (state / "journal", state / "mount", state / "locks", scratch) if folder.exists()]
    inside = [str(path) for folder in folders for path in folder.iterdir()]
    return [*leftovers(place), *servers_of(place), *inside]


def run_directories(file: Path, place: Path) -> list[str]:
    """Folders of sockets, logs and raw output in /tmp, and notes of exit codes."""
    campaign = load_campaign(file)
    token = site_token(f"local:{place / 'out'}")
    trials = block_trials(campaign, 0, [s.name for s in campaign.stacks])
    contexts = [PlanContext(f"{t.id}-{token}", "", 0) for t in trials]
    folders = [d for c in contexts for d in (run_directory(c), outputs_directory(c)) if Path(d).exists()]
    return [*folders, *(str(note) for note in Path(runtime_directory()).glob(f"*{token}*"))]
