"""The pooler in front of a cluster during its runs: started, attested, queried for its counters, ended."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

from pgstrata.errors import TrialError
from pgstrata.host.protocol import CommandFailed
from pgstrata.postgres.pooler import Pooler, Sent
from pgstrata.postgres.server import LOG_TAIL_LINES
from pgstrata.postgres.standby import PRIMARY_PASSFILE, password_of
from pgstrata.record.schema import Moment
from pgstrata.spec.stack import Stack
from pgstrata.spec.workload import Cell
from pgstrata.stack.step import Attested, PlannedCommand, Step
from pgstrata.trial.context import POOLERS, TrialContext, TrialSetup

OUTPUTS = ("pooler.out", "pooler.err")
"""In the folder of a cell, opened by the caller."""
LOOK_S = 0.1
PATIENCE_S = 60.0
STOP_PATIENCE_S = 30.0


def connections_of(stack: Stack) -> int:
    """Connections that a pooler opens to each server in addition to those of the clients."""
    name = stack.topology.pooler if stack.topology is not None else None
    return POOLERS[name].beside if name is not None else 0


def pooler_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """Its files, once there is a password; nothing without a pooler."""
    pooler = setup.pooler
    if pooler is None:
        return ()
    commands = tuple(PlannedCommand.of(command) for command in pooler.plan_configure())
    tells = tuple(f"{name} = {value}" for name, value in pooler.settings.items())
    return (Step("settings of the pooler", commands, act=partial(_configure, pooler=pooler), tells=tells),)


def start_pooler_steps(setup: TrialSetup, cell: Cell) -> tuple[Step, ...]:
    pooler = setup.pooler
    if pooler is None:
        return ()
    act = partial(_start, pooler=pooler, cell=cell)
    return (Step(f"{cell.id}: start the pooler", (PlannedCommand.of(pooler.plan_start()),), act=act),)


def stop_pooler_steps(setup: TrialSetup, cell: Cell) -> tuple[Step, ...]:
    pooler = setup.pooler
    if pooler is None:
        return ()
    act = partial(_stop, pooler=pooler)
    return (Step(f"{cell.id}: stop the pooler", (), act=act, tells=("SIGINT to the pooler",)),)


def _configure(context: TrialContext, *, pooler: Pooler) -> None:
    passfile = f"{context.server.run_directory}/{PRIMARY_PASSFILE}"
    texts = pooler.render_files(password_of(context.host.read_text(passfile, owner=context.site.user)))
    context.host.make_directory(pooler.directory, mode=0o700, owner=context.site.user)
    for _ in texts:
        context.executor.run_next()
    for text in texts:
        context.executor.run_next(stdin=text)


def _start(context: TrialContext, *, pooler: Pooler, cell: Cell) -> None:
    """Returns when it answers."""
    out, err = (f"{context.setup.cell_folder(cell)}/{name}" for name in OUTPUTS)
    process, _ = context.executor.start_next(stdout=out, stderr=err)
    context.pooler = process
    deadline_s = time.monotonic() + PATIENCE_S
    while why := _silent(context, pooler):
        code = process.poll()
        if code is not None or time.monotonic() > deadline_s:
            ended = "does not answer" if code is None else f"ended with exit code {code}"
            tail = "\n".join(context.host.read_text(err).splitlines()[-LOG_TAIL_LINES:])
            raise TrialError(f"{pooler.program} {ended}: {why}; the end of its log:\n{tail}")
        context.host.pause(LOOK_S)


def _silent(context: TrialContext, pooler: Pooler) -> str:
    """Return why the pooler does not answer; empty if it does."""
    try:
        _ask(context, pooler, pooler.states_query)
    except CommandFailed as error:
        return error.message
    return ""


def _ask(context: TrialContext, pooler: Pooler, show: str) -> str:
    with context.host.looking():
        return context.host.run(pooler.ask(show)).stdout


def _stop(context: TrialContext, *, pooler: Pooler) -> None:
    process = context.pooler
    if process is None or process.poll() is not None:
        raise TrialError(f"{pooler.program} ended by itself before the run was over", hint="raw/pooler.err of the cell")
    process.stop(STOP_PATIENCE_S)
    context.pooler = None


def attest_pooler(context: TrialContext, moment: Moment) -> None:
    """Checks that the pooler sees every server up and in its role (as verified by `attest_cluster`)."""
    pooler = context.setup.pooler
    if pooler is None:
        return
    found = pooler.states(_ask(context, pooler, pooler.states_query))
    expected = pooler.expected_states.items()
    rows = (Attested(f"pooler {name}", state, found.get(name, "(not known to it)")) for name, state in expected)
    context.note(moment, rows)


def read_sent(context: TrialContext) -> Mapping[str, Sent]:
    """Statements sent by the pooler to each node since its start; empty without one, or if it does not report them."""
    pooler = context.setup.pooler
    if pooler is None or not pooler.sent_query:
        return {}
    return pooler.sent(_ask(context, pooler, pooler.sent_query))


def sent_between(before: Mapping[str, Sent], after: Mapping[str, Sent]) -> dict[str, Sent]:
    """Differences for the nodes of both. Pure."""
    return {
        name: Sent(now.reads - before[name].reads, now.writes - before[name].writes)
        for name, now in after.items()
        if name in before
    }
