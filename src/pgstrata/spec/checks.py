"""Combinations that no single layer can reject: refused with the reason, before anything is touched.

Pure functions of models, called by the validators of `Volume`, `Stack` and `Campaign`; each returns the reason or None,
or raises Refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pgstrata.spec.hosts.lab import LAB, RUNNING_LAB
from pgstrata.spec.layers.media import MediaDevice
from pgstrata.spec.layers.not_built import RunningServer
from pgstrata.spec.model import Refused

if TYPE_CHECKING:
    from pgstrata.spec.campaign import Campaign
    from pgstrata.spec.hosts.lab import LabMachine
    from pgstrata.spec.stack import Stack, Volume


def volume_problem(volume: Volume, *, device_given: bool) -> str | None:
    """The reason why device, layers and filesystem do not fit together; None if they do."""
    if not volume.needs_device:
        return volume.fs.place_problem(volume.layers, device_given=device_given)
    if problem := volume.fs.layers_problem(volume.layers):
        return problem
    count = volume.device.count
    for index, layer in enumerate(volume.layers):
        problem = layer.order_problem(volume.layers[:index]) or layer.count_problem(count)
        if problem:
            return problem
        count = count if layer.keeps_count else 1
    return volume.fs.count_problem(count)


def stack_problem(stack: Stack) -> str | None:
    """The reason why these volumes do not make one stack, such as a disk that two of them use; None if they do."""
    if stack.wal is not None and stack.data.fs.places_wal:
        return f"pg_wal is placed twice: by wal and by the wal_dataset of {stack.data.fs.kind}"
    on_devices = [volume.recorded for volume in stack.volumes.values() if volume.devices]
    if any(on_devices) and not all(on_devices):
        return "a volume on disks is recorded and another one is not: their events would have no common order"
    if stack.topology is not None and (problem := _topology_problem(stack)):
        return problem
    seen: dict[str, str] = {}
    for role, volume in stack.volumes.items():
        ids = (id_ for device in volume.devices for id_ in device.stable_ids)
        host = stack.host_of_role(role)
        for name in (*ids, *volume.fs.directories):
            place = f"{name} on {host}" if host else name
            if place in seen:
                both = f"{seen[place]} and {role}" if seen[place] != role else f"{role} twice"
                return f"{place} is used by {both}"
            seen[place] = role
    return None


def refuse_steady_untimed(stacks: Iterable[Stack], lab: LabMachine) -> None:
    """Refuse steady preconditioning of media timed in runs alone: its writes cannot bring them to a steady state."""
    devices = (d for stack in stacks for volume in stack.volumes.values() for d in volume.devices)
    untimed = any(isinstance(d, MediaDevice) and d.timed == "runs" for d in devices)
    if untimed or any(disk.timed == "runs" for disk in lab.disks.values()):
        raise Refused(
            "runs.precondition is steady, but modelled disks that are timed in runs alone do not see what it writes",
            "timed: always",
        )


def refuse_models_alike(stacks: Iterable[Stack]) -> None:
    """Refuse different models of one name: reports call a model by its name alone."""
    devices = (d for stack in stacks for volume in stack.volumes.values() for d in volume.devices)
    texts: dict[str, str] = {}
    for device in devices:
        own = device.definition if isinstance(device, MediaDevice) else None
        if isinstance(device, MediaDevice) and own is not None and texts.setdefault(device.model, own) != own:
            raise Refused(f"two unlike models are called {device.model!r}", "give one of them another name")


STREAMING_NEEDS = "standbys cannot follow"


def _topology_problem(stack: Stack) -> str | None:
    """The reason why the stack's server cannot be the primary of its cluster; None if it can."""
    cluster = stack.topology
    assert cluster is not None
    for name in cluster.standby_names:
        volumes = cluster.standby_volumes(stack.own_volumes, name)
        if "wal" in volumes and volumes["data"].fs.places_wal:
            return f"pg_wal of {name} is placed twice: by wal and by the wal_dataset of {volumes['data'].fs.kind}"
    if stack.tablespaces:
        return "a cluster has no tablespaces: their places would be the same on all nodes"
    settings = {name.lower(): value for name, value in stack.postgresql.settings.items()}
    if cluster.synchronous_commit is not None and "synchronous_commit" in settings:
        return "synchronous_commit is set twice: in the topology and among the settings"
    if cluster.acknowledgements and settings.get("synchronous_commit", "on").lower() in ("off", "local"):
        return "acknowledgements asks which standby let a commit go, and no commit waits for one"
    if settings.get("wal_level", "replica") not in ("replica", "logical"):
        return f"wal_level = {settings['wal_level']}: {STREAMING_NEEDS}"
    needed = {"max_wal_senders": len(cluster.standbys) + 2, "max_replication_slots": len(cluster.standbys)}
    for name, least in needed.items():
        value = settings.get(name, str(least))
        if value.isdigit() and int(value) < least:
            return f"{name} = {value} is too few: {STREAMING_NEEDS}, {least} are needed"
    return None


def refuse_far_nodes(campaign: Campaign) -> None:
    """Raise Refused for campaign features that do not support stacks with nodes on several hosts."""
    far = [stack.name for stack in campaign.stacks if stack.far_hosts]
    if not far:
        return
    own = "stack {!r} has nodes on other hosts, which goes with".format
    if campaign.hosts:
        raise Refused(
            f"{own(far[0])} one host, not with hosts: trials at the same time would meet there", "host: ssh://db1"
        )
    hosts = [campaign.host, *(host for stack in campaign.stacks for host in stack.far_hosts)]
    if any(host.startswith(LAB) for host in hosts) and not all(host.startswith(RUNNING_LAB) for host in hosts):
        raise Refused(
            f"stack {far[0]!r} has nodes on {', '.join(dict.fromkeys(hosts))}: lab machines that were started together "
            "reach one another, and nobody else does",
            "pgstrata lab up --count 2, then host: lab/lab-1 of the campaign and host: lab/lab-2 of standbys",
        )
    if campaign.runs.precondition != "none" or campaign.runs.aged:
        raise Refused(
            f"{own(far[0])} new filesystems alone, not with runs.precondition and runs.aged", "leave these out"
        )


def refuse_client(campaign: Campaign) -> None:
    """Raise Refused for campaign features that a client on a host of its own does not support."""
    client = campaign.workload.client
    if client is None:
        return
    own = f"workload.client is {client.host}, which goes with"
    if clusters := [stack.name for stack in campaign.stacks if stack.topology is not None]:
        raise Refused(f"{own} single servers: stack {clusters[0]!r} has a node for its client", "leave client out")
    if campaign.hosts:
        raise Refused(f"{own} one host, not with hosts", "host: ssh://db1")
    if client.host == campaign.host:
        raise Refused("workload.client is the host of the server", "leave client out")
    if campaign.host == LAB or (campaign.host.startswith(RUNNING_LAB) != client.host.startswith(RUNNING_LAB)):
        raise Refused(
            f"workload.client is {client.host} and host {campaign.host}: lab machines that were started together "
            "reach one another, and no other host",
            "pgstrata lab up --count 2, then host: lab/lab-1 and client: lab/lab-2",
        )
    if campaign.runs.load == "keep":
        raise Refused(f"{own} stacks that are built for each run, not with runs.load: keep", "load: copy")


def refuse_prepared(stacks: tuple[Stack, ...], protocol: str) -> None:
    """Raise Refused for prepared statements over a pooler: the next transaction gets another session, which lacks
    them."""
    for stack in stacks:
        if protocol == "prepared" and stack.topology is not None and stack.topology.pooler == "pgbouncer":
            raise Refused(
                f"workload.protocol is prepared, but PgBouncer, in front of stack {stack.name!r}, "
                "gives each transaction another session",
                "protocol: extended, or pooler: pgpool",
            )


def refuse_keep(stacks: tuple[Stack, ...], *, scales: int, aa: bool) -> None:
    """Raise Refused for `load: keep` with shared disks: every stack stays built between its runs.

    A stack is kept once for each scale. `runs.aa` also keeps the first one under its second name.
    """
    owner: dict[str, str] = {}
    for stack in stacks:
        if stack.topology is not None:
            raise Refused(
                f"runs.load is keep, but stack {stack.name!r} is a cluster, whose standbys are made anew for every run",
                "use `load: copy`",
            )
        for place in stack.device_ids:
            if owner.setdefault(place, stack.name) != stack.name:
                raise Refused(
                    f"runs.load is keep, but stacks {owner[place]!r} and {stack.name!r} share {place}",
                    "give each stack disks of its own, or use `load: copy`",
                )
            if scales > 1:
                raise Refused(
                    f"runs.load is keep, but stack {stack.name!r} would be kept at {scales} scales on one {place}",
                    "name one scale, or use `load: copy`",
                )
    disks = stacks[0].device_ids
    if aa and disks:
        raise Refused(
            f"runs.load is keep and runs.aa runs {stacks[0].name!r} under two names, but both would share {disks[0]}",
            "use `load: copy`, name a stack without disks first, or leave `aa` out",
        )


def refuse_servers(campaign: Campaign) -> None:
    """Raise Refused for running servers that are not named a second time, and for what only built stacks can do."""
    servers = {stack.name: stack.data.fs for stack in campaign.stacks if isinstance(stack.data.fs, RunningServer)}
    places = dict.fromkeys(server.place for server in servers.values())
    if missing := [place for place in places if place not in campaign.on_servers]:
        raise Refused(
            f"on {missing[0]} a database would be made and loaded: name the server a second time",
            f"on_servers: [{', '.join(places)}] (for quick: --on-server {missing[0]})",
        )
    if unknown := [place for place in campaign.on_servers if place not in places]:
        raise Refused(f"on_servers names {unknown[0]}, which is the server of no stack", "leave it out")
    if not servers:
        return
    if len(servers) < len(campaign.stacks):
        raise Refused(
            "running servers are only measured, and compared with each other alone",
            "a campaign of its own for stacks that are built",
        )
    for stack in campaign.stacks:
        if stack.model_copy(update={"name": "", "note": ""}) != type(stack).model_construct(name="", data=stack.data):
            raise Refused(
                f"stack {stack.name!r} is a running server, which is not configured here",
                "leave out wal, tablespaces, kernel, postgresql and topology",
            )
    if found := next(_not_on_servers(campaign), ""):
        raise Refused(f"running servers are only measured, which does not go with {found}", f"leave out {found}")


def _not_on_servers(campaign: Campaign) -> Iterator[str]:
    """Yield the keys of a campaign that need a stack of pgstrata's own."""
    runs, workload = campaign.runs, campaign.workload
    refused = {
        "hosts": campaign.hosts,
        "crash": campaign.crash is not None,
        "runs.load: keep": runs.load == "keep",
        "runs.precondition": runs.precondition != "none",
        "runs.aged": runs.aged,
        "runs.design: slices": runs.design == "slices",
        "workload.sql": workload.sql,
        "workload.pg_restore": workload.pg_restore,
        "workload.tablespace": workload.tablespace,
        "workload.client": workload.client is not None,
        f"driver: {workload.driver.kind}": workload.driver.kind != "pgbench",
    }
    yield from (key for key, is_set in refused.items() if is_set)
