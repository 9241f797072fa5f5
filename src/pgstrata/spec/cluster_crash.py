"""The campaigns of crash trials of clusters: of lost nodes the stacks as they are, with servers whose directories are
soon copied; of power cuts the stacks on recorded disks, but for what lies in memory.
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
from pgstrata.spec.crash_trials import CrashTrials, node_problem
from pgstrata.spec.stack import Stack, Volume

CLUSTER_SETTINGS = {**SETTINGS, "wal_keep_size": "32MB"}
"""Unless the stack sets them: little WAL, and all of it kept between two moments."""
OF_SMALL_SEGMENTS = {"min_wal_size": "8MB"}
"""The same, where the stack has no options of initdb: a server does not start with less than two segments."""


ARCHIVE_BYTES = 1 << 30
"""Of a recorded disk for the archive, with the base backup beside it."""

_FAR = "it has nodes on several hosts, and one order of events is of one kernel: test it with all nodes on one host"

FAILURE_S = 2.0
"""Roughly what it takes to come to a moment and to carry a failure out."""
REJOIN_S = 2.0
"""The same of a lost primary that follows then."""


def are_clusters(campaign: Campaign) -> bool:
    """Whether the stacks are clusters; UsageError where some are and some are not."""
    clusters = [stack.name for stack in campaign.stacks if stack.topology is not None]
    if clusters and len(clusters) < len(campaign.stacks):
        alone = next(stack.name for stack in campaign.stacks if stack.topology is None)
        raise UsageError(
            f"{clusters[0]} is a cluster and {alone} is not: nodes are lost of the one, and power of the other",
            hint="test them in two calls",
        )
    return bool(clusters)


def untested(stack: Stack, asked: CrashTrials) -> str:
    """Why a stack of a campaign has no crash trial, of disks or of nodes; empty where it has one."""
    if stack.topology is None:
        return crash_problem(stack)
    if stack.far_hosts:
        return _FAR
    if asked.power:
        return power_problem(stack, asked.gone)
    return "" if len(stack.nodes) > 1 else "its primary is alone: there is nobody to go on"


def without_untested(campaign: Campaign, asked: CrashTrials) -> tuple[Campaign, dict[str, str]]:
    """The campaign with the stacks that have crash trials, and by the names of the others why they have none. It stays
    as it is where that is all of them."""
    problems = {stack.name: untested(stack, asked) for stack in campaign.stacks}
    tested = tuple(stack for stack in campaign.stacks if not problems[stack.name])
    if not tested or len(tested) == len(campaign.stacks):
        return campaign, {}
    left_out = {name: problem for name, problem in problems.items() if problem}
    return campaign.model_copy(update={"stacks": tested, "goal": Goal(), "soak": None}), left_out


def failures_within(asked: CrashTrials) -> int:
    """How many failures of a cluster a campaign's crash trials have time for."""
    each_s = FAILURE_S + (REJOIN_S if asked.rejoin else 0.0)
    return max(1, min(asked.states, int(asked.time / each_s)))


def cluster_crash_campaign(campaign: Campaign) -> Campaign:
    """The clusters, with the settings of crash trials below their own."""
    return _crash_campaign(campaign, tuple(map(_losing_nodes, campaign.stacks)))


def _losing_nodes(stack: Stack) -> Stack:
    segments = {} if stack.postgresql.initdb else OF_SMALL_SEGMENTS
    return _small(stack, {**CLUSTER_SETTINGS, **segments})


def cluster_power_campaign(campaign: Campaign) -> Campaign:
    """The clusters on recorded disks, with the settings of crash trials below their own. UsageError names the first one
    that cannot be put on such disks."""
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
    """Why a cluster cannot be put on recorded disks, but for what lies in memory; empty where it can."""
    problems = {role: recording_problem(v) for role, v in stack.volumes.items() if not _in_memory(v)}
    return next((f"{role}: {problem}" for role, problem in problems.items() if problem), "")


def _recorded(volumes: Mapping[str, Volume | None], size_bytes: int) -> dict[str, Volume]:
    """Those that there are, on recorded disks where they lie on any."""
    given = {role: volume for role, volume in volumes.items() if volume is not None}
    return {
        role: volume if _in_memory(volume) else on_recorded_disks(volume, size_bytes) for role, volume in given.items()
    }


def _in_memory(volume: Volume) -> bool:
    return volume.fs.stores.in_memory


def nodes_in_memory(stack: Stack) -> tuple[str, ...]:
    """Nodes that have nothing any more when they lose power: a part of what they had was in memory."""
    volumes = stack.volumes
    return tuple(n.name for n in stack.nodes if any(_in_memory(volumes[role]) for role in n.roles.values()))


def nodes_left(stack: Stack, gone: Sequence[str]) -> tuple[str, ...]:
    """Nodes that come back with what their disks kept when all lose power, and these never do."""
    lost = {*nodes_in_memory(stack), *gone}
    return tuple(node.name for node in stack.nodes if node.name not in lost)


def power_problem(stack: Stack, gone: Sequence[str]) -> str:
    """Why there is nothing to look at when all nodes lose power; empty where there is."""
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
