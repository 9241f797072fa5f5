"""Commits released by each standby with their delay, and stale reads there: after a measured run, under its load."""

from __future__ import annotations

from functools import partial

from pgstrata.errors import PreflightError, TrialError
from pgstrata.postgres.server import SUPERUSER
from pgstrata.postgres.standby import MARK_TABLE, PRIMARY_PASSFILE
from pgstrata.probe.acknowledged import AWAITED, Position, let_go, parse_reads, parse_watched, plan_reader, plan_watcher
from pgstrata.spec.stack import PRIMARY, Stack
from pgstrata.spec.workload import Cell
from pgstrata.stack.network import DRIVER, INTERFACE
from pgstrata.stack.step import PlannedCommand, Step
from pgstrata.trial.context import TrialContext, TrialSetup
from pgstrata.trial.steps.cluster import run_beside_load

WATCHED_OUTPUTS = ("acknowledged_load.out", "acknowledged_load.err")
"""Output of the concurrent load, in the folder of a cell."""
REPLIES = "replies.jsonl"
LONGER_S = 1.0
"""Seconds that the load runs longer than the start of watching or reading."""
_ON = ("true", "yes", "1")
"""Other words of PostgreSQL's for synchronous_commit=on."""


def watched_s(stack: Stack) -> float:
    """Seconds of watching replies; 0 unless configured."""
    return 0.0 if stack.topology is None else stack.topology.acknowledgements


def acknowledgement_steps(setup: TrialSetup, cell: Cell, load: PlannedCommand) -> tuple[Step, ...]:
    """`load` is the concurrent load; empty unless configured."""
    cluster, network, seconds = setup.stack.topology, setup.plan.network, watched_s(setup.stack)
    if cluster is None or network is None or cluster.quorum is None or not seconds:
        return ()
    server, awaited = setup.server, _awaited(setup)
    watcher = plan_watcher(
        server.installation.program("pg_waldump"),
        server.wal_directory,
        server.port,
        INTERFACE,
        {name: network.link(name).address for name in cluster.followers(PRIMARY)},
        seconds=seconds,
        os_user=setup.site.user,
        marker=server.marker,
    )
    commands = (load, PlannedCommand.of(network.link(PRIMARY).enter(watcher)))
    act = partial(_watch, cell=cell, awaited=awaited)
    return (Step(f"{cell.id}: acknowledgements of standbys", commands, act=act, expected_s=seconds + LONGER_S),)


def _awaited(setup: TrialSetup) -> Position:
    """The position that commits wait for by the settings of the primary, including its own postgresql.conf."""
    cluster = setup.stack.topology
    assert cluster is not None
    given = setup.site.settings_of(setup.stack).get("synchronous_commit", "on").strip("'").lower()
    level = cluster.synchronous_commit or ("on" if given in _ON else given)
    if level not in AWAITED:
        raise PreflightError(
            f"acknowledgements of {setup.stack.name!r} cannot be told: synchronous_commit is {level}, "
            "and no commit waits for a standby",
            hint="topology: {synchronous_commit: on}",
        )
    return AWAITED[level]


def _watch(context: TrialContext, *, cell: Cell, awaited: Position) -> None:
    printed = run_beside_load(context, cell, WATCHED_OUTPUTS, REPLIES, "the watcher")
    cluster = context.plan.stack.topology
    assert cluster is not None
    assert cluster.quorum is not None
    said, commits = parse_watched(printed, awaited)
    if not said:
        raise TrialError(
            "no reply of a standby could be read beside the load",
            hint="with ssl=on what standbys say is encrypted: leave ssl or acknowledgements out",
        )
    context.cell(cell).let_go = let_go(said, commits, cluster.quorum, cluster.followers(PRIMARY))


STALE_OUTPUTS = ("stale_load.out", "stale_load.err")
"""Output of the load during the reads, in the folder of a cell."""
READS = "stale_reads.jsonl"


def stale_s(stack: Stack) -> float:
    """Seconds of watching reads; 0 unless configured."""
    return 0.0 if stack.topology is None else stack.topology.stale_reads


def stale_steps(setup: TrialSetup, cell: Cell, load: PlannedCommand) -> tuple[Step, ...]:
    """`load` is the concurrent load; empty unless configured."""
    network, seconds = setup.plan.network, stale_s(setup.stack)
    if network is None or not seconds:
        return ()
    server = setup.server
    reader = plan_reader(
        server.installation.program("psql"),
        server.port,
        MARK_TABLE,
        {name: network.link(name).address for name in setup.servers},
        seconds=seconds,
        user=SUPERUSER,
        os_user=setup.site.user,
        passfile=f"{server.run_directory}/{PRIMARY_PASSFILE}",
        marker=server.marker,
    )
    commands = (load, PlannedCommand.of(network.link(DRIVER).enter(reader)))
    act = partial(_read, cell=cell)
    return (Step(f"{cell.id}: reads on standbys", commands, act=act, expected_s=seconds + LONGER_S),)


def _read(context: TrialContext, *, cell: Cell) -> None:
    context.cell(cell).stale = parse_reads(
        run_beside_load(context, cell, STALE_OUTPUTS, READS, "the reads on standbys")
    )
