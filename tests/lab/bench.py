"""Stacks in tests on a lab machine: built, attested, measured for a moment, undone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from remains import SCRATCH

from built import differences
from pgstrata.host.protocol import Host, command
from pgstrata.lab.recipe import GOLDEN
from pgstrata.postgres.binaries import Installation, choose, discover
from pgstrata.postgres.golden import Golden, read_golden, restore_golden
from pgstrata.postgres.server import Server, ServerDirectories
from pgstrata.postgres.user import run_user
from pgstrata.spec.stack import Postgres, Stack, Volume
from pgstrata.spec.workload import Cell, Workload
from pgstrata.stack.build import attest, build
from pgstrata.stack.journal import Journal, failures
from pgstrata.stack.plan import PlanContext, StackPlan, plan_stack
from pgstrata.stack.step import Attested
from pgstrata.workload.pgbench import plan_run
from pgstrata.workload.pgbench_output import parse_result
from pgstrata.workload.target import Target

LOOP_BYTES = 512 << 20
SCALE = 1
RUN_S = 3


@contextmanager
def slow_resync(host: Host, kib_per_s: int) -> Iterator[None]:
    """Every array of the machine synchronises at most that fast."""
    speed = "/proc/sys/dev/raid/speed_limit_max"
    host.run(command("modprobe", "md_mod"))  # the file is the module's
    before = host.read_text(speed)
    host.write_text(speed, f"{kib_per_s}\n")
    try:
        yield
    finally:
        host.write_text(speed, before)


@dataclass(frozen=True)
class GoldenCluster:
    """A loaded cluster kept aside on the machine."""

    installation: Installation
    user: str
    golden: Golden

    @classmethod
    def on(cls, host: Host) -> GoldenCluster:
        """The one that the image holds; every stack starts from a copy of it."""
        golden = read_golden(host, GOLDEN)
        assert golden is not None
        return cls(choose(discover(host), Postgres()), run_user(host), golden)


def target_of(server: Server) -> Target:
    installation = server.installation
    return Target(
        programs=installation.client_directory,
        major=installation.client_major,
        server=server.run_directory,
        port=server.port,
        os_user=server.user,
    )


def context(trial_id: str = "t1", **changes: object) -> PlanContext:
    return PlanContext(trial_id, SCRATCH, LOOP_BYTES, owner="pgstrata", mount_root="/mnt", **changes)  # type: ignore[arg-type]


def stack_of(volume: Mapping[str, object], **more: object) -> Stack:
    """A stack with its data on a volume that is written as in a campaign."""
    return Stack.model_validate({"name": "under test", "data": Volume.model_validate(volume), **more})


@dataclass(frozen=True)
class Lived:
    """How long the life of a stack took, and what pgbench said."""

    build_s: float
    attest_s: float
    undo_s: float
    tps: float
    attested: tuple[Attested, ...]

    @property
    def line(self) -> str:
        layer = self.build_s + self.attest_s + self.undo_s
        return (
            f"build {self.build_s:5.1f} s  attest {self.attest_s:4.1f} s  undo {self.undo_s:5.1f} s  "
            f"(together {layer:5.1f} s)  {len(self.attested):3d} checks  {self.tps:6.0f} tps, functional only"
        )


def live(host: Host, golden: GoldenCluster, stack: Stack, **changes: Any) -> Lived:
    """Builds, attests, runs pgbench on a copy of the golden cluster, attests again, undoes."""
    plan = plan_stack(stack, context(**changes))
    journal = Journal.create(host, plan.context.trial_id)
    moments = [time.monotonic()]
    try:
        built = build(host, plan, journal)
        moments.append(time.monotonic())
        attested = attest(host, plan, built)
        moments.append(time.monotonic())
        assert differences(attested) == {}
        tps = run_pgbench(host, golden, plan, journal)
        assert differences(attest(host, plan, built)) == {}
    finally:
        moments.append(time.monotonic())
        undone = failures(journal.undo_all())
        moments.append(time.monotonic())
    assert undone == ()
    return Lived(moments[1] - moments[0], moments[2] - moments[1], moments[4] - moments[3], tps, attested)


def run_pgbench(host: Host, golden: GoldenCluster, plan: StackPlan, journal: Journal) -> float:
    """Transactions a second of a moment of pgbench on the stack."""
    layout = ServerDirectories(plan.data_directory, plan.wal_directory, plan.tablespace_directories)
    server = Server(host, golden.installation, golden.user, layout, marker=plan.context.marker)
    server.make_directories()
    restore_golden(host, golden.golden, layout, golden.user)
    server.configure({"max_wal_size": "128MB", **plan.stack.postgresql.settings})
    server.start()
    try:
        cell = Cell(script="tpcb-like", scale=SCALE, clients=4)
        done = host.run(plan_run(target_of(server), cell, Workload(duration=RUN_S), seed=1, duration_s=RUN_S))
        return parse_result(done.stdout).tps
    finally:
        server.stop()
        host.remove(server.run_directory)
