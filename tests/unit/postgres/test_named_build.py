"""A build that a stack names by its folder: asked; where others can change it, refused before root runs any of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pgstrata.errors import PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import FileStatus
from pgstrata.postgres.binaries import Installation
from pgstrata.postgres.golden import golden_key
from pgstrata.postgres.named import named_installation
from pgstrata.spec.stack import Postgres

POSTGRES = """#!/bin/sh
touch {ran}
case "$*" in
  --version) echo "postgres (PostgreSQL) {version}" ;;
  *block_size*) echo 8192 ;;
  *) exit 1 ;;
esac
"""
PG_CONFIG = """#!/bin/sh
case "$1" in
  --version) echo "PostgreSQL {version}" ;;
  --configure) echo "'--with-lz4'" ;;
esac
"""
SYSTEM = Installation(15, "15.18", "system", "/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/15/bin", 15)


class RootsHost(LocalHost):
    """Everything outside of the tree is root's and closed to others, and what root would run is run."""

    tree = ""

    def status(self, path: str, *, follow: bool = True) -> FileStatus | None:
        found = super().status(path, follow=follow)
        outside = not path.startswith(self.tree)
        return replace(found, uid=0, gid=0, mode=0o755) if found is not None and outside else found


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """Is there when a program of the build was run."""
    return tmp_path / "ran"


@pytest.fixture
def tree(tmp_path: Path, ran: Path) -> Path:
    folder = tmp_path / "pgsql"
    return build(folder, ran)


def build(folder: Path, ran: Path, version: str = "18.1-patched (us)", config: str = "18.1-patched") -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    programs = {"postgres": POSTGRES.format(ran=ran, version=version), "pg_config": PG_CONFIG.format(version=config)}
    for name in ("postgres", "initdb", "pg_ctl", "psql", "pgbench", "pg_config"):
        (folder / "bin" / name).write_text(programs.get(name, "#!/bin/sh\n"))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    return folder


def host_of(tree: Path) -> RootsHost:
    host = RootsHost()
    host.tree = str(tree)
    return host


def named(tree: Path, major: int | None = None, *, as_root: bool = False) -> Installation:
    return named_installation(host_of(tree), Postgres(installation=str(tree), major=major), [SYSTEM], as_root=as_root)


def test_it_says_what_it_is(tree: Path) -> None:
    found = named(tree, major=18)
    assert (found.major, found.version, found.exact) == (18, "18.1", "18.1-patched (us)")
    assert found.title == f"18.1-patched (us) ({tree})"
    assert found.configured == "'--with-lz4'"
    assert found.bin_directory == found.client_directory == f"{tree}/bin"
    assert len(found.digest) == 64


def test_a_link_is_followed_once(tree: Path, tmp_path: Path) -> None:
    link = tmp_path / "current"
    link.symlink_to(tree)
    assert named(link).bin_directory == f"{tree}/bin"


def test_a_server_without_clients_borrows_them(tree: Path) -> None:
    (tree / "bin/psql").unlink()
    with pytest.raises(PreflightError, match="has no psql and pgbench, and no other one has"):
        named_installation(host_of(tree), Postgres(installation=str(tree)), [], as_root=False)


def test_two_builds_have_golden_copies_of_their_own(tree: Path, tmp_path: Path, ran: Path) -> None:
    other = build(tmp_path / "other", ran, version="18.1-other", config="18.1")
    builds = [named(tree), named(other), replace(named(tree), digest="")]
    assert len({golden_key(one, {"scale": 1}) for one in builds}) == 3


REFUSALS: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing there": (lambda t: t.rename(t.with_name("gone")), "is no folder"),
    "the folder of the programs": (lambda t: (t / "bin").rename(t / "sbin"), "has no bin/postgres"),
    "no initdb": (lambda t: (t / "bin/initdb").unlink(), "has no bin/initdb"),
    "does not run": (lambda t: (t / "bin/postgres").write_text("#!/bin/sh\nexit 3\n"), "bin/postgres does not run"),
    "is something else": (lambda t: (t / "bin/postgres").write_text("#!/bin/sh\necho hello\n"), "not a PostgreSQL ver"),
    "too old": (
        lambda t: (t / "bin/postgres").write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 9.6.1'\n"),
        "older than any",
    ),
    "two versions": (
        lambda t: (t / "bin/pg_config").write_text("#!/bin/sh\necho PostgreSQL 17.2\n"),
        "is of two versions: bin/postgres 18.1, bin/pg_config PostgreSQL 17.2",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_no_build_is_refused(name: str, tree: Path) -> None:
    spoil, message = REFUSALS[name]
    spoil(tree)
    with pytest.raises(PreflightError, match=message) as error:
        named(tree)
    assert error.value.hint


def test_another_major_than_asked_is_refused(tree: Path) -> None:
    with pytest.raises(PreflightError, match=r"holds PostgreSQL 18\.1, not 17"):
        named(tree, major=17)


def _link_out(tree: Path) -> None:
    target = tree.with_name("elsewhere")
    target.mkdir()
    (target / "libpq.so").write_text("")
    target.chmod(0o777)
    (tree / "lib/libpq.so").symlink_to(target / "libpq.so")


def _open_library(tree: Path) -> None:
    (tree / "lib/x.so").write_text("")
    (tree / "lib/x.so").chmod(0o666)


def _open_to_a_group(tree: Path) -> None:
    os.chown(tree / "bin", 0, 1234)
    (tree / "bin").chmod(0o775)


UNSAFE: dict[str, tuple[Callable[[Path], object], str]] = {
    "its folder": (lambda t: t.chmod(0o777), "can be written to by everybody"),
    "a program": (lambda t: (t / "bin/postgres").chmod(0o757), "bin/postgres .* can be written to by others"),
    "a library": (_open_library, r"lib/x\.so"),
    "a program of another's": (lambda t: shutil.chown(t / "bin/initdb", 1234), "bin/initdb belongs to another user"),
    "a group": (_open_to_a_group, "/bin belongs to another"),
}


@pytest.mark.skipif(os.geteuid() != 0, reason="the tree must be root's: run as root")
@pytest.mark.parametrize("name", UNSAFE)
def test_root_runs_nothing_that_others_can_change(name: str, tree: Path, ran: Path) -> None:
    spoil, message = UNSAFE[name]
    spoil(tree)
    with pytest.raises(PreflightError, match=message) as error:
        named(tree, as_root=True)
    assert "which others can change" in error.value.message
    assert "chmod -R go-w" in error.value.hint
    assert not ran.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="the tree must be root's: run as root")
def test_a_link_to_where_others_can_write_is_seen(tree: Path, ran: Path, tmp_path: Path) -> None:
    _link_out(tree)
    host = host_of(tmp_path)
    tmp_path.chmod(0o755)
    with pytest.raises(PreflightError, match="elsewhere can be written to by everybody"):
        named_installation(host, Postgres(installation=str(tree)), [], as_root=True)
    assert not ran.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="the tree must be root's: run as root")
def test_a_safe_build_is_taken_and_one_closed_to_the_servers_user_is_not(tree: Path, ran: Path) -> None:
    assert named(tree, as_root=True).version == "18.1"
    ran.unlink()
    tree.chmod(0o700)
    with pytest.raises(PreflightError, match="the server's user cannot read installation"):
        named(tree, as_root=True)
    assert not ran.exists()
