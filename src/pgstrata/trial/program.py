"""A trial as a program: every step in order, made beforehand from what is known of the host and the trial. Pure.

`pgstrata plan` prints this program, `trial.runner` has it executed, and `trial.executor` refuses whatever is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from pgstrata.host.protocol import Host
from pgstrata.record.schema import PlannedRecord, PlannedStep, SpaceRecord
from pgstrata.spec.campaign import Trial
from pgstrata.spec.stack import Kernel, Stack
from pgstrata.spec.workload import Cell
from pgstrata.stack.kind import FILESYSTEMS, Check
from pgstrata.stack.plan import StackPlan, plan_stack
from pgstrata.stack.step import FreePath, PlannedCommand, Step, planned
from pgstrata.stack.tuning.kernel import plan_kernel
from pgstrata.stack.undo import RemovePath, RemoveServerMemory
from pgstrata.trial.context import TrialContext, TrialSetup, trial_directory
from pgstrata.trial.steps.cluster import join_steps
from pgstrata.trial.steps.facts import record_facts
from pgstrata.trial.steps.load import Present, check_golden_steps, golden_kept, load_steps
from pgstrata.trial.steps.measure import cell_steps
from pgstrata.trial.steps.pooler import pooler_steps
from pgstrata.trial.steps.precondition import precondition_steps
from pgstrata.trial.survey.host_survey import Site

SYNC_TIMEOUT_S = 600.0


def space_step(setup: TrialSetup, moment: str, cell: Cell | None = None) -> Step:
    """Physical bytes of every volume after a sync. The server is stopped: all it has is in its files.

    The database's logical size was asked while it ran: before the first cell, and after `cell`.
    """
    syncs = tuple(_sync(setup.plan, host) for host in setup.plan.hosts)
    return Step(f"space {moment}", syncs, act=partial(_measure_space, moment=moment, cell=cell))


def _sync(plan: StackPlan, host: str) -> PlannedCommand:
    places = [v.mount_point for v in plan.volumes if v.host == host]
    return replace(planned("sync", "--file-system", places, timeout_s=SYNC_TIMEOUT_S), host=host)


def _measure_space(context: TrialContext, *, moment: str, cell: Cell | None) -> None:
    by_role: dict[str, int] = {}
    for name in context.plan.hosts:
        context.executor.run_next()
        host = context.executor.host_of(name)
        with host.looking():
            by_role |= physical_bytes(host, context.plan, name)
    logical = context.cell(cell).database_bytes_after if cell is not None else None
    physical = sum(by_role.values())
    if cell is not None and context.spaces[-1].database_bytes is None:
        before = context.cell(cell).database_bytes_before
        context.spaces[-1] = context.spaces[-1].model_copy(update={"database_bytes": before})
    found = SpaceRecord(moment=moment, physical_bytes=physical, database_bytes=logical, by_role=by_role)
    context.spaces.append(found)
    context.recorder.write_list("space.json", context.spaces)


def physical_bytes(host: Host, plan: StackPlan, at: str = "") -> dict[str, int]:
    """Return the bytes that every volume on that host takes on its medium, by role."""
    own = (v for v in plan.volumes if v.host == at)
    return {v.role: FILESYSTEMS[v.volume.fs.kind].used_bytes(host, v.mount_point, v.directory) for v in own}


@dataclass(frozen=True)
class Program:
    """One trial. `before` comes before anything is built, `build` makes the stack (nothing where it still stands),
    `prepare` loads the data and `measure` runs the cells; what they leave on the host is undone at the end."""

    setup: TrialSetup
    stack_plan: StackPlan
    """Plan of the stack that `build` creates."""
    before: tuple[Step, ...]
    build: tuple[Step, ...]
    prepare: tuple[Step, ...]
    measure: tuple[Step, ...]
    keeps: frozenset[str]
    """Golden directories that exist for later trials if it ends well."""

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self.before, *self.build, *self.prepare, *self.measure)

    @property
    def planned(self) -> PlannedRecord:
        """The program for people and for the record."""
        trial = self.setup.trial
        steps = tuple(
            PlannedStep(
                name=s.name,
                commands=s.shown_commands,
                hosts=tuple(c.host for c in s.commands) if any(c.host for c in s.commands) else (),
                tells=s.shown_besides,
                host_wide=s.host_wide,
            )
            for s in self.steps
        )
        undos = tuple(
            PlannedStep(name=undo_name(host), commands=(), tells=tuple(self._undo_lines(host)))
            for host in reversed(self.setup.hosts)
        )
        stack = self.setup.site.campaign.stack(trial.stack)
        given = self.setup.site.given_conf.get(stack.name)
        left_out = dict(given.left_out) if given else {}
        return PlannedRecord(trial=trial, stack=stack, steps=(*steps, *undos), left_out=left_out)

    def _undo_lines(self, host: str) -> Iterator[str]:
        for undo in reversed([undo for step in self.steps if step.host == host for undo in step.undo]):
            named = {k: v for k, v in undo.model_dump().items() if k not in ("kind", "before")}
            texts = (_numbered(key, value) for key, value in named.items())
            yield f"{undo.kind.replace('_', ' ')}: {', '.join(filter(None, texts))}"


def undo_name(host: str) -> str:
    """Name of the step that undoes the changes on one of the hosts."""
    return f"undo on {host}" if host else "undo"


def _numbered(key: str, value: object) -> str:
    """Return what an undo names under that key; a number alone would say nothing."""
    numbers = value if isinstance(value, tuple) else (value,)
    text = _told(value)
    return f"{key.replace('_', ' ')} {text}" if any(isinstance(n, int) for n in numbers) else text


def _told(value: object) -> str:
    """Return what an undo names, as a reader would write it; what it leaves open is left out."""
    match value:
        case None | () | "":
            return ""
        case tuple() | list():
            return ", ".join(filter(None, map(_told, value)))
        case dict():
            return ", ".join(f"{name} {text}" for name, text in ((k, _told(v)) for k, v in value.items()) if text)
    return str(value)


def make_program(site: Site, trial: Trial, present: Present) -> Program:
    """The program of a performance trial."""
    plan = present.kept or plan_built(site, trial)
    tuning_steps, tuning_checks = _plan_tuning(site, trial)
    setup = TrialSetup.of(site, trial, replace(plan, checks=(*plan.checks, *tuning_checks)))
    cells = (
        step for cell in trial.cells for step in (*cell_steps(setup, cell), space_step(setup, f"after {cell.id}", cell))
    )
    return Program(
        setup=setup,
        stack_plan=plan,
        before=check_golden_steps(setup, present),
        build=() if present.kept else (*folder_steps(setup), *plan.steps, *memory_steps(setup)),
        prepare=(
            *tuning_steps,
            *standing_steps(setup),
            *precondition_steps(setup, present),
            *load_steps(setup, present),
            *join_steps(setup),
            *pooler_steps(setup),
            space_step(setup, "after load"),
        ),
        measure=tuple(cells),
        keeps=golden_kept(setup, present),
    )


def plan_built(site: Site, trial: Trial) -> StackPlan:
    """The plan of the stack that a trial builds.

    One that is kept from block to block has a name of its own, and what belongs to the whole host (sysctl, huge pages)
    is no part of it: that is set for the length of a trial alone, because other stacks run in between.
    """
    stack = site.campaign.stack(trial.stack)
    if trial.load == "keep":
        return plan_stack(without_host_wide(stack), site.context_named(f"keep-{trial.id}"))
    return plan_stack(stack, site.context(trial))


def without_host_wide(stack: Stack) -> Stack:
    """The stack with only those kernel settings that belong to its own devices."""
    return stack.model_copy(update={"kernel": Kernel(queue=stack.kernel.queue)})


def _plan_tuning(site: Site, trial: Trial) -> tuple[tuple[Step, ...], tuple[Check, ...]]:
    """Plan what concerns the whole host, for a stack that is kept; otherwise it is part of the stack."""
    if trial.load != "keep":
        return (), ()
    kernel = site.campaign.stack(trial.stack).kernel
    return plan_kernel(kernel.model_copy(update={"queue": Kernel().queue}), ())


def folder_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """Creates the folder beside the stack: it belongs to the caller, and only the server's user may pass through it.

    An existing folder was not made by this trial, so its removal is not journaled. If another program creates it first,
    the undo leaves it alone because of its owner.
    """
    return tuple(_folder_step(setup, host) for host in setup.hosts)


def _folder_step(setup: TrialSetup, host: str) -> Step:
    folder = trial_directory(setup.plan.context.at(host))
    make = Step(
        "folder of socket and outputs",
        (),
        undo=(RemovePath(path=folder, uid=setup.site.sites[host].uid),),
        act=partial(_make_folder, host=host),
        tells=(f"make {folder} and {setup.outputs_on(host)}",),
        requires=(FreePath(folder),),
    )
    return make.on(host)


def _make_folder(context: TrialContext, *, host: str) -> None:
    site = context.site.sites[host]
    for folder in (trial_directory(context.plan.context.at(host)), context.setup.outputs_on(host)):
        site.host.make_directory(folder, mode=0o710, group=site.user, new=True)
    if host and host == context.setup.client:
        site.host.make_directory(context.setup.client_directory, mode=0o700, owner=site.user, new=True)


def memory_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """Journal the shared memory that servers leave behind if they are killed. The journal is the stack's: processes of
    a stack that is kept are ended by its own journal, and memory can be removed only after that."""

    def memory(host: str) -> tuple[RemoveServerMemory, ...]:
        here = (server for server in setup.servers.values() if server.at == host)
        return tuple(RemoveServerMemory(user=s.user, data_directory=s.layout.data_directory) for s in here)

    return tuple(Step("shared memory of the servers", (), undo=memory(host)).on(host) for host in setup.plan.hosts)


def standing_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """Record the host's facts and compare the stack with the plan."""
    return (Step("facts of the host", (), act=record_facts), Step("attest the stack", (), act=_attest_built))


def _attest_built(context: TrialContext) -> None:
    context.attest_stack("built")
