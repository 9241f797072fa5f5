"""Plans everything needed to build a stack: a pure function.

Volumes are planned one after the other, each from the device up. PostgreSQL's directories and host-wide settings
follow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pgstrata.host.facts.modelled import ModelledDisk
from pgstrata.host.protocol import Command
from pgstrata.spec.stack import Kernel, Node, Queue, Stack, Volume
from pgstrata.stack.disk_counters import CountedDisks
from pgstrata.stack.kind import (
    FILESYSTEMS,
    Below,
    Check,
    PlannedFilesystem,
    PlannedLayer,
    plan_device,
    plan_filesystem,
    plan_layer,
)
from pgstrata.stack.network import Attachment, PlannedNetwork, plan_network
from pgstrata.stack.place import Place
from pgstrata.stack.step import Argument, FreePath, Stage, Step, planned, resolve
from pgstrata.stack.tuning.kernel import plan_kernel
from pgstrata.stack.undo import RemovePath

DIRECTORY_NAMES = {"data": "pgdata", "wal": "pgwal", "archive": "pgarchive"}
"""Inside the mount, so that `lost+found` and the like do not matter to initdb."""


@dataclass(frozen=True)
class PlanContext:
    """Facts on the trial and its host needed for a plan.

    `trial_id` must be fit for file names. `scratch` is the folder for loop files; everything of the trial goes into
    `SCRATCH/pgstrata-<trial>`. Mount points go into `mount_root` if it is given, otherwise below the scratch folder:
    the server's user must be able to reach them. `owner` is that user; None when everything runs as the caller.
    """

    trial_id: str
    scratch: str
    loop_size_bytes: int
    owner: str | None = None
    erase: tuple[str, ...] = ()
    mount_root: str | None = None
    modelled: Mapping[str, ModelledDisk] = field(default_factory=dict)
    """Disks of the host that have the timing of a modelled medium, by stable id."""
    relayed: bool = False
    """True if a relay delays packets between nodes, because the kernel cannot."""
    address: str = ""
    """Address of this host for other hosts of a cluster."""
    elsewhere: Mapping[str, PlanContext] = field(default_factory=dict)
    """Contexts of the other hosts, by name."""

    def at(self, host: str) -> PlanContext:
        """Return the context of a host; an empty name means this one."""
        return self.elsewhere[host] if host else self

    @property
    def marker(self) -> str:
        """The value of PGSTRATA_TRIAL in the environment of every process of the trial."""
        return self.trial_id

    @property
    def work_directory(self) -> str:
        return f"{self.scratch.rstrip('/')}/pgstrata-{self.trial_id}"

    @property
    def mount_directory(self) -> str:
        if self.mount_root is None:
            return f"{self.work_directory}/mount"
        return f"{self.mount_root.rstrip('/')}/pgstrata-{self.trial_id}"

    def place(self, role: str) -> Place:
        return Place(
            self.trial_id,
            role,
            self.work_directory,
            self.mount_directory,
            self.loop_size_bytes,
            self.owner,
            self.modelled,
        )


@dataclass(frozen=True)
class VolumePlan:
    """The layers of one role after its steps are done."""

    role: str
    volume: Volume
    mount_point: str
    directory: str
    nodes: tuple[Argument, ...]
    """Nodes below the filesystem."""
    media: tuple[Argument, ...]
    """The devices at the bottom, with those that the filesystem adds itself."""
    stages: tuple[Stage, ...] = ()
    """Stages that bring it up again from the content of its devices, from the bottom up."""
    host: str = ""
    """Set if it differs from the primary's host."""


@dataclass(frozen=True)
class NodePlan:
    """Data locations of one server."""

    name: str
    data_directory: str
    wal_directory: str | None
    host: str = ""
    """Set if it differs from the primary's host."""


@dataclass(frozen=True)
class StackPlan:
    """All steps of a build, and the checks of its result."""

    context: PlanContext
    stack: Stack
    steps: tuple[Step, ...]
    volumes: tuple[VolumePlan, ...]
    checks: tuple[Check, ...]
    data_directory: str
    wal_directory: str | None
    tablespace_directories: dict[str, str]
    standbys: tuple[NodePlan, ...] = ()
    archive_directory: str | None = None
    network: PlannedNetwork | None = None
    """Network of a cluster's nodes."""
    notes: tuple[str, ...] = ()
    counted: tuple[CountedDisks, ...] = ()
    """Disks that report their own statistics."""
    far_checks: Mapping[str, tuple[Check, ...]] = field(default_factory=dict)
    """Checks on other hosts, by host name."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return all hosts of its nodes, the primary's as an empty name."""
        return ("", *self.stack.far_hosts)

    @property
    def mounts(self) -> dict[str, str]:
        """Return mount points by role."""
        return {v.role: v.mount_point for v in self.volumes}

    def devices(self, bindings: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Return device nodes by role, from the medium up, once known; empty for tmpfs and directories."""
        return {
            v.role: tuple(dict.fromkeys(resolve(node, bindings) for node in (*v.media, *v.nodes))) for v in self.volumes
        }


@dataclass(frozen=True)
class _Planned:
    """One volume during planning."""

    host: str
    plan: VolumePlan
    steps: tuple[Step, ...]
    checks: tuple[Check, ...]
    notes: tuple[str, ...]
    wal_mount_point: str | None
    counted: tuple[CountedDisks, ...]


def plan_stack(stack: Stack, context: PlanContext) -> StackPlan:
    """Plan a whole stack; touches nothing."""
    recorder = next((role for role, volume in stack.volumes.items() if volume.recorded), "")
    hosts = ("", *stack.far_hosts)
    volumes = [
        _plan_volume(volume, replace(context.at(host).place(role), recorder=recorder), stack.kernel.queue, host)
        for role, volume in stack.volumes.items()
        for host in (stack.host_of_role(role),)
    ]
    plans = tuple(v.plan for v in volumes)
    by_role = {p.role: p.directory for p in plans}
    pool_wal = {v.plan.role: f"{v.wal_mount_point}/{DIRECTORY_NAMES['wal']}" for v in volumes if v.wal_mount_point}
    nodes = [_plan_node(node, by_role, pool_wal) for node in stack.nodes]
    directories = {host: [p.directory for p in plans if p.host == host] for host in hosts}
    for volume in volumes:
        directories[volume.host] += [pool_wal[volume.plan.role]] if volume.plan.role in pool_wal else []
    network = _plan_network(stack, context)
    host_wide = stack.kernel.model_copy(update={"queue": Queue()})
    tuning_steps, tuning_checks = plan_kernel(host_wide, ())
    return StackPlan(
        context=context,
        stack=stack,
        steps=(
            *(step.on(host) for host in hosts for step in plan_folders(context.at(host))),
            *(step.on(v.host) for v in volumes for step in v.steps),
            *(_plan_directories(directories[host], context.at(host)).on(host) for host in hosts),
            *(network.steps if network else ()),
            *(step.on(host) for host in hosts for step in tuning_steps),
        ),
        volumes=plans,
        checks=(
            *(check for v in volumes if not v.host for check in v.checks),
            *(network.checks if network else ()),
            *tuning_checks,
        ),
        data_directory=nodes[0].data_directory,
        wal_directory=nodes[0].wal_directory,
        tablespace_directories={n: by_role[f"tablespace.{n}"] for n in stack.tablespaces},
        standbys=tuple(nodes[1:]),
        archive_directory=by_role.get("archive"),
        network=network,
        notes=tuple(note for v in volumes for note in v.notes),
        counted=tuple(disks.on(v.host) for v in volumes for disks in v.counted),
        far_checks={
            host: (
                *(check for v in volumes if v.host == host for check in v.checks),
                *(network.far_checks[host] if network else ()),
                *tuning_checks,
            )
            for host in stack.far_hosts
        },
    )


def _plan_network(stack: Stack, context: PlanContext) -> PlannedNetwork | None:
    contexts = {host: context.at(host) for host in ("", *stack.far_hosts)}
    tunnels = {host: Attachment(one.mount_directory, one.address) for host, one in contexts.items()}
    number = int.from_bytes(hashlib.sha256(context.trial_id.encode()).digest()[:3])
    return plan_network(stack, context.mount_directory, relayed=context.relayed, tunnels=tunnels, tunnel_id=number)


def _plan_node(node: Node, by_role: Mapping[str, str], pool_wal: Mapping[str, str]) -> NodePlan:
    """Plan the directories of a server; its pool may have a dataset for pg_wal."""
    data = node.roles["data"]
    wal = by_role[node.roles["wal"]] if "wal" in node.roles else pool_wal.get(data)
    return NodePlan(node.name, by_role[data], wal, node.host)


def plan_folders(context: PlanContext) -> tuple[Step, ...]:
    """Plan folders that nobody else can list or create in advance: their parent may be open to everybody, like
    /var/tmp."""
    folders = (context.work_directory, context.mount_directory)
    outer = [folder for folder in folders if not folder.startswith(f"{context.work_directory}/")]
    parents = dict.fromkeys(folder.rsplit("/", 1)[0] or "/" for folder in outer)
    make = Step(
        name="folders of the trial",
        commands=(
            *(planned("mkdir", "--parents", parent) for parent in parents),
            *(planned("mkdir", ["--mode", "0711"], folder) for folder in folders),
        ),
        undo=tuple(RemovePath(path=folder) for folder in folders),
        requires=tuple(FreePath(folder) for folder in folders),
    )
    return (make,)


def _plan_volume(volume: Volume, place: Place, queue: Queue, host: str) -> _Planned:
    role = place.role
    base = _plan_base(volume, place, Kernel(queue=queue))
    fs: PlannedFilesystem = plan_filesystem(volume.fs, base.above, place)
    late_steps, late_checks = plan_kernel(Kernel(queue=queue), fs.extra_media)
    directory = f"{fs.mount_point}/{directory_name(role)}"
    media = (*base.above.media, *fs.extra_media)
    return _Planned(
        host,
        VolumePlan(role, volume, fs.mount_point, directory, base.above.nodes, media, (*base.stages, *fs.stages), host),
        (*base.steps, *fs.steps, *late_steps),
        (*base.checks, *fs.checks, *late_checks),
        tuple(f"{role}: {note}" for note in (*base.notes, *fs.notes)),
        fs.wal_mount_point,
        (*base.counted, *fs.counted),
    )


def directory_name(role: str) -> str:
    """Return the name of PostgreSQL's directory in a volume."""
    whose, _, what = role.rpartition(".")
    return "pgspace" if whose == "tablespace" else DIRECTORY_NAMES[what]


def _plan_base(volume: Volume, place: Place, queue: Kernel) -> PlannedLayer:
    """Plan everything below the filesystem.

    Queues are set as soon as their devices exist: layers, mkfs and mount read them (btrfs takes `ssd` from rotational).
    """
    if not volume.needs_device:
        return PlannedLayer((), Below())
    parts = [plan_device(volume.device, place)]
    queue_steps, queue_checks = plan_kernel(queue, parts[0].above.media)
    for layer in volume.layers:
        parts.append(plan_layer(layer, parts[-1].above, place))
    first, *others = parts
    further = tuple(medium for medium in parts[-1].above.media if medium not in first.above.media)
    late_steps, late_checks = plan_kernel(queue, further)
    return PlannedLayer(
        (*first.steps, *queue_steps, *(step for part in others for step in part.steps), *late_steps),
        parts[-1].above,
        (*first.checks, *queue_checks, *(check for part in others for check in part.checks), *late_checks),
        tuple(note for part in parts for note in part.notes),
        tuple(disks for part in parts for disks in part.counted),
        tuple(stage for part in parts for stage in part.stages),
    )


def _plan_directories(directories: list[str], context: PlanContext) -> Step:
    owner = ["--owner", context.owner] if context.owner else []
    return Step(
        name="directories of PostgreSQL",
        commands=tuple(planned("install", "--directory", ["--mode", "0700"], owner, d) for d in directories),
    )


def plan_empty_caches(plan: StackPlan, host: str = "") -> tuple[Command, ...]:
    """Empties caches of a host that are not the kernel's; nothing may use the stack meanwhile."""
    own = (v for v in plan.volumes if v.host == host)
    each = ((v.volume.fs, plan.context.at(host).place(v.role)) for v in own)
    return tuple(command for fs, place in each for command in FILESYSTEMS[fs.kind].plan_empty_caches(fs, place))
