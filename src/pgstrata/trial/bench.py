"""A built stack with its cluster: what the chapters of a trial work on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pgstrata.errors import TrialError
from pgstrata.host.protocol import Host
from pgstrata.postgres.cluster import Cluster, Layout
from pgstrata.record.recorder import TrialRecorder
from pgstrata.record.schema import AttestedRecord
from pgstrata.spec.campaign import Trial
from pgstrata.spec.stack import Stack
from pgstrata.stack.attest import attest
from pgstrata.stack.build import Built
from pgstrata.stack.plan import PlanContext, StackPlan
from pgstrata.trial.site import DATABASE, Site
from pgstrata.trial.steps import Steps
from pgstrata.workload.pgbench import Target

Percentiles = Callable[[Sequence[Path], bool], Mapping[str, float]]
"""From pgbench's logs of one run to its percentiles (`p50`, ...); the flag says whether the load was open-loop."""

Moment = Literal["built", "before cell", "after cell"]


@dataclass(frozen=True)
class Bench:
    """Everything that one trial uses. `outputs` is a folder on the host for raw output, on another device."""

    site: Site
    trial: Trial
    stack: Stack
    plan: StackPlan
    built: Built
    cluster: Cluster
    outputs: str
    recorder: TrialRecorder
    steps: Steps
    percentiles: Percentiles
    loaded: bool = False
    """Whether the data of an earlier block is still there (`load: keep`)."""
    attested: list[AttestedRecord] = field(default_factory=list)

    @property
    def host(self) -> Host:
        return self.site.host

    @property
    def marker(self) -> str:
        return self.plan.context.marker

    @property
    def target(self) -> Target:
        """The server, as pgbench reaches it."""
        return target_of(self.site, self.cluster)

    def attest_stack(self, moment: Moment) -> None:
        """Compares mounts, devices and settings of the kernel with the plan; TrialError names every difference."""
        rows = attest(self.host, self.plan, self.built)
        self._note(AttestedRecord(**vars(row), holds=row.holds, moment=moment) for row in rows)

    def attest_server(self, moment: Moment) -> None:
        """Compares the running server's settings with what was asked; TrialError names every difference."""
        rows = self.cluster.attest_settings()
        self._note(
            AttestedRecord(
                what=f"PostgreSQL {r.what}", expected=r.expected, actual=r.actual, holds=r.holds, moment=moment
            )
            for r in rows
        )

    def _note(self, rows: Iterable[AttestedRecord]) -> None:
        new = tuple(rows)
        self.attested.extend(new)
        self.recorder.write_list("attested.json", self.attested)
        wrong = [r for r in new if not r.holds]
        if wrong:
            shown = "; ".join(f"{r.what}: expected {r.expected}, found {r.actual}" for r in wrong)
            raise TrialError(f"attestation ({wrong[0].moment}): {shown}")


def cluster_of(site: Site, stack: Stack, plan: StackPlan) -> Cluster:
    """The cluster of a planned stack; touches nothing."""
    layout = Layout(plan.data_directory, plan.wal_directory, plan.tablespace_directories)
    installation = site.installations[stack.name]
    return Cluster(
        site.host,
        installation,
        site.user,
        layout,
        run_directory=run_directory(plan.context),
        marker=plan.context.marker,
    )


def target_of(site: Site, cluster: Cluster) -> Target:
    """The server, as pgbench reaches it."""
    return Target(
        program=cluster.installation.program("pgbench"),
        major=cluster.installation.client_major,
        socket_directory=cluster.run_directory,
        port=cluster.port,
        os_user=site.user,
        database=DATABASE,
        marker=cluster.marker,
    )


def trial_directory(context: PlanContext) -> str:
    """The caller's own folder for what is not on the stack: short, because a socket's path holds 107 bytes at most."""
    return f"/tmp/pgstrata-{hashlib.sha256(context.trial_id.encode()).hexdigest()[:12]}"


def run_directory(context: PlanContext) -> str:
    """Socket and log of the server; it belongs to the server's user."""
    return f"{trial_directory(context)}/run"


def outputs_directory(context: PlanContext) -> str:
    """Raw output of the tools until it is fetched, and files sent for the server: the caller's, as what it writes
    must not be changed or led elsewhere by the server's user."""
    return f"{trial_directory(context)}/out"
