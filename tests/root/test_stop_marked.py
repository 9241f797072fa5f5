"""A PostgreSQL server is ended by its marker alone: by a fast shutdown, with nothing of it left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pgstrata.host.agent.processes import marked_processes
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Command, command
from pgstrata.postgres.binaries import discover

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become the user that a server needs"),
]


def test_postgresql_is_shut_down_fast_with_all_its_processes() -> None:
    host = LocalHost()
    system = next((i for i in discover(host) if i.source == "system"), None)
    if system is None:
        pytest.skip("no system PostgreSQL, whose programs any user can read")
    place = f"/var/tmp/pgstrata-test-{os.getpid()}"
    marker = f"pg-{os.getpid()}"
    host.make_directory(place, mode=0o700, owner="nobody")
    try:
        data, log = f"{place}/data", f"{place}/log"
        initdb = ("--no-sync", "--auth", "trust", "--username", "nobody")
        host.run(Command((system.program("initdb"), "--pgdata", data, *initdb), user="nobody"))
        argv = (system.program("postgres"), "-D", data, "-k", place, "-c", "listen_addresses=")
        server = host.start(Command(argv, user="nobody", env=(("PGSTRATA_TRIAL", marker),)), stdout=log, stderr=log)
        while "ready to accept connections" not in host.read_text(log):
            assert server.poll() is None, host.read_text(log)
        psql = (system.program("psql"), "-X", "-h", place, "-d", "postgres", "-c", "SELECT pg_sleep(300)")
        session = host.start(Command(psql, user="nobody"), stdout=f"{place}/psql", stderr=f"{place}/psql")
        assert len(marked_processes(marker)) > 3
        ended = host.stop_marked(marker, 30)
        assert server.pid in ended
        assert session.pid not in ended
        assert server.wait(10) == 0
        assert session.wait(10) == 2
        assert "received fast shutdown request" in host.read_text(log)
        assert "database system is shut down" in host.read_text(log)
        assert marked_processes(marker) == {}
    finally:
        host.stop_marked(marker, 5)
        host.remove(place)
    assert not Path(place).exists()


def test_the_caller_is_never_among_the_marked() -> None:
    """A run that was itself started with a marker (from a trial's shell) must not end itself."""
    host = LocalHost()
    marker = f"self-{os.getpid()}"
    program = f"from pgstrata.host.local import LocalHost\nprint(LocalHost().stop_marked({marker!r}, 1))\n"
    done = host.run(Command((sys.executable, "-c", program), env=(("PGSTRATA_TRIAL", marker),)))
    assert done.stdout == "()\n"
    assert host.run(command("true")).exit_code == 0
