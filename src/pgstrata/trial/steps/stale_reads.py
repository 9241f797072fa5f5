"""Staleness of reads on the standbys: queried after a measured run, under the same load."""

from __future__ import annotations

from functools import partial

from pgstrata.host.protocol import Command
from pgstrata.postgres.server import SUPERUSER
from pgstrata.postgres.standby import MARK_TABLE, PRIMARY_PASSFILE
from pgstrata.probe.stale import parse_reads, plan_reader
from pgstrata.spec.stack import Stack
from pgstrata.spec.workload import Cell
from pgstrata.stack.network import DRIVER
from pgstrata.stack.step import PlannedCommand, Step
from pgstrata.trial.context import TrialContext, TrialSetup
from pgstrata.trial.steps.cluster import run_beside_load

OUTPUTS = ("stale_load.out", "stale_load.err")
"""Output of the load during the reads, in the folder of a cell."""
READS = "stale_reads.jsonl"
LONGER_S = 1.0
"""Seconds that the load runs longer than the start of reads."""


def asked_s(stack: Stack) -> float:
    """Seconds of watching reads; 0 unless configured."""
    return 0.0 if stack.topology is None else stack.topology.stale_reads


def stale_steps(setup: TrialSetup, cell: Cell, load: Command) -> tuple[Step, ...]:
    """`load` is the concurrent load; empty unless configured."""
    network, seconds = setup.plan.network, asked_s(setup.stack)
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
    commands = (PlannedCommand.of(load), PlannedCommand.of(network.link(DRIVER).enter(reader)))
    act = partial(_read, cell=cell)
    return (Step(f"{cell.id}: reads on standbys", commands, act=act, expected_s=seconds + LONGER_S),)


def _read(context: TrialContext, *, cell: Cell) -> None:
    context.cell(cell).stale = parse_reads(run_beside_load(context, cell, OUTPUTS, READS, "the reads on standbys"))
