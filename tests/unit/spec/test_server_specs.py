"""Running servers in a campaign: their addresses, the second naming, and what does not go with them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.crash import named_stacks
from pgstrata.spec.durability import durability_class
from pgstrata.spec.expand import block_trials
from pgstrata.spec.layers.not_built import RunningServer
from pgstrata.spec.notation.stack import parse_stack, render_stack

ONE, OTHER = "postgresql://app@db1:5433/main?sslmode=require", "postgresql:///main?service=other"


def campaign(**changes: Any) -> Campaign:
    stacks = [{"name": f"s{n}", "data": {"fs": {"kind": "server", "uri": uri}}} for n, uri in enumerate((ONE, OTHER))]
    return Campaign.model_validate(
        {
            "name": "c",
            "stacks": stacks,
            "on_servers": ["db1:5433", "service=other"],
            "workload": {"scale": 1},
            **changes,
        }
    )


def test_addresses_of_a_server() -> None:
    server = RunningServer(uri=ONE)
    assert server.place == "db1:5433"
    assert server.database_uri("pgstrata_1") == "postgresql://app@db1:5433/pgstrata_1?sslmode=require"
    assert RunningServer(uri=OTHER).place == "service=other"
    assert RunningServer(uri=OTHER).database_uri("d") == "postgresql:///d?service=other"


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("postgresql://app:geheim@db1/x", "holds a password"),
        ("postgresql://db1/x?password=geheim", "holds a password"),
        ("postgresql://db1/x?passfile=/tmp/geheim", "passfile is no parameter"),
        ("postgresql://geheim,db2/x", "names several hosts"),
        ("postgresql:///x", "neither a host nor a service"),
        ("postgresql://db1:geheim/x", "is not valid"),
        ("https://geheim/x", "begins postgresql://"),
        ("host=geheim", "begins postgresql://"),
    ],
)
def test_addresses_that_are_refused(uri: str, said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        RunningServer(uri=uri)
    (error,) = refused.value.errors()
    assert said in error["msg"]
    assert "geheim" not in error["msg"]


def test_notation() -> None:
    for text in ("server:postgresql://db1:5433/main", f'server:"{ONE}"'):
        stack = parse_stack(text)
        assert render_stack(stack) == text
        assert durability_class(stack).class_ == "unknown"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"on_servers": []}, "on db1:5433 a database would be made"),
        ({"on_servers": ["db1:5433"]}, "on service=other a database would be made"),
        ({"on_servers": ["db1:5433", "service=other", "db3"]}, "names db3, which is the server of no stack"),
        ({"hosts": ["local", "ssh://db1"]}, "does not go with hosts"),
        ({"crash": {}}, "does not go with crash"),
        ({"runs": {"load": "keep"}}, "does not go with runs.load: keep"),
        ({"runs": {"design": "slices"}}, "does not go with runs.design: slices"),
        ({"workload": {"sql": "x.sql"}}, "does not go with workload.sql"),
    ],
)
def test_what_does_not_go_with_servers(changes: dict[str, Any], said: str) -> None:
    assert campaign().on_servers == ("db1:5433", "service=other")
    with pytest.raises(ValidationError, match=re.escape(said)):
        campaign(**changes)


def test_servers_are_not_mixed_nor_configured() -> None:
    server, built = {"data": {"fs": {"kind": "server", "uri": ONE}}}, {"name": "x", "data": {"fs": {"kind": "tmpfs"}}}
    given = {"on_servers": ["db1:5433"]}
    with pytest.raises(ValidationError, match="compared with each other alone"):
        campaign(stacks=[{"name": "s", **server}, built], **given)
    with pytest.raises(ValidationError, match="is not configured here"):
        campaign(stacks=[{"name": "s", **server, "postgresql": {"settings": {"fsync": "off"}}}], **given)
    with pytest.raises(ValidationError, match="names db1:5433, which is the server of no stack"):
        campaign(stacks=[built], **given)


def test_every_trial_loads_its_own_database() -> None:
    trials = block_trials(campaign(runs={"fresh_blocks": 0}), 5, ("s0", "s1"))
    assert {trial.load for trial in trials} == {"fresh"}


def test_power_of_a_running_server_is_not_cut() -> None:
    with pytest.raises(UsageError, match="is a running server: its power is not cut"):
        named_stacks(["server:postgresql://db1/x"])
