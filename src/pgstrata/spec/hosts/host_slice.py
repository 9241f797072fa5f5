"""The part of a stack that is built on one host: what is asked of the stack there, as a stack of its own. Pure.

On the host of the load's client that is only PostgreSQL's programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgstrata.spec.layers.existing import Existing
from pgstrata.spec.stack import PRIMARY, Postgres, Stack, Standby, Topology, Volume

if TYPE_CHECKING:
    from pgstrata.spec.campaign import Campaign

_OF_ALL = {"synchronous_standby_names": "", "stale_reads": 0.0, "acknowledgements": 0.0}
"""Settings that are of the whole cluster, and would name nodes that a part does not have."""


def part_of(stack: Stack, host: str) -> Stack:
    """The nodes on `host` (empty: the primary's), with their volumes, as a stack; the whole one where nothing is
    elsewhere."""
    cluster = stack.topology
    if cluster is None or not cluster.far_hosts:
        return stack
    names = [name for name in cluster.standby_names if cluster.host_of(name) == host]
    standbys = [_alone(cluster, stack, name) for name in names]
    if not host:
        return stack.model_copy(update={"topology": _with(cluster, standbys)})
    first, *others = standbys
    topology = _with(cluster, others).model_copy(update={"archive": None, "pooler": None})
    return stack.model_copy(update={"data": first.data, "wal": first.wal, "topology": topology})


def _alone(cluster: Topology, stack: Stack, name: str) -> Standby:
    """A standby that says itself what it sits on, and follows the first node of its part."""
    volumes = cluster.standby_volumes(stack.own_volumes, name)
    return Standby(data=volumes["data"], wal=volumes.get("wal"), upstream=PRIMARY)


def _with(cluster: Topology, standbys: list[Standby]) -> Topology:
    return cluster.model_copy(update={**_OF_ALL, "standbys": tuple(standbys)})


def part_of_campaign(campaign: Campaign, host: str) -> Campaign:
    """The parts of all stacks that have nodes on `host`, or their programs on that of the client."""
    if host and host == campaign.client:
        stacks = tuple(_programs_of(s) for s in campaign.stacks)
    else:
        stacks = tuple(part_of(s, host) for s in campaign.stacks if not host or host in s.far_hosts)
    return campaign.model_copy(update={"stacks": stacks})


def far_hosts(campaign: Campaign) -> tuple[str, ...]:
    """Hosts of nodes and of the client besides the campaign's own, each once."""
    nodes = (host for stack in campaign.stacks for host in stack.far_hosts)
    return tuple(dict.fromkeys(filter(None, (*nodes, campaign.client))))


def _programs_of(stack: Stack) -> Stack:
    source = {name: getattr(stack.postgresql, name) for name in ("installation", "major", "source")}
    return Stack(name=stack.name, data=Volume(fs=Existing(path="/")), postgresql=Postgres(**source))
