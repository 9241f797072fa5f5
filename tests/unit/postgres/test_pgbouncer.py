"""PgBouncer: the files that it is given, and what it says of where it leads."""

from __future__ import annotations

import pytest

from fake_host import FakeHost
from pgstrata.postgres.binaries import Installation
from pgstrata.postgres.pooler import PgBouncer
from pgstrata.postgres.server import Server, ServerDirectories
from pgstrata.stack.network import Link

DATABASES = """\
name,host,port,database,force_user,pool_size,min_pool_size,reserve_pool,pool_mode,max_connections,current_connections,paused,disabled
pgbouncer,,6432,pgbouncer,pgbouncer,2,0,0,statement,0,0,0,0
postgres,198.18.0.2,5432,postgres,,20,0,0,,0,1,0,0
"""


@pytest.fixture
def pooler() -> PgBouncer:
    installation = Installation(15, "15.1", "system", "/pg/bin", "/pg/bin", 15)
    server = Server(FakeHost(), installation, "postgres", ServerDirectories("/data"), marker="b0")
    backends = {"primary": "198.18.0.2", "standby1": "198.18.0.3"}
    return PgBouncer(server, Link("driver", "/run/net.driver", "198.18.0.1"), backends, "/tmp/t/pooler", 64)


def test_it_leads_to_the_primary_and_asks_for_passwords(pooler: PgBouncer) -> None:
    conf, passwords = pooler.render_files("secret")
    assert "[databases]\npostgres = host=198.18.0.2 port=5432\n[pgbouncer]\n" in conf
    assert "listen_addr = 198.18.0.1\n" in conf
    assert "unix_socket_dir = \n" in conf
    assert "auth_type = scram-sha-256\n" in conf
    assert "max_client_conn = 66\n" in conf
    assert "secret" not in conf
    assert passwords == '"postgres" "secret"\n'


def test_it_runs_unprivileged_on_its_node(pooler: PgBouncer) -> None:
    argv = pooler.plan_start().argv
    assert argv[:4] == ("nsenter", "--net=/run/net.driver", "chroot", "--userspec=postgres")
    assert argv[-2:] == ("pgbouncer", "/tmp/t/pooler/pgbouncer.ini")


def test_reads_where_it_leads(pooler: PgBouncer) -> None:
    assert pooler.states(DATABASES) == pooler.expected_states
    assert pooler.states(DATABASES.replace("0,1,0,0", "0,1,1,0")) != pooler.expected_states
    assert pooler.states(DATABASES.replace("0.2,", "0.3,")).keys() == {"standby1"}
    assert pooler.sent("") == {}
