"""Other hosts of a cluster's nodes: what is refused before anything is built, and by which address they are reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from fake_host import FakeHost
from pgstrata.errors import NotUnderstood, PreflightError
from pgstrata.host.facts.gather import Facts
from pgstrata.host.local import LocalHost
from pgstrata.postgres.binaries import Installation
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.spec.workload import Workload
from pgstrata.stack.preflight import Unsupported
from pgstrata.trial.survey import remote_nodes as far
from pgstrata.trial.survey.host_survey import Site
from pgstrata.trial.survey.remote_nodes import add_remote_nodes, far_notices, parse_route, ssh_address

STACK = "cluster(2)/tmpfs@standby1.host=ssh://db2"


def _site(host: Any, campaign: Campaign, **changes: Any) -> Site:
    installations = {stack.name: Installation(15, "15.18", "system", "/bin", "/bin", 15) for stack in campaign.stacks}
    site = Site(
        host=host,
        campaign=campaign,
        token="abcdef",
        scratch="/scratch",
        mount_root="/run",
        user="postgres",
        uid=0,
        loop_size_bytes=0,
        installations=installations,
        given_conf={},
        medium="memory",
        database_digest="",
        facts=Facts({"machine id": "here"}, {}),
    )
    return replace(site, **changes)


Joined = Callable[..., Site]


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Joined:
    """Joins a site with another that differs by `theirs`; the hosts' tools are not asked."""

    def join(
        text: str = STACK,
        *,
        address: str = "10.0.0.2",
        towards: str = "10.0.0.1",
        relay: bool = False,
        campaign: Mapping[str, Any] = MappingProxyType({}),
        **theirs: Any,
    ) -> Site:
        host = LocalHost(state_directory=str(tmp_path))
        other_host = FakeHost(name="ssh://db2")
        asked = Campaign(name="x", stacks=(parse_stack(text),), **campaign)
        other = {"facts": Facts({"machine id": "there"}, {}), **theirs}
        monkeypatch.setattr(far, "survey", lambda host, part, out: _site(host, part, **other))
        monkeypatch.setattr(far, "missing", lambda host, names: ())
        monkeypatch.setattr(far, "needs_relay", lambda host, stacks: relay)
        monkeypatch.setattr(far, "_address_of", lambda host: address)
        monkeypatch.setattr(far, "_address_towards", lambda host, other: towards)
        return add_remote_nodes(_site(host, asked), {"ssh://db2": other_host}, tmp_path)

    return join


def test_sites_have_the_addresses_that_were_found_or_given(joined: Joined) -> None:
    site = joined()
    assert (site.address, site.elsewhere["ssh://db2"].address) == ("10.0.0.1", "10.0.0.2")
    assert list(site.sites) == ["", "ssh://db2"]
    given = joined("cluster(2,address=10.9.0.1)/tmpfs@standby1.host=ssh://db2@standby1.address=10.9.0.2")
    assert (given.address, given.elsewhere["ssh://db2"].address) == ("10.9.0.1", "10.9.0.2")
    (line,) = far_notices(given)
    assert "UDP port 4789, 10.9.0.2 and 10.9.0.1: WAL and the base backup travel there unencrypted" in line
    assert list(far_notices(_site(site.host, site.campaign))) == []


def test_a_server_that_another_host_lacks_is_lacking_for_the_stack(joined: Joined) -> None:
    lacking = Unsupported(STACK, "PostgreSQL 17 is not on this host", ("install it",))
    site = joined(installations={}, unserved={STACK: lacking})
    assert site.unserved[STACK].reason == "on ssh://db2: PostgreSQL 17 is not on this host"


def test_a_client_has_the_address_from_which_it_reaches_the_server(joined: Joined) -> None:
    client = {"workload": Workload.model_validate({"client": "ssh://db2"})}
    site = joined("ext4", campaign=client)
    assert (site.address, site.driving.host.name, site.driving.address) == ("10.0.0.1", "ssh://db2", "10.0.0.1")
    (line,) = far_notices(site)
    assert "servers listen on 10.0.0.1 of local for the client on ssh://db2 (10.0.0.1) alone" in line
    with pytest.raises(PreflightError, match=r"cannot listen for the client on .*is public"):
        joined("ext4", campaign=client, towards="8.8.8.8")


def test_a_public_address_is_refused(joined: Joined) -> None:
    with pytest.raises(PreflightError, match="is public") as refused:
        joined(address="8.8.8.8")
    assert "private network" in refused.value.hint


def test_addresses_of_two_kinds_are_refused(joined: Joined) -> None:
    with pytest.raises(PreflightError, match=r"10\.0\.0\.1 is of IPv4 and fd00::2 of IPv6") as refused:
        joined(address="fd00::2")
    assert "of the topology" in refused.value.hint
    assert joined("cluster(2,address=fd00::1)/tmpfs@standby1.host=ssh://db2", address="fd00::2").address == "fd00::1"


def test_one_machine_under_two_names_is_refused(joined: Joined) -> None:
    with pytest.raises(PreflightError, match="are one machine"):
        joined(facts=Facts({"machine id": "here"}, {}))


def test_another_version_is_refused(joined: Joined) -> None:
    with pytest.raises(PreflightError, match=r"PostgreSQL 15\.18 on local, 15\.17 on"):
        joined(installations={STACK: Installation(15, "15.17", "system", "/bin", "/bin", 15)})


def test_the_relay_is_of_one_host(joined: Joined) -> None:
    with pytest.raises(PreflightError, match="the relay that delays packets instead joins the nodes of one host alone"):
        joined(relay=True)


def test_nodes_take_root(joined: Joined) -> None:
    with pytest.raises(PreflightError, match="is required to run nodes there"):
        joined(uid=1000)


def test_the_address_is_the_one_that_ssh_came_to() -> None:
    environment = "HOME=/root\0SSH_CONNECTION=10.0.0.1 50000 10.0.0.2 22\0SHELL=/bin/sh\0"
    assert ssh_address(environment, "ssh://db2") == "10.0.0.2"
    with pytest.raises(PreflightError, match="does not say by which address"):
        ssh_address("HOME=/root\0", "ssh://db2")


def test_a_lab_machine_is_reached_by_the_network_of_those_that_were_started_with_it() -> None:
    class Machine(FakeHost):
        peer_address = "10.77.0.2"

    assert far._address_of(Machine(name="lab/lab-2")) == "10.77.0.2"
    with pytest.raises(PreflightError, match="lab/lab was started alone") as refused:
        far._address_of(FakeHost(name="lab/lab"))
    assert "pgstrata lab up --count 2" in refused.value.hint


def test_the_address_of_the_way_is_read() -> None:
    assert parse_route('[{"dst":"10.0.0.2","dev":"eth0","prefsrc":"10.0.0.1","flags":[],"uid":0}]') == "10.0.0.1"
    with pytest.raises(NotUnderstood):
        parse_route("[]")
