"""The parts of a trial, and the state that its steps share while they run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from pgstrata.errors import TrialError
from pgstrata.host.protocol import Command, Host, Process
from pgstrata.postgres.database import Prewarmed
from pgstrata.postgres.pooler import PgBouncer, Pgpool, Pooler, Sent
from pgstrata.postgres.server import Listening, Server, ServerDirectories
from pgstrata.postgres.standby import PRIMARY_PASSFILE, render_access
from pgstrata.probe.acknowledged import Acknowledgements, Stale
from pgstrata.record.recorder import TrialRecorder
from pgstrata.record.schema import (
    AttestedRecord,
    ClientUse,
    DiskUse,
    Moment,
    OthersUse,
    SettingRecord,
    SliceResult,
    SpaceRecord,
)
from pgstrata.spec.campaign import Trial
from pgstrata.spec.stack import PRIMARY, Stack
from pgstrata.spec.workload import Cell, Workload
from pgstrata.stack.build import Built, attest
from pgstrata.stack.network import DRIVER
from pgstrata.stack.plan import NodePlan, PlanContext, StackPlan
from pgstrata.stack.step import Attested, PlannedCommand
from pgstrata.trial.events import AttestedRows
from pgstrata.trial.executor import Executor
from pgstrata.trial.survey.host_survey import DATABASE, Site
from pgstrata.workload.driver import LoadDriver, driver_of
from pgstrata.workload.target import Target

POOLERS: Mapping[str, type[Pooler]] = {"pgpool": Pgpool, "pgbouncer": PgBouncer}
"""By name, as in `Topology.pooler`."""

PORT, LOOPBACK = 5432, "127.0.0.1"
FIRST_PORT, PORTS = 20_000, 10_000

QUIET_SETTINGS: Mapping[str, str] = {"autovacuum": "off", "checkpoint_timeout": "3600"}
"""A server that stands beside others begins nothing by itself while they are measured."""


@dataclass(frozen=True)
class TrialSetup:
    """Everything known of a trial before it starts: the input of its program."""

    site: Site
    trial: Trial
    plan: StackPlan
    server: Server
    """The single server, or the primary of a cluster."""
    standbys: Mapping[str, Server]
    """By their names."""

    @classmethod
    def of(cls, site: Site, trial: Trial, plan: StackPlan) -> TrialSetup:
        primary = NodePlan(PRIMARY, plan.data_directory, plan.wal_directory)
        server = _server(site, plan, primary)
        return cls(site, trial, plan, server, {node.name: _server(site, plan, node) for node in plan.standbys})

    @property
    def servers(self) -> Mapping[str, Server]:
        """All of them by name, the primary first."""
        return {PRIMARY: self.server, **self.standbys}

    @property
    def stack(self) -> Stack:
        return self.plan.stack

    @property
    def workload(self) -> Workload:
        return self.site.campaign.workload

    @property
    def driver(self) -> LoadDriver:
        return driver_of(self.workload)

    @property
    def client(self) -> str:
        """The host that the driver runs on; empty for the server's own."""
        return self.site.campaign.client

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts of a trial: those of its nodes, and of its client."""
        return (*self.plan.hosts, *filter(None, [self.client]))

    def driving(self, *commands: Command) -> tuple[PlannedCommand, ...]:
        """Commands of the driver as a step has them, on its host."""
        return tuple(PlannedCommand.of(command, self.client) for command in commands)

    @property
    def further_settings(self) -> Mapping[str, str]:
        """Settings that keep a server quiet in the turns of others; the stack's own come first."""
        if self.trial.slices is None:
            return {}
        asked = {name.lower() for name in self.site.settings_of(self.stack)}
        return {name: value for name, value in QUIET_SETTINGS.items() if name not in asked}

    @property
    def warmup_s(self) -> float:
        """Time of the load before the measured one. Slices always have it: the first turn follows another one."""
        slices = self.trial.slices
        return self.workload.warmup or (slices.length if slices else 0.0)

    @property
    def outputs(self) -> str:
        """A folder on the host for raw output, on another device than the stack."""
        return self.outputs_on("")

    def outputs_on(self, host: str) -> str:
        """The same on one of the hosts of its nodes."""
        return outputs_directory(self.plan.context.at(host))

    @property
    def target(self) -> Target:
        """The server, as the driver reaches it to load and check its tables: by its socket, or where it listens."""
        return self._listening_target if self.workload.over_tcp else self._socket_target

    @property
    def _listening_target(self) -> Target:
        network, listening = self.plan.network, self.server.listening
        assert listening is not None
        target = replace(
            self._socket_target,
            server=listening.address,
            enter=network.link(DRIVER).enter if network else None,
            passfile=f"{self.client_directory}/{PRIMARY_PASSFILE}",
        )
        if not self.client:
            return target
        installation = self.site.driving.installations[self.stack.name]
        return replace(
            target,
            programs=installation.client_directory,
            major=installation.client_major,
            os_user=self.site.driving.user,
            marker=self.plan.context.at(self.client).marker,
        )

    @property
    def client_directory(self) -> str:
        """A folder of the driver's user on its host."""
        return run_directory(self.plan.context.at(self.client))

    @property
    def _socket_target(self) -> Target:
        return Target(
            programs=self.server.installation.client_directory,
            major=self.server.installation.client_major,
            server=self.server.run_directory,
            port=self.server.port,
            os_user=self.site.user,
            database=DATABASE,
            marker=self.server.marker,
        )

    @property
    def pooler(self) -> Pooler | None:
        """The pooler in front of the servers; None if the driver connects to the primary itself."""
        cluster, network = self.stack.topology, self.plan.network
        if cluster is None or cluster.pooler is None or network is None:
            return None
        return POOLERS[cluster.pooler](
            self.server,
            network.link(DRIVER),
            {name: network.link(name).address for name in self.servers},
            f"{trial_directory(self.plan.context)}/pooler",
            max(cell.clients for cell in self.workload.cells),
        )

    @property
    def driven(self) -> Target:
        """The server, as the driver reaches it to measure; in a cluster from another node, or through the pooler."""
        if self.plan.network is None:
            return self.target
        direct, pooler = self._listening_target, self.pooler
        return replace(direct, server=pooler.address, port=pooler.port) if pooler else direct

    def cell_folder(self, cell: Cell) -> str:
        """Folder of a cell's output on the host until it is fetched."""
        return self.cell_folder_on("", cell)

    def driver_folder(self, cell: Cell) -> str:
        """The same on the driver's host."""
        return self.cell_folder_on(self.client, cell)

    def cell_folder_on(self, host: str, cell: Cell) -> str:
        """The same on one of the hosts of its nodes."""
        return f"{self.outputs_on(host)}/cells/{cell.id}"


def _server(site: Site, plan: StackPlan, node: NodePlan) -> Server:
    """A server as it is on its node; only the primary can have tablespaces."""
    primary, network = node.name == PRIMARY, plan.network
    own, context = site.sites[node.host], plan.context.at(node.host)
    tablespaces = plan.tablespace_directories if primary else {}
    listening, port = None, PORT
    if network is None and site.campaign.workload.over_tcp:
        address, client = (site.address, site.driving.address) if site.campaign.client else (LOOPBACK, LOOPBACK)
        listening = Listening(address, lambda command: command, render_access(client, ()))
        port = own_port(context)
    elif network is not None:
        link = network.link(node.name)
        nodes = tuple(other.address for other in network.links if other.node != DRIVER)
        listening = Listening(link.address, link.enter, render_access(network.link(DRIVER).address, nodes))
    return Server(
        own.host,
        own.installations[plan.stack.name],
        own.user,
        ServerDirectories(node.data_directory, node.wal_directory, tablespaces),
        run_directory=run_directory(context) if primary else f"{trial_directory(context)}/{node.name}",
        port=port,
        marker=context.marker,
        listening=listening,
        at=node.host,
    )


def own_port(context: PlanContext) -> int:
    """Return the port of a server that listens on an address of the host: below those that the kernel gives to clients
    (32768 and above, tcp(7)), another one for each trial."""
    return FIRST_PORT + int(hashlib.sha256(context.trial_id.encode()).hexdigest(), 16) % PORTS


@dataclass
class CellRun:
    """Results of one cell's steps, collected one after the other."""

    database_bytes_before: int = 0
    database_bytes_after: int = 0
    prewarmed: Prewarmed | None = None
    settled: bool | None = None
    """True if throughput had settled at the end of the warm-up; None if unknown."""
    pids: list[int] = field(default_factory=list)
    """Pids of the driver, part of its logs' names: one, or one for each slice."""
    started: str = ""
    began_epoch_s: float = 0.0
    """By the clock of the host."""
    wal_bytes: int = 0
    disks: tuple[DiskUse, ...] = ()
    others: OthersUse | None = None
    client: ClientUse | None = None
    """Work of the client's host; None where it is the server's."""
    round_trip_ms: float | None = None
    """Median time of an empty statement of a client on another host."""
    sent: Mapping[str, Sent] = field(default_factory=dict)
    """Statements that the pooler sent to each node during the run; empty without one."""
    stale: Mapping[str, Stale] = field(default_factory=dict)
    """Stale reads on each standby after the run; empty unless configured."""
    let_go: Mapping[str, Acknowledgements] = field(default_factory=dict)
    """Commits that each acknowledging standby released after the run; empty unless configured."""
    slices: list[SliceResult] = field(default_factory=list)
    whole: CellRun | None = None
    """The whole run after slices."""
    collected: bool = False


@dataclass
class TrialContext:
    """A running trial, as passed to the actions of its steps."""

    setup: TrialSetup
    recorder: TrialRecorder
    executor: Executor
    bindings: dict[str, str]
    """Values determined by the steps, by the names that plans show in angle brackets."""
    cells: dict[str, CellRun] = field(default_factory=dict)
    attested: list[AttestedRecord] = field(default_factory=list)
    spaces: list[SpaceRecord] = field(default_factory=list)
    pooler: Process | None = None
    """While it runs."""

    @property
    def host(self) -> Host:
        return self.setup.site.host

    @property
    def driver_host(self) -> Host:
        return self.executor.host_of(self.setup.client)

    @property
    def site(self) -> Site:
        return self.setup.site

    @property
    def trial(self) -> Trial:
        return self.setup.trial

    @property
    def plan(self) -> StackPlan:
        return self.setup.plan

    @property
    def server(self) -> Server:
        return self.setup.server

    def configure_server(self, further: Mapping[str, str] | None = None) -> None:
        """Writes the settings of the stack, and `further` ones that its kind of trial needs besides those of slices."""
        stack = self.plan.stack
        given = self.site.given_conf.get(stack.name)
        self.server.configure(
            stack.postgresql.settings,
            given.settings if given else None,
            data_checksums=stack.postgresql.data_checksums,
            further={**self.setup.further_settings, **(further or {})},
        )

    def cell(self, cell: Cell) -> CellRun:
        return self.cells.setdefault(cell.id, CellRun())

    def attest_stack(self, moment: Moment) -> None:
        """Compares mounts, devices and settings of the kernel with the plan; TrialError names every difference."""
        with ExitStack() as looking:
            for host in (self.host, *self.executor.elsewhere.values()):
                looking.enter_context(host.looking())
            rows = attest(self.host, self.plan, Built(self.bindings), self.executor.elsewhere)
        self.note(moment, rows)

    def attest_server(self, moment: Moment) -> None:
        """Compares the settings of all running servers with the configured ones; TrialError names every difference."""
        found = [(name, row) for name, server in self.setup.servers.items() for row in server.attest_settings()]
        named = ((f"{'' if name == PRIMARY else f'{name} '}PostgreSQL {row.what}", row) for name, row in found)
        self.note(moment, (replace(row, what=what) for what, row in named))

    def record_settings(self) -> None:
        """Records the running server's settings, next to the configured ones."""
        self.recorder.write_list("settings.json", [SettingRecord(**vars(s)) for s in self.server.read_settings()])

    def note(self, moment: Moment, rows: Iterable[Attested]) -> None:
        """Records attested values; TrialError names those that do not hold."""
        new = tuple(
            AttestedRecord(what=r.what, expected=r.expected, actual=r.actual, holds=r.holds, moment=moment)
            for r in rows
        )
        self.attested.extend(new)
        self.recorder.write_list("attested.json", self.attested)
        identity = self.executor.identity
        self.executor.tell(AttestedRows(identity.campaign, identity.trial, new))
        wrong = [r for r in new if not r.holds]
        if wrong:
            shown = "; ".join(f"{r.what}: expected {r.expected}, found {r.actual}" for r in wrong)
            raise TrialError(f"attestation ({wrong[0].moment}): {shown}")


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
