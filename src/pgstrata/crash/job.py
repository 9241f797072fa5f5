"""What a worker is told: the disks of a state, how they are mounted, and how the server recovers on them. Pure.

Workers are functions of their jobs: of the log, the states that are their share, and these commands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgstrata.crash.faults import filler
from pgstrata.crash.ledger import AMCHECK, BEGIN, END, LAST_ANSWER, render_check
from pgstrata.errors import parser_of
from pgstrata.host.protocol import Command
from pgstrata.stack.block.media import log_path, recorded_disk, recorded_folder
from pgstrata.stack.kind import FILESYSTEMS, Below, plan_filesystem
from pgstrata.stack.plan import VolumePlan
from pgstrata.stack.step import PlannedCommand, planned
from pgstrata.trial.context import TrialSetup

RECOVERY_TIMEOUT_S = 300.0
KILLED_AT_THE_END = ("-c", "dynamic_shared_memory_type=sysv")
"""Shared memory of this kind goes with the worker's namespace."""
MOUNT_AND_BACK_S = 60.0
"""What the parts of a state besides recovery may take."""

_WORKER = Path(__file__).with_name("state_worker.py")


@dataclass(frozen=True)
class CrashPlaces:
    """Where on the host the parts of a crash trial lie."""

    work: str

    @classmethod
    def of(cls, setup: TrialSetup) -> CrashPlaces:
        return cls(setup.plan.context.work_directory)

    @property
    def recorded(self) -> str:
        """The folder of the daemon with the recorded disks."""
        return recorded_folder(self.work)

    @property
    def log(self) -> str:
        return log_path(self.recorded)

    def states(self, worker: int) -> str:
        """The folder of a worker's daemon."""
        return f"{self.work}/states{worker}.media"

    def recovery(self, of: str) -> str:
        """The folder of the daemon that records the recovery of a state."""
        return f"{self.work}/recovery-{of}.media"


@dataclass(frozen=True)
class StateDisk:
    """A disk of the recorded stack: its name in the log, and what its node is bound to."""

    name: str
    node: str


def recorded_disks(volumes: Sequence[VolumePlan]) -> tuple[StateDisk, ...]:
    """Every disk of every volume, in their order."""
    return tuple(
        StateDisk(recorded_disk(volume.role, number), node.name)
        for volume in volumes
        for number, node in enumerate(volume.media)
        if not isinstance(node, str)
    )


@dataclass(frozen=True)
class StateMount:
    """The commands that mount a volume of a state where the recorded one was mounted. Where they fail, `mend` is run
    and they are tried again."""

    commands: tuple[PlannedCommand, ...]
    mount_point: str
    mend: tuple[PlannedCommand, ...]


def plan_mounts(setup: TrialSetup) -> tuple[StateMount, ...]:
    """As the stack mounts its volumes, in the same order and at the same places, which are there already."""
    return tuple(_plan_mount(setup, volume) for volume in setup.plan.volumes)


def _plan_mount(setup: TrialSetup, volume: VolumePlan) -> StateMount:
    fs = volume.volume.fs
    made = plan_filesystem(fs, Below(nodes=volume.nodes), setup.plan.context.place(volume.role))
    mount = made.steps[-1].commands[-1]
    options = FILESYSTEMS[fs.kind].copy_options
    command = planned(mount.argv, [word for option in options for word in ("--options", option)])
    return StateMount((command,), made.mount_point, FILESYSTEMS[fs.kind].plan_mend(volume.nodes))


def plan_forget(setup: TrialSetup) -> tuple[PlannedCommand, ...]:
    """What makes the kernel forget a state's disks."""
    volumes = setup.plan.volumes
    return tuple(c for volume in volumes for c in FILESYSTEMS[volume.volume.fs.kind].plan_forget(volume.nodes))


def plan_recovery(setup: TrialSetup, *, recorded: bool = False) -> Command:
    """The server by itself, which recovers and then reads its statements from standard input. It need not wait for the
    disk, unless what it does is `recorded`."""
    server = setup.server
    check = render_check(amcheck=has_amcheck(setup), major=server.installation.major)
    postgres = server.installation.program("postgres")
    data = setup.plan.data_directory
    hasty = () if recorded else ("-c", "fsync=off")
    return Command(
        (postgres, "--single", "-D", data, *hasty, *KILLED_AT_THE_END, "postgres"),
        RECOVERY_TIMEOUT_S,
        check,
        user=server.user,
    )


def has_amcheck(setup: TrialSetup) -> bool:
    return AMCHECK in setup.server.installation.contrib


def fitting_workers(setup: TrialSetup, asked: int | None) -> int:
    """As many as were asked for, else one for each processor; one where the kernel cannot have two copies of a
    filesystem mounted at once."""
    facts = setup.site.facts.checked
    wanted = asked or int(facts.get("CPUs", "1"))
    volumes = setup.plan.volumes
    exclusive = any(len(v.nodes) > 1 or not FILESYSTEMS[v.volume.fs.kind].copies_beside for v in volumes)
    return 1 if exclusive else wanted


def shares(states: Sequence[Any], workers: int) -> list[list[Any]]:
    """Each worker's states, in their order; the log is read once by each."""
    return [list(states[worker::workers]) for worker in range(workers)]


@dataclass(frozen=True)
class Portion:
    """States of an event log that one worker looks at: `states` are lines of `strata-disk states`, `daemon` is the
    folder of the daemon that has their disks. `seconds` ends it early, between two states."""

    daemon: str
    log: str
    states: Sequence[str]
    seconds: float | None = None
    recorded: bool = False
    """Whether the daemon logs what mounting and recovering do, so that power can be lost again meanwhile."""
    look: Command | None = None
    """Run in each state where it is mounted, instead of the server that recovers it."""


def render_job(setup: TrialSetup, portion: Portion) -> str:
    """The job of one worker."""
    recovery = portion.look or plan_recovery(setup, recorded=portion.recorded)
    job = {
        "daemon": portion.daemon,
        "log": portion.log,
        "disks": [{"of": disk.name, "node": disk.node} for disk in recorded_disks(setup.plan.volumes)],
        "marks": [BEGIN, END],
        "mounts": [
            {
                "commands": [_shown(command) for command in mount.commands],
                "mount_point": mount.mount_point,
                "mend": [_shown(command) for command in mount.mend],
            }
            for mount in plan_mounts(setup)
        ],
        "forget": [_shown(command) for command in plan_forget(setup)],
        "server": {
            "user": recovery.user,
            "argv": recovery.argv,
            "data": setup.plan.data_directory,
            "remove": [f"{setup.plan.data_directory}/postmaster.pid", filler(setup.plan)],
            "stdin": recovery.stdin,
            "until": LAST_ANSWER,
            "timeout_s": recovery.timeout_s,
        },
        "seconds": portion.seconds,
        "states": [json.loads(state) for state in portion.states],
    }
    return json.dumps(job)


def _shown(command: PlannedCommand) -> list[str]:
    return [word if isinstance(word, str) else word.shown for word in command.argv]


def told_of_states(setup: TrialSetup) -> tuple[str, ...]:
    """What a worker does in each state, for people."""
    disks = ", ".join(f"<{disk.node}>" for disk in recorded_disks(setup.plan.volumes))
    recovery = plan_recovery(setup)
    return (
        f"in each state: attach {disks} with what the power cut left, in a mount namespace of its own",
        *(command.shown for mount in plan_mounts(setup) for command in mount.commands),
        *(f"where that fails: {command.shown}" for mount in plan_mounts(setup) for command in mount.mend),
        f"as {recovery.user}: remove postmaster.pid and what filled a disk; {recovery.text}",
        *(f"umount {mount.mount_point}" for mount in reversed(plan_mounts(setup))),
        *(command.shown for command in plan_forget(setup)),
    )


def plan_worker(job: str, states: int, marker: tuple[tuple[str, str], ...]) -> PlannedCommand:
    """The worker, with the job that lies in a file."""
    command = Command(
        ("python3", "-I", "-", job),
        timeout_s=states * (RECOVERY_TIMEOUT_S + MOUNT_AND_BACK_S),
        stdin=_WORKER.read_text(encoding="utf-8"),
        env=marker,
        cwd="/",
    )
    return PlannedCommand.of(command)


@dataclass(frozen=True)
class Seen:
    """What a worker tells of one state. `problem` is what kept the worker itself from looking."""

    mounted: int
    mount_error: str
    server: int | None
    stdout: str
    stderr: str
    problem: str
    mended: str = ""
    """The commands without which it could not be mounted; `mounted` and `mount_error` are as it was without them."""
    parts_s: Mapping[str, float] = field(default_factory=dict)
    memory_bytes: int | None = None


NOT_LOOKED_AT = "the worker ended before it"


@parser_of("the worker of states")
def parse_seen(text: str) -> tuple[Seen, ...]:
    """What a worker has told so far; a last line without its end is left out."""
    lines = text.split("\n")[:-1]
    return tuple(Seen(**json.loads(line)) for line in lines)
