"""Options of initdb that a campaign may bring, and those that reach out of the cluster."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pgstrata.spec.server_settings import initdb_problem
from pgstrata.spec.stack import Postgres


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--no-sync",),
        ("--wal-segsize=64", "--data-checksums"),
        ("--wal-segsize", "64", "-k"),
        ("-E", "UTF8"),
        ("-EUTF8",),
        ("--locale-provider=icu", "--icu-locale=de-u-ks-level2", "--icu-rules=&V << w <<< W"),
        ("--lc-collate=de_DE.UTF-8@euro",),
    ],
)
def test_what_makes_the_cluster_is_taken(options: tuple[str, ...]) -> None:
    assert initdb_problem(options) == ""
    assert Postgres(initdb=options).initdb == options


@pytest.mark.parametrize(
    "options",
    [
        ("--waldir=/etc/cron.d",),
        ("--wald", "/etc/cron.d"),
        ("-X", "/etc/cron.d"),
        ("-X/etc/cron.d",),
        ("--pgdata=/root",),
        ("-D/root",),
        ("/root",),
        ("--", "/root"),
        ("--pwfile=/etc/shadow",),
        ("-L", "/home/mallory"),
        ("--auth=trust",),
        ("-A", "trust"),
        ("--auth-host", "trust"),
        ("--username=mallory",),
        ("--set", "archive_command=rm"),
        ("-c", "archive_command=rm"),
        ("--sync-only",),
        ("--show",),
        ("--wal-segsize",),
        ("--encoding", "--pwfile=/etc/shadow"),
        ("-E", "-X"),
        ("--locale=/etc/shadow",),
        ("--no-sync=1",),
        ("-kX",),
        ("--no-sync\n--waldir=/x",),
        ("",),
    ],
)
def test_what_reaches_out_of_the_cluster_is_refused_when_it_is_loaded(options: tuple[str, ...]) -> None:
    assert initdb_problem(options) != ""
    with pytest.raises(ValidationError, match="initdb"):
        Postgres(initdb=options)
