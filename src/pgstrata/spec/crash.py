"""Campaigns of crash trials: stacks on recorded disks, with a server that produces many states in a short time.

Clusters that lose nodes stay as they are, with small data directories that are copied quickly. Clusters that lose power
lie on recorded disks, except for volumes in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign, Goal
from pgstrata.spec.crash_request import CrashRequest, fault_problem, node_problem
from pgstrata.spec.durability import NO_WAL, role_words
from pgstrata.spec.file.files import resolve_stack_files
from pgstrata.spec.layers.kind import Device, Kind
from pgstrata.spec.layers.media import UNTIMED, MediaDevice
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.spec.stack import Stack, Volume
from pgstrata.spec.workload import Workload

MIB = 1 << 20
DISK_BYTES = 512 * MIB
ARCHIVE_BYTES = 1 << 30
"""Size of a recorded disk for the archive and its base backup."""
LOAD_ROOM, DUMP_RATIO = 3, 8
"""Bytes of a disk for each byte of a load's data, and of data for each byte of a dump."""
SETTINGS = {"shared_buffers": "1MB", "max_wal_size": "64MB", "max_prepared_transactions": "16"}
"""Defaults below the stack's own settings: few buffers, so that pages are written while transactions run; a small
disk; the ledger's prepared transactions."""
CLUSTER_SETTINGS = {**SETTINGS, "wal_keep_size": "32MB"}
"""The same for lost nodes: little WAL, all of it kept between two moments."""
OF_SMALL_SEGMENTS = {"min_wal_size": "8MB"}
"""Defaults where the stack has no initdb options: the server needs at least two segments to start."""
INITDB = ("--wal-segsize=1",)
"""Defaults where the stack has no initdb options: small segments, so that many of them are started and recycled."""
_FAR = "it has nodes on several hosts, and one order of events is of one kernel: test it with all nodes on one host"
LEDGER = Workload(scale=(1,), clients=(8,))
"""The workload for preflight's estimate: the ledger is smaller than pgbench's tables of scale 1."""


def named_stacks(texts: Sequence[str]) -> Campaign:
    """A campaign of unchanged stacks in short notation; UsageError for an invalid or duplicate stack."""
    stacks = tuple(_named(text) for text in texts)
    names = [stack.name for stack in stacks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"stack {twice[0]!r} is named twice", hint="name each stack once")
    return Campaign(name="stacks", stacks=stacks)


def _named(text: str) -> Stack:
    problems, stack = resolve_stack_files(parse_stack(text), Path.cwd())
    if problems:
        raise UsageError(f"{text!r}: {problems[0].text}", hint=problems[0].hint)
    if not stack.is_attested:
        raise UsageError(f"{text!r} is a running server: its power is not cut", hint="name a stack that is built")
    return stack


def crash_campaign(campaign: Campaign, *, loaded: bool = False) -> Campaign:
    """The same stacks on recorded disks, `loaded` with room for the campaign's workload, which then runs on their host.
    UsageError names the first stack without crash trials."""
    workload = campaign.workload.model_copy(update={"client": None}) if loaded else LEDGER
    size_bytes = DISK_BYTES + (LOAD_ROOM * _data_bytes(workload) if loaded else 0)
    return _crash_campaign(campaign, [_alone(stack, size_bytes) for stack in campaign.stacks], workload)


def cluster_crash_campaign(campaign: Campaign) -> Campaign:
    """The clusters, with the defaults of crash trials below their own settings."""
    return _crash_campaign(campaign, [_losing_nodes(stack) for stack in campaign.stacks])


def cluster_power_campaign(campaign: Campaign) -> Campaign:
    """The clusters on recorded disks, with the defaults of crash trials below their own settings. UsageError names the
    first one that cannot be put on such disks."""
    return _crash_campaign(campaign, [_powered(stack) for stack in campaign.stacks])


def _crash_campaign(campaign: Campaign, stacks: Sequence[Stack], workload: Workload = LEDGER) -> Campaign:
    for stack in campaign.stacks:
        if stack.far_hosts:
            raise UsageError(f"{stack.name} has no crash trials: {_FAR}", hint="leave host out of its standbys")
    shown = " ".join(stack.name for stack in campaign.stacks)
    return campaign.model_copy(update={"name": f"crash {shown}"[:120], "stacks": tuple(stacks), "workload": workload})


def _data_bytes(workload: Workload) -> int:
    """An estimate of the data in whole MiB; dumps are compressed."""
    if own := workload.sql or workload.pg_restore:
        return DUMP_RATIO * (Path(own).stat().st_size // MIB + 1) * MIB
    return workload.driver.bytes_per_scale * workload.scale[0]


def _alone(stack: Stack, size_bytes: int) -> Stack:
    if problem := crash_problem(stack):
        raise UsageError(
            f"there are no crash trials for stack {stack.name}: {problem}",
            hint="for example: pgstrata crash ext4 'ext4@wal=xfs' 'btrfs(raid1)' 'lvm/xfs' 'zfs(mirror)' nfs",
        )
    return _small(stack.model_copy(update=_recorded({"data": stack.data, "wal": stack.wal}, size_bytes)), SETTINGS)


def _losing_nodes(stack: Stack) -> Stack:
    segments = {} if stack.postgresql.initdb else OF_SMALL_SEGMENTS
    return _small(stack, {**CLUSTER_SETTINGS, **segments})


def _powered(stack: Stack) -> Stack:
    cluster = stack.topology
    assert cluster is not None
    if problem := _unrecorded(stack):
        raise UsageError(
            f"power cannot be cut below {stack.name}: {problem}",
            hint="for example: pgstrata crash 'cluster(3,ANY 1)/ext4' --power",
        )
    standbys = tuple(
        one.model_copy(update=_recorded({"data": one.data, "wal": one.wal}, DISK_BYTES)) for one in cluster.standbys
    )
    archive = _recorded({"archive": cluster.archive}, ARCHIVE_BYTES)
    topology = cluster.model_copy(update={"standbys": standbys, **archive})
    own = _recorded({"data": stack.data, "wal": stack.wal}, DISK_BYTES)
    return _small(stack.model_copy(update={**own, "topology": topology}), SETTINGS)


def _small(stack: Stack, settings: Mapping[str, str]) -> Stack:
    postgres = stack.postgresql
    made = {
        "settings": {**settings, **postgres.settings},
        "initdb": postgres.initdb or INITDB,
        "data_checksums": True if postgres.data_checksums is None else postgres.data_checksums,
    }
    return stack.model_copy(update={"postgresql": postgres.model_copy(update=made)})


def _recorded(volumes: Mapping[str, Volume | None], size_bytes: int) -> dict[str, Volume]:
    """The existing volumes, moved to recorded disks unless they lie in memory."""
    given = {role: volume for role, volume in volumes.items() if volume is not None}
    return {
        role: volume if _in_memory(volume) else on_recorded_disks(volume, size_bytes) for role, volume in given.items()
    }


def on_recorded_disks(volume: Volume, size_bytes: int = DISK_BYTES) -> Volume:
    """Put every disk of a volume, with log, cache and special devices, on a recorded disk, of `size_bytes` if no size
    is given."""
    made = {
        "device": _recorded_disk(volume.device, size_bytes),
        "layers": tuple(_recorded_own(layer.on_recorded(), size_bytes) for layer in volume.layers),
        "fs": _recorded_own(volume.fs.on_recorded(), size_bytes),
    }
    return volume.model_copy(update=made)


def _recorded_own(part: Kind, size_bytes: int) -> Kind:
    return part.model_copy(update={n: _recorded_disk(device, size_bytes) for n, device in part.own_devices.items()})


def _recorded_disk(asked: Device, size_bytes: int) -> MediaDevice:
    device = asked if isinstance(asked, MediaDevice) else MediaDevice(model=UNTIMED, count=asked.count)
    return device.model_copy(update={"recorded": True, "size": device.size or size_bytes})


def crash_problem(stack: Stack) -> str:
    """The reason why a stack has no crash trials; empty if it has."""
    if stack.topology is not None:
        return "it is a cluster"
    for role, volume in stack.volumes.items():
        if volume.fs.stores.in_memory:
            return (
                NO_WAL if role == "wal" else f"{role_words(role)} is in memory: nothing of it is left after a power cut"
            )
        if problem := recording_problem(volume):
            return problem
    return "tablespaces lie on volumes of their own, which the ledger does not use" if stack.tablespaces else ""


def recording_problem(volume: Volume) -> str:
    """The reason why a volume cannot be put on recorded disks; empty if it can."""
    strange = next((part.kind for part in (*volume.layers, volume.fs) if not part.assembles), "")
    if strange:
        return f"crash trials do not take {strange}"
    if not volume.needs_device:
        return f"the disks below this {volume.fs.kind} are not of this host, so nobody records them"
    return ""


def _unrecorded(stack: Stack) -> str:
    """The reason why a cluster's volumes, except those in memory, cannot be put on recorded disks; empty if they
    can."""
    problems = {role: recording_problem(v) for role, v in stack.volumes.items() if not _in_memory(v)}
    return next((f"{role}: {problem}" for role, problem in problems.items() if problem), "")


def _in_memory(volume: Volume) -> bool:
    return volume.fs.stores.in_memory


def nodes_in_memory(stack: Stack) -> tuple[str, ...]:
    """Nodes that lose everything with their power, because part of their data is in memory."""
    volumes = stack.volumes
    return tuple(n.name for n in stack.nodes if any(_in_memory(volumes[role]) for role in n.roles.values()))


def nodes_left(stack: Stack, gone: Sequence[str]) -> tuple[str, ...]:
    """Nodes that return from their disks after all lose power, except those that are lost forever."""
    lost = {*nodes_in_memory(stack), *gone}
    return tuple(node.name for node in stack.nodes if node.name not in lost)


def power_problem(stack: Stack, gone: Sequence[str]) -> str:
    """The reason why a power loss of all nodes cannot be tested; empty if it can."""
    if problem := _unrecorded(stack) or node_problem(stack, gone):
        return problem
    archive = stack.topology.archive if stack.topology else None
    if not nodes_left(stack, gone) and (archive is None or _in_memory(archive)):
        return "nothing is left: no node comes back from a disk, and no archive lies on one"
    return ""


def are_clusters(campaign: Campaign) -> bool:
    """True if the stacks are clusters; UsageError if only some of them are."""
    clusters = [stack.name for stack in campaign.stacks if stack.topology is not None]
    if clusters and len(clusters) < len(campaign.stacks):
        alone = next(stack.name for stack in campaign.stacks if stack.topology is None)
        raise UsageError(
            f"{clusters[0]} is a cluster and {alone} is not: clusters are tested by node loss, single servers by "
            "power loss",
            hint="test them in two calls",
        )
    return bool(clusters)


def untested(stack: Stack, request: CrashRequest) -> str:
    """The reason why a stack has no crash trial, of disks or of nodes; empty if it has one."""
    if stack.topology is None:
        return crash_problem(stack) or fault_problem(stack, request)
    if stack.far_hosts:
        return _FAR
    if request.power:
        return power_problem(stack, request.gone)
    return "" if len(stack.nodes) > 1 else "a single server: no standby to promote"


def without_untested(campaign: Campaign, request: CrashRequest) -> tuple[Campaign, dict[str, str]]:
    """The campaign without untested stacks, and the reason for each of those by name. The campaign is unchanged if that
    leaves all stacks or none."""
    problems = {stack.name: untested(stack, request) for stack in campaign.stacks}
    tested = tuple(stack for stack in campaign.stacks if not problems[stack.name])
    if not tested or len(tested) == len(campaign.stacks):
        return campaign, {}
    left_out = {name: problem for name, problem in problems.items() if problem}
    return campaign.model_copy(update={"stacks": tested, "goal": Goal(), "soak": None}), left_out
