"""Campaigns of crash trials of clusters. For node loss the stacks stay as they are, with small data directories that
are copied quickly. For power loss the stacks lie on recorded disks, except for volumes in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign, Goal
from pgstrata.spec.crash import (
    DISK_BYTES,
    INITDB,
    LEDGER,
    SETTINGS,
    crash_problem,
    on_recorded_disks,
    recording_problem,
)
from pgstrata.spec.crash_request import CrashRequest, fault_problem, node_problem
from pgstrata.spec.stack import Stack, Volume

CLUSTER_SETTINGS = {**SETTINGS, "wal_keep_size": "32MB"}
"""Defaults below the stack's own settings: little WAL, all of it kept between two moments."""
OF_SMALL_SEGMENTS = {"min_wal_size": "8MB"}
"""Defaults where the stack has no initdb options: the server needs at least two segments to start."""


ARCHIVE_BYTES = 1 << 30
"""Size of a recorded disk for the archive and its base backup."""

_FAR = "it has nodes on several hosts, and one order of events is of one kernel: test it with all nodes on one host"


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


def cluster_crash_campaign(campaign: Campaign) -> Campaign:
    """The clusters, with the defaults of crash trials below their own settings."""
    return _crash_campaign(campaign, tuple(map(_losing_nodes, campaign.stacks)))


def _losing_nodes(stack: Stack) -> Stack:
    segments = {} if stack.postgresql.initdb else OF_SMALL_SEGMENTS
    return _small(stack, {**CLUSTER_SETTINGS, **segments})


def cluster_power_campaign(campaign: Campaign) -> Campaign:
    """The clusters on recorded disks, with the defaults of crash trials below their own settings. UsageError names the
    first one that cannot be put on such disks."""
    return _crash_campaign(campaign, tuple(map(_powered, campaign.stacks)))


def _crash_campaign(campaign: Campaign, stacks: tuple[Stack, ...]) -> Campaign:
    for stack in campaign.stacks:
        if stack.far_hosts:
            raise UsageError(f"{stack.name} has no crash trials: {_FAR}", hint="leave host out of its standbys")
    shown = " ".join(stack.name for stack in campaign.stacks)
    return campaign.model_copy(update={"name": f"crash {shown}"[:120], "stacks": stacks, "workload": LEDGER})


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


def _unrecorded(stack: Stack) -> str:
    """The reason why a cluster's volumes, except those in memory, cannot be put on recorded disks; empty if they
    can."""
    problems = {role: recording_problem(v) for role, v in stack.volumes.items() if not _in_memory(v)}
    return next((f"{role}: {problem}" for role, problem in problems.items() if problem), "")


def _recorded(volumes: Mapping[str, Volume | None], size_bytes: int) -> dict[str, Volume]:
    """The existing volumes, moved to recorded disks unless they lie in memory."""
    given = {role: volume for role, volume in volumes.items() if volume is not None}
    return {
        role: volume if _in_memory(volume) else on_recorded_disks(volume, size_bytes) for role, volume in given.items()
    }


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


def _small(stack: Stack, settings: Mapping[str, str]) -> Stack:
    postgres = stack.postgresql
    made = {
        "settings": {**settings, **postgres.settings},
        "initdb": postgres.initdb or INITDB,
        "data_checksums": True if postgres.data_checksums is None else postgres.data_checksums,
    }
    return stack.model_copy(update={"postgresql": postgres.model_copy(update=made)})
