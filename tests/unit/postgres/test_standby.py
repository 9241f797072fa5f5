"""What joins servers to a cluster."""

from __future__ import annotations

import base64

import pytest

from pgstrata.postgres.standby import render_access, render_passfile, render_roles, scram_verifier, sender_problems


def test_a_verifier_is_that_of_the_example_in_rfc_7677() -> None:
    """User `user`, password `pencil`; the server signature of the example follows from these keys."""
    verifier = scram_verifier("pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    assert verifier == (
        "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ=="
        "$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    )


def test_only_the_nodes_come_by_tcp_and_with_a_password() -> None:
    lines = render_access("198.18.0.1", ["198.18.0.2", "198.18.0.3"])
    assert lines == (
        "host all postgres 198.18.0.1/32 scram-sha-256",
        "host replication pgstrata_standby 198.18.0.2/32 scram-sha-256",
        "host replication pgstrata_standby 198.18.0.3/32 scram-sha-256",
    )


def test_an_address_of_ipv6_is_admitted_alone() -> None:
    assert render_access("fd00::2", ()) == ("host all postgres fd00::2/128 scram-sha-256",)


def test_no_statement_before_standbys_follow_waits_for_them() -> None:
    text = render_roles("one", "two", ["standby1"])
    assert text.splitlines()[0] == "SET synchronous_commit = local;"
    assert "pg_create_physical_replication_slot('standby1', true)" in text


def test_a_passfile_holds_a_role_and_its_password() -> None:
    assert render_passfile("postgres", "abc") == "*:*:*:postgres:abc\n"


FINE = {"name": "standby1", "state": "streaming", "sync_state": "quorum", "behind_bytes": 0}


@pytest.mark.parametrize(
    ("rows", "problems"),
    [
        ([FINE], []),
        ([], ["standby1 is not connected"]),
        ([FINE | {"state": "catchup", "behind_bytes": 5}], ["standby1 is in state catchup, 5 bytes behind"]),
        ([FINE | {"behind_bytes": 7}], ["standby1 is 7 bytes behind"]),
        ([FINE | {"behind_bytes": -1}], ["standby1 has not said how far it is"]),
        ([FINE | {"sync_state": "async"}], ["standby1 has sync_state async instead of quorum"]),
    ],
)
def test_says_what_keeps_a_standby_from_following(rows: list[dict[str, object]], problems: list[str]) -> None:
    assert sender_problems(rows, {"standby1": "quorum"}, ["standby1"]) == problems
    assert sender_problems([FINE | {"sync_state": "sync"}], {}, ["standby1"]) == []
