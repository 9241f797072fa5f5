"""A stack: everything between PostgreSQL and the medium, as a composition of layers.

A volume is read from the bottom up: `device` (what it sits on), `layers` (LVM, md) and `fs` (the filesystem
or pool that PostgreSQL sees). A stack puts the data directory, pg_wal and tablespaces on volumes and adds the
settings of kernel and server. What the kinds are is in `spec.layers`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, field_validator, model_validator

from pgstrata.spec.checks import stack_problem, volume_problem
from pgstrata.spec.durability_class import Parity
from pgstrata.spec.hosts.targets import private_address, reached_host
from pgstrata.spec.layers.devices import LoopDevice
from pgstrata.spec.layers.kind import BlockLayer, Device, Filesystem
from pgstrata.spec.layers.media import MediaDevice
from pgstrata.spec.layers.registry import register_kinds
from pgstrata.spec.model import DurationS, Fraction, Model, Name, Refused
from pgstrata.spec.quorum import Quorum, parse_quorum
from pgstrata.spec.server_settings import initdb_problem

register_kinds()

LONGEST_PATH = 500


class Volume(Model):
    """A mounted filesystem, from the device up."""

    device: Device = Field(default_factory=LoopDevice, description="what it sits on; by default one sparse loop file")
    layers: tuple[BlockLayer, ...] = Field((), description="LVM, md and LUKS, from the bottom up")
    fs: Filesystem = Field(description="the filesystem")

    @model_validator(mode="after")
    def _coherent(self) -> Volume:
        # The default device means "none requested", so that a volume survives a round trip through JSON.
        if problem := volume_problem(self, device_given=self.device != LoopDevice()):
            raise ValueError(problem)
        return self

    @property
    def needs_device(self) -> bool:
        return self.fs.needs_device

    @property
    def own_devices(self) -> dict[str, Device]:
        """Devices that layers and filesystem bring themselves, by their place: `lvm.cache`, `log`."""
        layers = {f"{layer.kind}.{name}": one for layer in self.layers for name, one in layer.own_devices.items()}
        return layers | self.fs.own_devices

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices: those below it, then those that layers and filesystem bring themselves."""
        return (*((self.device,) if self.needs_device else ()), *self.own_devices.values())

    @property
    def count_on_top(self) -> int:
        """Devices that the filesystem sits on."""
        return self.device.count if all(layer.keeps_count for layer in self.layers) else 1

    @property
    def recorded(self) -> bool:
        """True if writes and flushes of its devices are logged, as for crash trials."""
        return any(isinstance(device, MediaDevice) and device.recorded for device in self.devices)

    @property
    def parity(self) -> tuple[Parity, ...]:
        """Parity without a journal, from the bottom up."""
        return (*(parity for layer in self.layers for parity in layer.parity), *self.fs.parity)


# ---------------------------------------------------------------- settings


class Queue(Model):
    """Settings of the block queue of each device of the stack (/sys/block/X/queue)."""

    scheduler: str | None = Field(None, pattern=r"^[a-z][a-z0-9-]*$", description="none, mq-deadline, kyber, bfq")
    nr_requests: int | None = Field(None, ge=1, description="requests that the scheduler may hold")
    read_ahead_kb: int | None = Field(None, ge=0, description="read-ahead")
    rotational: bool | None = Field(None, description="whether the kernel takes the device for a disk that turns")
    write_cache: Literal["write back", "write through"] | None = Field(
        None, description="write through: the kernel sends no flushes"
    )


class Kernel(Model):
    """Host-wide kernel settings, set for the trial, attested, and restored afterwards."""

    sysctl: dict[str, str] = Field(default_factory=dict, description="vm., kernel. and fs. settings by name")
    transparent_hugepage: Literal["always", "madvise", "never"] | None = Field(
        None, description="/sys/kernel/mm/transparent_hugepage/enabled"
    )
    queue: Queue = Queue()

    @field_validator("sysctl", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        return {k: str(v) for k, v in value.items()} if isinstance(value, dict) else value

    @field_validator("sysctl")
    @classmethod
    def _known(cls, value: dict[str, str]) -> dict[str, str]:
        for key in value:
            if not key.startswith(("vm.", "kernel.", "fs.")):
                raise ValueError(f"{key} is not a vm., kernel. or fs. setting")
            if re.fullmatch(r"[a-z]+([.][a-z0-9_-]+)+", key, re.IGNORECASE) is None:
                raise ValueError(f"{key!r} is no name of a kernel setting")
            if re.fullmatch(r"[\w +-]*", value[key], re.ASCII) is None:
                # Excluded: names of programs to run (kernel.core_pattern, kernel.modprobe).
                raise ValueError(f"{key} takes numbers and words, not {value[key]!r}")
        return value


def _as_text(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return {k: ("on" if v else "off") if isinstance(v, bool) else str(v) for k, v in value.items()}


class Postgres(Model):
    """The server of a stack: binaries, initdb and settings."""

    major: int | None = Field(None, ge=13, description="by default the newest on the host")
    source: Literal["system", "embedded"] | None = Field(
        None,
        description="system packages, or the PostgreSQL that comes with pgstrata; by default system before embedded",
    )
    installation: str | None = Field(
        None, description="the folder of a build (with bin/postgres in it), on the host: a minor, a patched server"
    )
    data_checksums: bool | None = Field(None, description="by default as initdb of that version does")
    initdb: tuple[str, ...] = Field(
        (), description="further options of initdb: what the cluster is made like, no files and no ways in"
    )
    settings: dict[str, str] = Field(default_factory=dict, description="settings by name, applied and read back")
    postgresql_conf: str | None = Field(
        None, description="a whole postgresql.conf, a file; docs/postgresql.md says what is taken over of it"
    )

    @field_validator("initdb")
    @classmethod
    def _harmless(cls, options: tuple[str, ...]) -> tuple[str, ...]:
        if problem := initdb_problem(options):
            raise ValueError(problem)
        return options

    @field_validator("installation")
    @classmethod
    def _whole_path(cls, path: str | None) -> str | None:
        if path is None:
            return None
        if re.fullmatch(r"(/[\w.+~-]+)+/?", path, re.ASCII) is None or len(path) > LONGEST_PATH or "/../" in f"{path}/":
            raise ValueError(f"{path[:60]!r} is no whole path of a folder, such as /usr/local/pgsql-18.1")
        return path.rstrip("/")

    @model_validator(mode="after")
    def _one_server(self) -> Postgres:
        if self.installation is not None and self.source is not None:
            raise ValueError("installation names the programs: leave source out")
        return self

    _as_text = field_validator("settings", mode="before")(_as_text)


# ---------------------------------------------------------------- other nodes

PRIMARY = "primary"
MOST_STANDBYS = 8
"""The default of max_wal_senders (10) leaves two for base backups."""


class Standby(Model):
    """Volumes and settings of a standby. Anything omitted is as on the primary, with volumes of the same kind."""

    data: Volume | None = Field(None, description="its data directory; by default as the primary's, and pg_wal too")
    wal: Volume | None = Field(None, description="its pg_wal, if not with its data")
    upstream: str = Field(PRIMARY, description="whom it follows: the primary, or a standby before it (cascading)")
    settings: dict[str, str] = Field(default_factory=dict, description="settings of its server, over the primary's")
    host: str | None = Field(
        None, description="ssh://[user@]host[:port], or lab/NAME (one that is up); by default where the primary is"
    )
    address: str | None = Field(
        None,
        description="of its host, where the primary's reaches it; private, and by default the one that ssh came to",
    )

    _as_text = field_validator("settings", mode="before")(_as_text)
    _private = field_validator("address")(private_address)

    @field_validator("host")
    @classmethod
    def _reached(cls, text: str | None) -> str | None:
        whose = "a node is on the campaign's host, behind ssh or on a lab machine"
        return None if text is None else reached_host(text, whose)

    @model_validator(mode="after")
    def _addressed(self) -> Standby:
        if self.address is not None and self.host is None:
            raise ValueError("address is of a host: it goes with host")
        return self


class Network(Model):
    """The link of each node to the others, in the direction out of the node."""

    delay_ms: float = Field(0.0, ge=0, le=10_000, description="one way: a round trip takes twice as long")
    bandwidth_mbit: float | None = Field(None, gt=0, le=1e6, description="megabits a second; by default unlimited")
    loss: Fraction = Field(0.0, ge=0, lt=1, description="share of packets lost")


class Topology(Model):
    """A cluster: the stack's own server is the primary; `standby1`, `standby2`, ... follow it, each on its own node.
    pgbench runs on a node of its own."""

    standbys: tuple[Standby, ...] = Field(
        (), max_length=MOST_STANDBYS, description="a number, or what each of them sits on"
    )
    synchronous_standby_names: str = Field(
        "", description="which standbys a commit waits for, as in PostgreSQL: ANY 1 (*); by default none"
    )
    synchronous_commit: Literal["off", "local", "remote_write", "on", "remote_apply"] | None = Field(
        None, description="what a commit waits for; by default as the settings of the stack say"
    )
    slots: bool = Field(True, description="a replication slot for each standby, so that the primary keeps its WAL")
    pooler: Literal["pgpool", "pgbouncer"] | None = Field(
        None,
        description="what pgbench connects to instead of the primary: Pgpool-II, which sends writes to the primary and "
        "balances reads over all nodes, or PgBouncer, which shares few sessions of the primary among many clients; by "
        "default nothing",
    )
    stale_reads: DurationS = Field(
        0.0,
        ge=0,
        le=600,
        description="so long after each run, under the same load, reads on the standbys are compared with what the "
        "primary has acknowledged; by default not",
    )
    acknowledgements: DurationS = Field(
        0.0,
        ge=0,
        le=600,
        description="so long after each run, under the same load, what standbys tell the primary is watched: which of "
        "them let commits go, and after how long; by default not",
    )
    archive: Volume | None = Field(None, description="where the primary archives its WAL; by default it does not")
    network: Network = Network()
    catch_up_s: float = Field(300.0, gt=0, description="timeout in s for standbys to start streaming")
    address: str | None = Field(
        None, description="of the primary's host, where those of standbys reach it; private, and by default found out"
    )

    _private = field_validator("address")(private_address)

    @model_validator(mode="before")
    @classmethod
    def _with_the_primary(cls, value: object) -> object:
        if isinstance(value, dict) and value.keys() & {"host", "hosts", "driver", "load_host"}:
            raise Refused(
                "a topology has no host: the primary and the node of pgbench are on the campaign's own",
                hint="host: ssh://db1 of the campaign, and of standbys: topology: {standbys: [{host: ssh://db2}]}",
            )
        return value

    @field_validator("standbys", mode="before")
    @classmethod
    def _counted(cls, value: object) -> object:
        """Expand `standbys: 2`."""
        number = int(value) if isinstance(value, str) and value.isdigit() else value
        if isinstance(number, int) and not isinstance(number, bool):
            if not 0 <= number <= MOST_STANDBYS:
                raise ValueError(f"a cluster has 0 to {MOST_STANDBYS} standbys, not {number}")
            return [{}] * number
        return value

    @field_validator("synchronous_standby_names")
    @classmethod
    def _written_as_postgresql(cls, text: str) -> str:
        quorum = parse_quorum(text)
        return quorum.text if quorum else ""

    @model_validator(mode="after")
    def _acknowledged(self) -> Topology:
        known = {PRIMARY}
        for name in self.standby_names:
            if self.upstream(name) not in known:
                there = ", ".join(sorted(known))
                raise ValueError(f"{name} follows {self.upstream(name)!r}: it can follow a node before it ({there})")
            known.add(name)
        if self.quorum is not None and (problem := self.quorum.problem(self.followers(PRIMARY))):
            raise ValueError(problem)
        if self.stale_reads and not self.standbys:
            raise ValueError("stale_reads asks for reads on standbys, and there are none")
        if self.acknowledgements and (problem := self._unwatchable):
            raise ValueError(problem)
        return self

    @property
    def _unwatchable(self) -> str | None:
        """The reason why acknowledgements cannot be attributed to a standby; None if they can."""
        quorum = self.quorum
        if quorum is None or self.synchronous_commit in ("off", "local"):
            return "acknowledgements asks which standby let a commit go, and no commit waits for one"
        if not quorum.in_order(self.followers(PRIMARY)):
            return f"{quorum.text} leaves it open for which standbys a commit waits: acknowledgements needs their names"
        return None

    @property
    def far_hosts(self) -> tuple[str, ...]:
        """Hosts other than the primary's, without repetition."""
        return tuple(dict.fromkeys(standby.host for standby in self.standbys if standby.host is not None))

    def host_of(self, node: str) -> str:
        """The host of a node; empty for the primary's."""
        return (self.standbys[self.standby_names.index(node)].host or "") if node in self.standby_names else ""

    @property
    def addresses(self) -> dict[str, str]:
        """The given addresses by host; an empty name stands for the primary's."""
        own = {"": self.address} if self.address is not None else {}
        return own | {s.host: s.address for s in self.standbys if s.host is not None and s.address is not None}

    @property
    def quorum(self) -> Quorum | None:
        """The standbys that a commit waits for; None if it waits for none."""
        return parse_quorum(self.synchronous_standby_names)

    @property
    def standby_names(self) -> tuple[str, ...]:
        return tuple(f"standby{number + 1}" for number in range(len(self.standbys)))

    def upstream(self, name: str) -> str:
        """The node that a standby follows."""
        return self.standbys[self.standby_names.index(name)].upstream

    def followers(self, node: str) -> tuple[str, ...]:
        """Standbys that follow a node directly; only those of the primary acknowledge."""
        return tuple(name for name in self.standby_names if self.upstream(name) == node)

    def standby_volumes(self, primary: dict[str, Volume], name: str) -> dict[str, Volume]:
        """`data` and optionally `wal` of a standby; `primary` are the volumes of the primary."""
        asked = self.standbys[self.standby_names.index(name)]
        own = {role: volume for role, volume in (("data", asked.data), ("wal", asked.wal)) if volume is not None}
        return own if "data" in own else {**primary, **own}


@dataclass(frozen=True)
class Node:
    """A server of a stack: the only one, or one of a cluster's."""

    name: str
    roles: dict[str, str]
    """Roles of its volumes in the stack, by their purpose for the node: `data`, `wal`, `tablespace.NAME`."""
    settings: dict[str, str]
    """Settings of its server from the campaign."""
    host: str = ""
    """Empty for the primary's."""


class Stack(Model):
    """A named level of the factor under test, with inheritance and defaults already resolved."""

    name: Name
    note: str = ""
    data: Volume = Field(description="the data directory")
    wal: Volume | None = Field(None, description="where pg_wal lives, if not with the data")
    tablespaces: dict[str, Volume] = Field(
        default_factory=dict, description="further tablespaces by name; workload.tablespace says which one pgbench uses"
    )
    kernel: Kernel = Kernel()
    postgresql: Postgres = Postgres()
    topology: Topology | None = Field(None, description="standbys that follow the server; by default it is alone")

    @field_validator("tablespaces")
    @classmethod
    def _plain_names(cls, tablespaces: dict[str, Volume]) -> dict[str, Volume]:
        """Check the names, which are part of mount points and of names of volume groups and pools."""
        for name in tablespaces:
            if re.fullmatch(r"[a-z][a-z0-9_]{0,30}", name) is None or name.startswith("pg_"):
                raise ValueError(f"{name!r} is no name of a tablespace: small letters, digits and _, not beginning pg_")
        return tablespaces

    @model_validator(mode="after")
    def _coherent(self) -> Stack:
        if problem := stack_problem(self):
            raise ValueError(problem)
        return self

    @property
    def is_attested(self) -> bool:
        """False for a running server that is only measured."""
        return self.data.fs.attested

    @property
    def volumes(self) -> dict[str, Volume]:
        """All volumes by role: `data`, `wal`, `tablespace.NAME`; in a cluster also `standby1.data`, `archive`, ..."""
        return {**self.own_volumes, **self._volumes_of_others}

    @property
    def own_volumes(self) -> dict[str, Volume]:
        """Volumes of its own server, which is the primary of a cluster."""
        wal = {"wal": self.wal} if self.wal is not None else {}
        return {"data": self.data, **wal, **{f"tablespace.{n}": v for n, v in self.tablespaces.items()}}

    @property
    def _volumes_of_others(self) -> dict[str, Volume]:
        cluster = self.topology
        if cluster is None:
            return {}
        found = {
            f"{name}.{role}": volume
            for name in cluster.standby_names
            for role, volume in cluster.standby_volumes(self.own_volumes, name).items()
        }
        return found | ({"archive": cluster.archive} if cluster.archive is not None else {})

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every server, the primary first."""
        primary = Node(PRIMARY, {role: role for role in self.own_volumes}, self.postgresql.settings)
        cluster = self.topology
        if cluster is None:
            return (primary,)
        standbys = (
            Node(
                name,
                {role: f"{name}.{role}" for role in cluster.standby_volumes(self.own_volumes, name)},
                {**self.postgresql.settings, **asked.settings},
                asked.host or "",
            )
            for name, asked in zip(cluster.standby_names, cluster.standbys, strict=True)
        )
        return (primary, *standbys)

    @property
    def far_hosts(self) -> tuple[str, ...]:
        """Hosts of nodes other than the primary's."""
        return self.topology.far_hosts if self.topology is not None else ()

    def host_of_role(self, role: str) -> str:
        """The host of a volume; empty for the primary's."""
        node = role.partition(".")[0]
        return self.topology.host_of(node) if self.topology is not None else ""

    @property
    def device_ids(self) -> tuple[str, ...]:
        """Stable ids of all its real disks."""
        return tuple(id_ for v in self.volumes.values() for device in v.devices for id_ in device.stable_ids)
