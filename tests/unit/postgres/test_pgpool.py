"""Pgpool-II: the files and commands that it is given, and what it says of the servers behind it."""

from __future__ import annotations

import pytest

from fake_host import FakeHost
from pgstrata.errors import NotUnderstood
from pgstrata.postgres.binaries import Installation
from pgstrata.postgres.pooler import Pgpool, Sent
from pgstrata.postgres.server import Server, ServerDirectories
from pgstrata.postgres.standby import password_of, render_passfile
from pgstrata.stack.network import Link

NODES = """\
node_id,hostname,port,status,pg_status,lb_weight,role,pg_role,select_cnt
0,198.18.0.2,5432,up,unknown,0.500000,primary,unknown,0
1,198.18.0.3,5432,waiting,unknown,0.500000,standby,unknown,0
"""
STATISTICS = """\
node_id,hostname,port,status,role,select_cnt,insert_cnt,update_cnt,delete_cnt,ddl_cnt,other_cnt,panic_cnt
0,198.18.0.2,5432,up,primary,12,10,30,1,2,30,0
1,198.18.0.3,5432,up,standby,15,0,0,0,0,23,0
"""


@pytest.fixture
def pooler() -> Pgpool:
    installation = Installation(15, "15.1", "system", "/pg/bin", "/pg/bin", 15)
    server = Server(FakeHost(), installation, "postgres", ServerDirectories("/data"), marker="b0")
    backends = {"primary": "198.18.0.2", "standby1": "198.18.0.3"}
    return Pgpool(server, Link("driver", "/run/net.driver", "198.18.0.1"), backends, "/tmp/t/pooler", 8)


def test_it_listens_on_its_own_node_alone_and_asks_for_passwords(pooler: Pgpool) -> None:
    settings, hba, passwords, pcp = pooler.render_files("secret")
    assert "listen_addresses = '198.18.0.1'\n" in settings
    assert "enable_pool_hba = 'on'\n" in settings
    assert "pcp_listen_addresses = ''\n" in settings
    assert hba == "host all postgres 198.18.0.1/32 scram-sha-256\n"
    assert (passwords, pcp) == ("postgres:TEXTsecret\n", "")
    assert "secret" not in settings


def test_every_server_is_behind_it_and_none_may_be_left_out(pooler: Pgpool) -> None:
    settings = pooler.settings
    assert (settings["backend_hostname0"], settings["backend_hostname1"]) == ("198.18.0.2", "198.18.0.3")
    assert {settings[f"backend_flag{number}"] for number in (0, 1)} == {"DISALLOW_TO_FAILOVER"}
    assert int(settings["num_init_children"]) > 8


def test_its_files_are_private_before_they_are_written(pooler: Pgpool) -> None:
    commands = pooler.plan_configure()
    assert {command.user for command in commands} == {"postgres"}
    made, written = commands[: len(Pgpool.files)], commands[len(Pgpool.files) :]
    assert all(command.argv[:3] == ("install", "--mode", "0600") for command in made)
    assert [command.argv[-1] for command in made] == [command.argv[-1] for command in written]


def test_it_runs_unprivileged_on_its_node_with_shared_memory_of_its_own(pooler: Pgpool) -> None:
    start = pooler.plan_start()
    assert start.argv[:5] == ("nsenter", "--net=/run/net.driver", "unshare", "--ipc", "chroot")
    assert start.argv[5] == "--userspec=postgres"
    assert ("PGSTRATA_TRIAL", "b0") in start.env


def test_reads_of_each_node_whether_it_is_up_and_as_what(pooler: Pgpool) -> None:
    assert pooler.states(NODES) == pooler.expected_states == {"primary": "up primary", "standby1": "up standby"}
    changed = pooler.states(NODES.replace("waiting", "down"))
    assert changed["standby1"] == "down standby"


def test_reads_what_was_sent_to_each_node(pooler: Pgpool) -> None:
    assert pooler.sent(STATISTICS) == {"primary": Sent(12, 43), "standby1": Sent(15, 0)}


@pytest.mark.parametrize("text", ["a,b\n1,2\n", STATISTICS.replace("12,10", "x,10")])
def test_says_when_it_does_not_understand(pooler: Pgpool, text: str) -> None:
    with pytest.raises(NotUnderstood, match="POOL_BACKEND_STATS"):
        pooler.sent(text)


def test_its_password_is_that_of_the_passfile() -> None:
    assert password_of(render_passfile("postgres", "abc")) == "abc"
