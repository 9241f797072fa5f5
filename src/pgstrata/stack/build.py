"""Builds a planned stack step by step; each undo is journaled before its step starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from pgstrata.errors import TrialError
from pgstrata.host.protocol import CommandFailed, Host, OpenDevice
from pgstrata.stack.journal import Journal
from pgstrata.stack.plan import StackPlan
from pgstrata.stack.safety import DeviceState, held_to_erase, require_same, wipe
from pgstrata.stack.step import Attested, Erased, Ref, Step
from pgstrata.stack.tuning.setting import group_of, require_room_to_commit, setting_path, take_settings
from pgstrata.stack.undo import GiveBackSetting, Undo, WipeDevice
from pgstrata.stack.undoing import run_while_busy


@dataclass(frozen=True)
class Built:
    """A built stack and the values bound by its steps."""

    bindings: Mapping[str, str]


def build(host: Host, plan: StackPlan, journal: Journal) -> Built:
    """Run all steps. On an error everything is undone, and the error is raised with teardown errors as notes."""
    runner = StepRunner(host, journal, plan.context.erase)
    try:
        for step in plan.steps:
            runner.run(step)
    except BaseException as error:
        for undone in journal.undo_all():
            if undone.error:
                error.add_note(f"while undoing {undone.undo.kind}: {undone.error}")
        raise
    return Built(runner.bindings)


@dataclass
class StepRunner:
    """Runs steps on a host; journals each undo before its step starts."""

    host: Host
    journal: Journal
    erase: tuple[str, ...] = ()
    """Ids of devices that may contain data."""
    bindings: dict[str, str] = field(default_factory=dict)
    """Values bound by the steps."""
    at: str = ""
    """Name of the host in a cluster; empty for the trial's own."""
    elsewhere: Mapping[str, StepRunner] = field(default_factory=dict)
    """Step runners of other hosts, by host name; they share `bindings`."""
    _disks: dict[str, str] = field(default_factory=dict)
    """Ids of inspected real devices, by binding name."""

    def run(self, step: Step, do: Callable[[], None] | None = None) -> None:
        """Run one step: check its preconditions and what it overwrites, journal its undo, write its settings, run its
        commands (or `do`, which runs them), and wait for its conditions. A step of another host runs there."""
        if step.host != self.at:
            self.elsewhere[step.host].run(step, do)
            return
        act = step.act
        if do is None and act is not None:
            do = partial(act, self)
        with ExitStack() as held:
            with self.host.looking():
                for look in step.requires:
                    look.require(self.host, self.bindings)
                self._require_same_disks(step)
                erased = [self._hold(erased, held) for erased in step.erases]
                undos = tuple(u for u in step.undo if step.undoes is None or step.undoes(self.host, u))
            for state, _ in erased:
                undos = tuple(_knowing(undo, state) for undo in undos)
            self.journal.register(*undos)
            with self.host.looking():
                _write_settings(self.host, step, self.journal, self.bindings)
            if do is not None:
                do()
            else:
                self._run_commands(step)
            with self.host.looking():
                for state, open_device in erased:
                    wipe(self.host, state, open_device, step.name)
                for look in step.awaits:
                    look.require(self.host, self.bindings)
        self._disks |= {erased.node.name: erased.id for erased in step.erases}

    def _run_commands(self, step: Step) -> None:
        output = ""
        for command in step.commands:
            host = self.host if command.host == self.at else self.elsewhere[command.host].host
            ended = run_while_busy(host, command.resolve(self.bindings))
            if ended.exit_code != 0:
                raise CommandFailed(host.name, ended)
            output = ended.stdout.strip()
        if step.binds is not None:
            if not output:
                raise TrialError(f"step {step.name} printed nothing on {self.host.name}")
            self.bindings[step.binds] = output

    def _hold(self, erased: Erased, held: ExitStack) -> tuple[DeviceState, OpenDevice]:
        node = erased.node.resolve(self.bindings)
        state = held.enter_context(held_to_erase(self.host, erased.id, node, self.erase))
        self.journal.lock_device(node)
        return state

    def _require_same_disks(self, step: Step) -> None:
        """Require that the command's devices are still those inspected some seconds earlier."""
        arguments = {a.name for c in step.commands for a in c.argv if isinstance(a, Ref)}
        for name in sorted(arguments & self._disks.keys()):
            require_same(self.host, self._disks[name], self.bindings[name])


def _knowing(undo: Undo, state: DeviceState) -> Undo:
    """Add the device's present content to a wipe's undo, to distinguish it from what we will write."""
    if isinstance(undo, WipeDevice) and undo.id == state.id:
        return undo.model_copy(update={"before": tuple(s.identity for s in state.signatures)})
    return undo


def _write_settings(host: Host, step: Step, journal: Journal, bindings: Mapping[str, str]) -> None:
    """Write a step's settings in order.

    Their undos are journaled in reverse, so that settings are restored in the order they are written. Writing one file
    of a queue resets others (a scheduler nr_requests, rotational read_ahead_kb), which must come later.
    """
    if not step.settings:
        return
    trial = journal.trial_id
    try:
        wanted = [(setting_path(host, setting.path, bindings), setting.value) for setting in step.settings]
        groups = dict.fromkeys(group_of(path) for path, _ in reversed(wanted))
        journal.register(*(GiveBackSetting(trial=trial, group=group) for group in groups))
        take_settings(host, trial, wanted)
        for path, value in wanted:
            require_room_to_commit(host, path, value)
            host.write_text(path, value)
    except OSError as error:
        raise TrialError(f"{step.name} could not be set on {host.name}: {error}") from error


def attest(
    host: Host, plan: StackPlan, built: Built, elsewhere: Mapping[str, Host] | None = None
) -> tuple[Attested, ...]:
    """Return every checked property of the stack, whether it holds or not; `elsewhere` are the other hosts of its
    nodes."""
    hosts = {"": host, **(elsewhere or {})}
    checks = [("", check) for check in plan.checks]
    checks += [(name, check) for name, of_host in plan.far_checks.items() for check in of_host]
    return tuple(row for name, check in checks for row in check.attest(hosts[name], built.bindings))
