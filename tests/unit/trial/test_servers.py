"""Stacks whose server cannot be as asked: found before anything is loaded, all of them at once, and left out alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pgstrata.errors import PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import command
from pgstrata.spec.campaign import Campaign
from pgstrata.stack.preflight import Unsupported
from pgstrata.trial.survey.host_survey import Site
from pgstrata.trial.survey.preflight import OWN_CONNECTIONS, check_servers, require_some, run_preflight
from pgstrata.trial.survey.survey import survey

CLIENTS = 64
SERVERS: dict[str, dict[str, object]] = {
    "fine": {},
    "a later major's setting": {"settings": {"io_method": "sync"}},
    "a value that this build lacks": {"major": 18, "source": "embedded", "settings": {"io_method": "io_uring"}},
    "no such value": {"settings": {"wal_level": "loud"}},
    "too few connections": {"settings": {"max_connections": str(CLIENTS)}},
    "too few for a pooler": {"settings": {"max_connections": str(CLIENTS + OWN_CONNECTIONS)}},
    "several faults": {
        "major": 18,
        "source": "embedded",
        "settings": {
            "io_method": "io_uring",
            "summarise_wal": "on",
            "max_connections": str(CLIENTS),
            "wal_compression": "loud",
        },
    },
    "a major that is not here": {"major": 99},
    "a folder that is not there": {"installation": "/nowhere/pgsql"},
    "just enough": {"settings": {"max_connections": str(CLIENTS + OWN_CONNECTIONS)}},
}


UNSERVED = {"a major that is not here", "a folder that is not there"}
SERVED = [name for name in SERVERS if name not in UNSERVED]


def _postgresql(server: dict[str, object]) -> dict[str, object]:
    return server if "installation" in server else {"major": 16, **server}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    stacks: list[dict[str, object]] = [
        {"name": name, "data": {"fs": {"kind": "tmpfs"}}, "postgresql": _postgresql(server)}
        for name, server in SERVERS.items()
    ]
    next(s for s in stacks if s["name"] == "too few for a pooler")["topology"] = {"pooler": "pgpool"}
    workload = {"clients": [1, CLIENTS]}
    asked = Campaign.model_validate({"name": "x", "stacks": stacks, "workload": workload})
    return survey(LocalHost(state_directory=str(tmp_path / "state")), asked, tmp_path / "out")


def test_each_is_named_with_its_reason_and_the_others_stay(site: Site) -> None:
    user = site.host.run(command("id", "-un")).stdout.strip()
    found = {u.stack: (u.reason, u.hint) for u in check_servers(site, SERVED, user)}
    assert found.keys() == set(SERVED) - {"fine", "just enough"}
    assert "unknown setting 'io_method'" in found["a later major's setting"][0]
    assert "io_method = 'io_uring'" in found["a value that this build lacks"][0]
    assert "wal_level = 'loud'" in found["no such value"][0]
    reason, hint = found["too few connections"]
    assert reason == "max_connections = 64 is too few: the workload and its probe open 66"
    assert "the workload and its probe open 70" in found["too few for a pooler"][0]
    reason_of_several, _ = found["several faults"]
    for fault in (
        "io_method = 'io_uring'",
        "unknown setting 'summarise_wal'",
        "wal_compression = 'loud'",
        "64 is too few",
    ):
        assert fault in reason_of_several
    assert "did you mean summarize_wal?" in found["several faults"][1]
    assert hint == "max_connections: 66 among the settings, or fewer workload.clients"


def test_a_server_that_is_not_there_leaves_out_its_stack_alone(site: Site) -> None:
    assert site.unserved.keys() == UNSERVED
    assert site.installations.keys() == set(SERVED)
    found = {u.stack: (u.reason, u.hint) for u in run_preflight(site).unsupported}
    reason, hint = found["a major that is not here"]
    assert "PostgreSQL 99 is not on this host" in reason
    assert "install the package postgresql-99" in hint
    assert "installation /nowhere/pgsql is no folder" in found["a folder that is not there"][0]
    assert site.unserved.keys() <= found.keys()


def test_servers_that_are_all_missing_are_a_refusal(site: Site, tmp_path: Path) -> None:
    stacks = tuple(stack for stack in site.campaign.stacks if stack.name in UNSERVED)
    asked = site.campaign.model_copy(update={"stacks": stacks})
    with pytest.raises(PreflightError, match=r"PostgreSQL 99 is not on this host.*; installation /nowhere/pgsql is no"):
        survey(site.host, asked, tmp_path / "out")


def test_only_those_that_are_asked_for_are_looked_at(site: Site) -> None:
    user = site.host.run(command("id", "-un")).stdout.strip()
    assert check_servers(site, ["fine", "just enough"], user) == ()


def test_a_campaign_without_any_stack_left_is_refused(site: Site) -> None:
    user = site.host.run(command("id", "-un")).stdout.strip()
    unusable = check_servers(site, SERVED, user)
    require_some(site, unusable)
    alike = [Unsupported(name, "too few", ("more",)) for name in SERVERS.keys() - {u.stack for u in unusable}]
    alike.sort(key=lambda one: list(SERVERS).index(one.stack))
    with pytest.raises(
        PreflightError,
        match=r"a later major's setting: .*; no such value: .*loud.*; fine, a major that .*, just enough: too few\n",
    ):
        require_some(site, (*unusable, *alike))


def test_meta_commands_that_a_pgbench_lacks(site: Site, tmp_path: Path) -> None:
    script = tmp_path / "own.sql"
    script.write_text("\\startpipeline\nSELECT 1;\n\\syncpipeline\n\\endpipeline\n")
    workload = site.campaign.workload.model_copy(update={"script": (f"{script}@9+select-only@1",)})
    asked = replace(site, campaign=site.campaign.model_copy(update={"workload": workload}))
    user = site.host.run(command("id", "-un")).stdout.strip()
    (found,) = check_servers(asked, ["fine"], user)
    assert found.reason == f"pgbench 16 has no \\syncpipeline, which {script} uses"
    assert found.hint == "postgresql: {major: 17} of the stack, or later"
