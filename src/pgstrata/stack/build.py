"""Builds a planned stack: step by step, each undo in the journal before its step begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass

from pgstrata.errors import TrialError
from pgstrata.host.protocol import Host
from pgstrata.stack.journal import Journal, Undone
from pgstrata.stack.plan import StackPlan
from pgstrata.stack.safety import DeviceState, held_to_erase, require_blank, require_same
from pgstrata.stack.step import Ref, Step
from pgstrata.stack.tuning.holding import group_of, take_settings
from pgstrata.stack.tuning.overcommit import require_room_to_commit
from pgstrata.stack.tuning.setting import setting_path
from pgstrata.stack.undo import GiveBackSetting, Undo, WipeDevice

Around = Callable[[Step], AbstractContextManager[object]]
"""Wraps each step, to time and show it."""


@dataclass(frozen=True)
class Built:
    """A stack that stands: what its steps found out."""

    bindings: Mapping[str, str]


def build(host: Host, plan: StackPlan, journal: Journal, *, around: Around = lambda step: nullcontext()) -> Built:
    """Runs all steps. On an error everything is undone; that error is raised, with teardown errors as notes to it."""
    bindings: dict[str, str] = {}
    disks: dict[str, str] = {}
    try:
        for step in plan.steps:
            with around(step):
                _require_same_disks(host, step, disks, bindings)
                run_step(host, step, journal, bindings, plan.context.erase)
            disks |= {erased.node.name: erased.id for erased in step.erases}
    except BaseException as error:
        for undone in journal.undo_all():
            if undone.error:
                error.add_note(f"while undoing {undone.undo.kind}: {undone.error}")
        raise
    return Built(bindings)


def _require_same_disks(host: Host, step: Step, disks: Mapping[str, str], bindings: Mapping[str, str]) -> None:
    """What a command names must still be the device that was inspected, which was some seconds ago."""
    arguments = {a.name for c in step.commands for a in c.argv if isinstance(a, Ref)}
    for name in sorted(arguments & disks.keys()):
        require_same(host, disks[name], bindings[name])


def run_step(host: Host, step: Step, journal: Journal, bindings: dict[str, str], erase: tuple[str, ...]) -> None:
    """One step: inspect what it will overwrite, journal its undo, write its settings, run its commands."""
    with ExitStack() as held:
        erased = []
        for device in step.erases:
            node = device.node.resolve(bindings)
            erased.append(held.enter_context(held_to_erase(host, device.id, node, erase)))
            journal.lock_device(node)
        undos = step.undo
        for state, _ in erased:
            undos = tuple(_knowing(undo, state) for undo in undos)
        journal.register(*undos)
        _write_settings(host, step, journal, bindings)
        output = ""
        for planned in step.commands:
            output = host.run(planned.resolve(bindings)).stdout.strip()
        for state, open_device in erased:
            host.zero(open_device.handle)
            require_blank(host, state, open_device)
    if step.binds is not None:
        if not output:
            raise TrialError(f"step {step.name} printed nothing on {host.name}")
        bindings[step.binds] = output


def _knowing(undo: Undo, state: DeviceState) -> Undo:
    """The undo of a wipe with what the device carries now, so that it is told from what we will write."""
    if isinstance(undo, WipeDevice) and undo.id == state.id:
        return undo.model_copy(update={"before": tuple(s.identity for s in state.signatures)})
    return undo


def _write_settings(host: Host, step: Step, journal: Journal, bindings: Mapping[str, str]) -> None:
    """Writes a step's settings in order.

    Their undos are journaled in the reverse one, so that they are restored in the order they are written in: writing
    one file of a queue resets others (a scheduler nr_requests, rotational read_ahead_kb), which must come later.
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


def failures(undone: tuple[Undone, ...]) -> tuple[str, ...]:
    """What could not be undone, a line each."""
    return tuple(f"{u.undo.kind}: {u.error}" for u in undone if u.error)
