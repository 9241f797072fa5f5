"""Stacks whose server cannot be as asked: found before anything is loaded, all of them at once, and left out alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgstrata.errors import PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import command
from pgstrata.spec.campaign import Campaign
from pgstrata.stack.preflight import Unsupported
from pgstrata.trial.preflight import OWN_CONNECTIONS, check_servers, require_some
from pgstrata.trial.site import Site
from pgstrata.trial.survey import survey

CLIENTS = 64
SERVERS: dict[str, dict[str, object]] = {
    "fine": {},
    "a later major's setting": {"settings": {"io_method": "sync"}},
    "a value that this build lacks": {"major": 18, "source": "embedded", "settings": {"io_method": "io_uring"}},
    "no such value": {"settings": {"wal_level": "loud"}},
    "too few connections": {"settings": {"max_connections": str(CLIENTS)}},
    "too few for a pooler": {"settings": {"max_connections": str(CLIENTS + OWN_CONNECTIONS)}},
    "just enough": {"settings": {"max_connections": str(CLIENTS + OWN_CONNECTIONS)}},
}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    stacks: list[dict[str, object]] = [
        {"name": name, "data": {"fs": {"kind": "tmpfs"}}, "postgresql": {"major": 16, **server}}
        for name, server in SERVERS.items()
    ]
    next(s for s in stacks if s["name"] == "too few for a pooler")["topology"] = {"pooler": "pgpool"}
    workload = {"clients": [1, CLIENTS]}
    asked = Campaign.model_validate({"name": "x", "stacks": stacks, "workload": workload})
    return survey(LocalHost(state_directory=str(tmp_path / "state")), asked, tmp_path / "out")


def test_each_is_named_with_its_reason_and_the_others_stay(site: Site) -> None:
    user = site.host.run(command("id", "-un")).stdout.strip()
    found = {u.stack: (u.reason, u.hint) for u in check_servers(site, list(SERVERS), user)}
    assert found.keys() == SERVERS.keys() - {"fine", "just enough"}
    assert "unknown setting 'io_method'" in found["a later major's setting"][0]
    assert "io_method = 'io_uring'" in found["a value that this build lacks"][0]
    assert "wal_level = 'loud'" in found["no such value"][0]
    reason, hint = found["too few connections"]
    assert reason == "max_connections = 64 is too few: the workload and its probe open 66"
    assert "the workload and its probe open 70" in found["too few for a pooler"][0]
    assert hint == "max_connections: 66 among the settings, or fewer workload.clients"


def test_only_those_that_are_asked_for_are_looked_at(site: Site) -> None:
    user = site.host.run(command("id", "-un")).stdout.strip()
    assert check_servers(site, ["fine", "just enough"], user) == ()


def test_a_campaign_without_any_stack_left_is_refused(site: Site) -> None:
    user = site.host.run(command("id", "-un")).stdout.strip()
    unusable = check_servers(site, list(SERVERS), user)
    require_some(site, unusable)
    alike = [Unsupported(name, "too few", ("more",)) for name in ("fine", "just enough")]
    with pytest.raises(
        PreflightError, match=r"a later major's setting: .*; no such value: .*loud.*; fine, just enough: too few\n"
    ):
        require_some(site, (*unusable, *alike))
