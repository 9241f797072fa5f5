"""The units that a program is made of: steps whose commands may refer to what earlier steps found out.

Most of a plan is known before anything runs; the few values that are not (which /dev/loopN the kernel gave) are
`Ref`s, bound by the step that finds them out. So a plan can be shown in full, compared with golden cases, and
run by one small loop.

A volume that a power cut left is a row of `Stage`s, from the bottom up: volume group or array, pool or filesystem,
export. It is brought up as the machine would do it, looked at, and taken down with nothing undone. A stage is told the
devices that it may touch, and takes no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pgstrata.errors import TrialError
from pgstrata.host.protocol import DEFAULT_TIMEOUT_S, Command, Host, command
from pgstrata.stack.undo import Undo


@dataclass(frozen=True)
class Ref:
    """An argument that is known only at build time: `before` + value of `name` + `after`.

    With `base`, only the last part of the value's path (the kernel's name of a device).
    """

    name: str
    before: str = ""
    after: str = ""
    base: bool = False

    def resolve(self, bindings: Mapping[str, str]) -> str:
        value = bindings[self.name]
        return f"{self.before}{value.rsplit('/', 1)[-1] if self.base else value}{self.after}"

    @property
    def shown(self) -> str:
        """For people, before it is known: `<data.0>`."""
        return f"{self.before}<{self.name}>{self.after}"


Argument = str | Ref


@dataclass(frozen=True)
class PlannedCommand:
    """A command with unresolved arguments."""

    argv: tuple[Argument, ...]
    timeout_s: float = DEFAULT_TIMEOUT_S
    stdin: str = ""
    user: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    cwd: str | None = None
    host: str = ""
    """Host that it runs on, of a cluster on several hosts; empty for the trial's own."""

    @classmethod
    def of(cls, command: Command, host: str = "") -> PlannedCommand:
        """A command all of which is known."""
        return cls(command.argv, command.timeout_s, command.stdin, command.user, command.env, command.cwd, host)

    def resolve(self, bindings: Mapping[str, str]) -> Command:
        argv = tuple(a if isinstance(a, str) else a.resolve(bindings) for a in self.argv)
        return Command(argv, self.timeout_s, self.stdin, self.user, self.env, self.cwd)

    @property
    def shown(self) -> str:
        return Command(tuple(a if isinstance(a, str) else a.shown for a in self.argv)).text


@dataclass(frozen=True)
class Setting:
    """A sysctl or sysfs file and the value it is to hold; build journals the present value before writing."""

    path: Argument
    value: str

    @property
    def shown(self) -> str:
        path = self.path if isinstance(self.path, str) else self.path.shown
        return f"write {self.value!r} to {path}"


@dataclass(frozen=True)
class Erased:
    """A real device that a step is the first to write to: its stable id, and the node that was found for it."""

    id: str
    node: Ref


class Look(Protocol):
    """Something that a step looks at on the host, and changes nothing."""

    @property
    def told(self) -> str:
        """Description of what it does, for people."""
        ...

    def require(self, host: Host, bindings: Mapping[str, str]) -> None:
        """TrialError when it is not as it must be; may wait until it is."""
        ...


class OnHost(Protocol):
    """Part of a program's context that the steps of a stack need."""

    @property
    def host(self) -> Host: ...


Act = Callable[[Any], None]
"""Action of a step besides its commands, or between them. It is given the context of its program (of a trial:
`trial.context.TrialContext`) and runs the step's commands, each of them and in their order."""


@dataclass(frozen=True)
class Step:
    """One thing to do. `undo` is journaled before the commands run and tolerates half-done work; of it only what
    `undoes` says is needed, as the host is before the step. `requires` is looked at before anything is journaled,
    `awaits` when the commands are done.

    `binds` names the value that the last command prints (stripped standard output). `host_wide` marks a change
    that others on the host notice, which a plan points out. `erases` names the real devices that the step is the
    first to write to: they are inspected again right before it, held meanwhile, and zeroed after its commands.
    `host` is where its undo is journaled and its looks are made, as with commands.
    `settings` are files of the kernel to write, before the commands. With `act` that function runs the commands,
    else they are run one after the other. `tells` says what is done without a command (files written, sent, read),
    `expected_s` how long it takes where that is known beforehand, `progress` the file on the host that its program
    writes its progress to. Before a step that `begins_turn`, trials that stand side by side go on to the same turn.
    """

    name: str
    commands: tuple[PlannedCommand, ...]
    undo: tuple[Undo, ...] = ()
    binds: str | None = None
    host_wide: bool = False
    writes_bytes: int = 0
    erases: tuple[Erased, ...] = ()
    settings: tuple[Setting, ...] = ()
    act: Act | None = None
    tells: tuple[str, ...] = ()
    expected_s: float | None = None
    progress: str | None = None
    requires: tuple[Look, ...] = ()
    awaits: tuple[Look, ...] = ()
    undoes: Callable[[Host, Undo], bool] | None = None
    begins_turn: bool = False
    host: str = ""

    def on(self, host: str) -> Step:
        """The same step on another host; its name says so. Empty leaves it where it is."""
        if not host:
            return self
        commands = tuple(replace(command, host=host) for command in self.commands)
        return replace(self, name=f"{self.name} on {host}", commands=commands, host=host)

    @property
    def shown_commands(self) -> tuple[str, ...]:
        """Every command, for people."""
        return tuple(command.shown for command in self.commands)

    @property
    def shown_besides(self) -> tuple[str, ...]:
        """Actions without a command, for people."""
        required, awaited = ([look.told for look in looks] for looks in (self.requires, self.awaits))
        zeroed = (f"write zeroes to both ends and samples of {erased.node.shown}" for erased in self.erases)
        return (*required, *(s.shown for s in self.settings), *zeroed, *self.tells, *awaited)


def planned(*argv: Argument | Sequence[Argument], timeout_s: float = DEFAULT_TIMEOUT_S) -> PlannedCommand:
    """A planned command from arguments and lists of arguments (option and value stay together on a line)."""
    flat: list[Argument] = []
    for part in argv:
        flat += [part] if isinstance(part, str | Ref) else list(part)
    return PlannedCommand(tuple(flat), timeout_s=timeout_s)


def with_ref(command: Command, position: int, ref: Ref) -> PlannedCommand:
    """A command one of whose arguments is known only when it is run."""
    argv: list[Argument] = list(command.argv)
    argv[position] = ref
    return replace(PlannedCommand.of(command), argv=tuple(argv))


def resolve(argument: Argument, bindings: Mapping[str, str]) -> str:
    """The text of an argument once its value is known; KeyError before."""
    return argument if isinstance(argument, str) else argument.resolve(bindings)


@dataclass(frozen=True)
class Attested:
    """One property of a built stack: the configured and the actual value."""

    what: str
    expected: str
    actual: str
    alike: bool = False
    """True if both mean the same, however they are written."""

    @property
    def holds(self) -> bool:
        return self.alike or self.expected == self.actual


def told(what: str, actual: str) -> Attested:
    """Record the actual value of a property without configuration: a default of the tool or the kernel."""
    return Attested(what, actual, actual)


def compare_or_record(what: str, asked: object | None, actual: object) -> Attested:
    """Compare a property with its configuration; only record it when `asked` is None."""
    return told(what, str(actual)) if asked is None else Attested(what, str(asked), str(actual))


@dataclass(frozen=True)
class FreeName:
    """Nothing has that name yet: `ask` fails, which succeeds when something has."""

    what: str
    name: str
    ask: tuple[str, ...]

    @property
    def told(self) -> str:
        return f"refuse when there is a {self.what} {self.name} already"

    def require(self, host: Host, bindings: Mapping[str, str]) -> None:
        if host.run(command(*self.ask), check=False).exit_code == 0:
            raise _taken(host, self.what, self.name)


@dataclass(frozen=True)
class FreePath:
    """Requires that there is nothing called `path`, not even a link that leads nowhere."""

    path: str
    what: str = "folder"

    @property
    def told(self) -> str:
        return f"refuse when {self.path} is there already"

    def require(self, host: Host, bindings: Mapping[str, str]) -> None:
        if host.status(self.path, follow=False) is not None:
            raise _taken(host, self.what, self.path)


def _taken(host: Host, what: str, name: str) -> TrialError:
    """The undo of the step would remove what somebody else has under that name."""
    return TrialError(f"{what} {name} is there already on {host.name}, and this trial did not make it")


HARMLESS = "nosuid,nodev,noexec"
"""Nothing that lies on what is mounted runs, gives rights or is a device: a state may come from somebody else."""


@dataclass(frozen=True)
class Stage:
    """One part of a volume that stands on devices which hold it already."""

    name: str
    up: tuple[PlannedCommand, ...]
    down: tuple[PlannedCommand, ...] = ()
    """Once it is unmounted: has the kernel let go of the devices, and forget what it knows by what is on them."""
    frees: tuple[PlannedCommand, ...] = ()
    """Commands if what is below stays busy after `down`: have the kernel let go of it once more, two seconds later."""
    mend: tuple[PlannedCommand, ...] = ()
    """Commands that are run if it does not come up, by a start of the machine or by whoever is called then."""
    examine: tuple[PlannedCommand, ...] = ()
    """Once it is unmounted: tells with another exit code than 0 that the filesystem is damaged, and repairs nothing."""
    write_back: tuple[PlannedCommand, ...] = ()
    """Commands that write what syncing the volume's filesystem may leave in memory."""
    binds: str | None = None
    """Names the value that the last command of `up` prints: the node that the stages above stand on."""
    mount_point: str | None = None
    """Place where `up` mounts something that is unmounted before `down`."""
    alone: bool = False
    """True if the kernel cannot have two copies of it up at once."""
    in_sight: bool = False
    """True if it must be mounted where every process sees it."""
    undo: tuple[Undo, ...] = ()
    """Takes back what outlives the process that brought it up, apart from mounts."""
    readies: tuple[Step, ...] = ()
    """Concern the whole host and come first, once."""


def mount_stage(
    mount: Step,
    mount_point: str,
    *,
    options: tuple[str, ...] = (),
    first: tuple[PlannedCommand, ...] = (),
    mend: tuple[PlannedCommand, ...] = (),
    examine: tuple[PlannedCommand, ...] = (),
    down: tuple[PlannedCommand, ...] = (),
    alone: bool = False,
) -> Stage:
    """Plan to run `first`, then the mount that is the last command of a step, with further options."""
    last = mount.commands[-1]
    command = planned(last.argv, [word for option in (*options, HARMLESS) for word in ("--options", option)])
    return Stage(mount.name, (*first, command), down, mend=mend, examine=examine, mount_point=mount_point, alone=alone)
