"""Other hosts of a cluster's nodes, or of the load's client: connected, looked over and made ready like the campaign's
own, for their part of each stack.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from pgstrata.errors import NotUnderstood, PreflightError, parser_of
from pgstrata.host.protocol import CommandFailed, Host, command
from pgstrata.spec.campaign import far_hosts, part_of_campaign
from pgstrata.spec.hosts.lab import RUNNING_LAB
from pgstrata.spec.hosts.targets import LOCAL, mixed_families, underlay_problem
from pgstrata.spec.stack import Stack
from pgstrata.stack.network import TUNNEL, VXLAN_PORT, needs_relay
from pgstrata.stack.preflight import Preflight, missing, render_hints
from pgstrata.trial.survey.host_survey import Site
from pgstrata.trial.survey.preflight import require_some, run_preflight
from pgstrata.trial.survey.survey import survey

SSH_CONNECTION = "SSH_CONNECTION"
"""Variable of a login over there: address and port of the client, then of the host itself (ssh(1))."""


def add_remote_nodes(site: Site, hosts: Mapping[str, Host], out: Path) -> Site:
    """The site with the other hosts of its campaign, as they are; PreflightError where they cannot be joined."""
    assert set(hosts) == set(far_hosts(site.campaign))
    if not hosts:
        return site
    found = {name: survey(host, part_of_campaign(site.campaign, name), out) for name, host in hosts.items()}
    refuse_one_machine([site, *found.values()])
    if site.campaign.client:
        return _add_client(site, found[site.campaign.client])
    for far in found.values():
        _refuse_not_root(far)
        _refuse_other_version(site, far)
    joined = [stack for stack in site.campaign.stacks if stack.far_hosts]
    for one in (site, *found.values()):
        _refuse_untunnelled(one.host)
        _refuse_relay(one.host, joined)
    given = {
        name: a for stack in site.campaign.stacks if stack.topology for name, a in stack.topology.addresses.items()
    }
    addresses = {name: given.get(name) or _address_of(far.host) for name, far in found.items()}
    addresses[""] = given.get("") or _address_towards(site.host, next(iter(addresses.values())))
    for name, address in addresses.items():
        if problem := underlay_problem(address):
            whose = found[name].host if name else site.host
            raise PreflightError(
                f"nodes on {whose.name} cannot be joined with the others: {problem}",
                hint="give the host's address on a private network: `address` beside `host`, or of the topology",
            )
    if mixed := mixed_families(addresses.values()):
        raise PreflightError(
            f"hosts cannot be joined: {mixed}, and the ends of a tunnel are of one kind",
            hint="give an address of the same kind for each: `address` beside `host`, and of the topology",
        )
    return _joined(site, addresses[""], {name: replace(far, address=addresses[name]) for name, far in found.items()})


def _add_client(site: Site, client: Site) -> Site:
    """The site with the host of the load's client, and the addresses by which they reach each other."""
    asked, host = site.campaign.workload.client, client.host
    assert asked is not None
    local = host.name == LOCAL
    address = asked.address or (_address_of(site.host) if local else _address_towards(site.host, _address_of(host)))
    if problem := underlay_problem(address):
        raise PreflightError(
            f"the server on {site.host.name} cannot listen for the client on {host.name}: {problem}",
            hint="give the server's address on a private network: client: {host: ..., address: 10.0.0.1}",
        )
    found = replace(client, address=_address_towards(host, address), caches_kept="")
    return _joined(site, address, {site.campaign.client: found})


def _joined(site: Site, address: str, elsewhere: Mapping[str, Site]) -> Site:
    unserved = {
        stack: replace(u, reason=f"on {name}: {u.reason}")
        for name, far in elsewhere.items()
        for stack, u in far.unserved.items()
    }
    return replace(site, address=address, elsewhere=elsewhere, unserved={**unserved, **site.unserved})


def run_preflights(site: Site) -> Preflight:
    """Return what was found on the campaign's own host. PreflightError where a host must not be used; what another host
    of its nodes cannot build, the stack lacks."""
    own = run_preflight(replace(site, campaign=part_of_campaign(site.campaign, "")))
    lacking = {u.stack for u in own.unsupported}
    nodes = {name: far for name, far in site.elsewhere.items() if name != site.campaign.client}
    others = {name: run_preflight(far).unsupported for name, far in nodes.items()}
    elsewhere = (replace(u, reason=f"on {name}: {u.reason}") for name, of_host in others.items() for u in of_host)
    unsupported = (*own.unsupported, *(u for u in elsewhere if u.stack not in lacking))
    require_some(site, unsupported)
    return replace(own, unsupported=unsupported)


def far_notices(site: Site) -> Iterator[str]:
    """Yield what goes by networks that are not the trial's own."""
    for name, far in site.elsewhere.items():
        if name == site.campaign.client:
            yield (
                f"servers listen on {site.address} of {site.host.name} for the client on {name} ({far.address}) alone, "
                "by a password: statements and data travel there unencrypted"
            )
            continue
        yield (
            f"nodes on {name} are joined with those on {site.host.name} by UDP port {VXLAN_PORT}, "
            f"{far.address} and {site.address}: WAL and the base backup travel there unencrypted"
        )


def refuse_one_machine(sites: list[Site]) -> None:
    """Two names of one machine."""
    machines: dict[str, str] = {}
    for site in sites:
        machine = site.facts.checked["machine id"]
        if machine in machines:
            raise PreflightError(
                f"{machines[machine]} and {site.host.name} are one machine",
                hint="leave host out of standbys that are to be where the primary is, and client out of workload",
            )
        machines[machine] = site.host.name


def _refuse_not_root(far: Site) -> None:
    if not far.as_root:
        raise PreflightError(
            f"root access on {far.host.name} is required to run nodes there", hint="write ssh://root@host"
        )


def _refuse_other_version(site: Site, far: Site) -> None:
    """Servers of a cluster are of one version, to the minor."""
    for name, theirs in far.installations.items():
        ours = site.installations.get(name, theirs)
        if theirs.version != ours.version:
            raise PreflightError(
                f"the nodes of {name} would differ: PostgreSQL {ours.version} on {site.host.name}, "
                f"{theirs.version} on {far.host.name}",
                hint="install the same version on all hosts, or name one: postgresql: {installation: FOLDER}",
            )


def _refuse_untunnelled(host: Host) -> None:
    lacking = missing(host, (TUNNEL,))
    if lacking:
        raise PreflightError(
            f"{host.name} cannot join nodes on several hosts: {'; '.join(one.text for one in lacking)}",
            hint=render_hints(one.install for one in lacking),
        )


def _refuse_relay(host: Host, stacks: Iterable[Stack]) -> None:
    if needs_relay(host, stacks):
        raise PreflightError(
            f"{host.name} has no netem, and the relay that delays packets instead joins the nodes of one host alone",
            hint="load sch_netem there, or leave delay_ms and loss out",
        )


def _address_of(host: Host) -> str:
    """The one that our ssh connection came to; of a lab machine, to which ssh has a way of its own, that of the network
    that it shares with those that were started with it."""
    if host.peer_address:
        return host.peer_address
    if host.name.startswith(RUNNING_LAB):
        raise PreflightError(
            f"{host.name} was started alone: no other lab machine reaches it",
            hint="start those that a cluster needs together: pgstrata lab up --count 2",
        )
    return ssh_address(host.read_text("/proc/self/environ"), host.name)


def ssh_address(environment: str, host: str) -> str:
    """From the environment of a login by ssh, as /proc has it. Pure."""
    words = dict(line.partition("=")[::2] for line in environment.split("\0")).get(SSH_CONNECTION, "").split()
    if len(words) != 4:
        raise PreflightError(
            f"{host} does not say by which address it is reached", hint="give it: `address` beside `host`"
        )
    return words[2]


def _address_towards(host: Host, other: str) -> str:
    """The one that a host has on its way to another."""
    try:
        return parse_route(host.run(command("ip", "-json", "route", "get", other)).stdout)
    except (CommandFailed, NotUnderstood) as error:
        raise PreflightError(
            f"{host.name} has no way to {other}, which it is to reach: {error.message}",
            hint="give an address that it reaches: `address` beside `host`",
        ) from error


@parser_of("ip -json route get")
def parse_route(text: str) -> str:
    """The source address that packets to that destination get."""
    return str(json.loads(text)[0]["prefsrc"])
