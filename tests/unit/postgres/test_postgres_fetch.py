"""What a registry hands out is compared before it is unpacked. The registry is a program of this test."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_host import completed
from pgstrata.errors import PgstrataError
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Command, Completed
from pgstrata.postgres.fetch import Release, check_listing, known_release, unpack


class Registry(LocalHost):
    """This host, with an npm that hands out what `serve` was given; `named` is what it prints."""

    def __init__(self, folder: Path) -> None:
        super().__init__(state_directory=str(folder / "state"))
        self.packed = b""
        self.named = "the-package.tgz"

    def serve(self, *members: tuple[tarfile.TarInfo, bytes]) -> Release:
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode="w:gz") as archive:
            for member, content in members:
                archive.addfile(member, io.BytesIO(content))
        self.packed = written.getvalue()
        return Release("@some/package", "17.1", hashlib.sha512(self.packed).hexdigest())

    def run(self, command: Command, *, check: bool = True) -> Completed:
        if command.argv[0] != "npm":
            return super().run(command, check=check)
        folder = command.argv[command.argv.index("--pack-destination") + 1]
        Path(folder, "the-package.tgz").write_bytes(self.packed)
        return completed(command.argv, f"{self.named}\n")


def _file(name: str, content: bytes) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = 0o755
    return member, content


def _link(name: str, to: str) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, to
    return member, b""


LINKS = b'[{"source": "native/lib/libpq.so.5.1", "target": "native/lib/libpq.so.5"}]'
GOOD = (
    _file("package/native/bin/postgres", b"#!/bin/sh"),
    _file("package/native/lib/libpq.so.5.1", b"x"),
    _file("package/native/pg-symlinks.json", LINKS),
)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    host = Registry(tmp_path)
    yield host
    host.close()


def test_what_is_known_is_unpacked_with_its_links(registry: Registry, tmp_path: Path) -> None:
    unpack(registry, registry.serve(*GOOD), str(tmp_path / "17.1"))
    assert (tmp_path / "17.1/bin/postgres").read_bytes() == b"#!/bin/sh"
    assert (tmp_path / "17.1/lib/libpq.so.5").readlink() == Path("libpq.so.5.1")
    assert not (tmp_path / "17.1.partial").exists()


def test_another_archive_is_refused_before_it_is_unpacked(registry: Registry, tmp_path: Path) -> None:
    known = registry.serve(*GOOD)
    registry.serve(*GOOD, _file("package/native/bin/more", b"y"))
    with pytest.raises(PgstrataError, match="is not what was published"):
        unpack(registry, known, str(tmp_path / "17.1"))
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("17.1")]


@pytest.mark.parametrize(
    "member",
    [
        _file("/etc/absolute", b""),
        _file("package/../../outside", b""),
        _file("elsewhere/file", b""),
        _file("other\n/file", b""),
        _link("package/native/lib/x", "/etc/passwd"),
    ],
)
def test_a_package_of_files_and_folders_alone(
    registry: Registry, tmp_path: Path, member: tuple[tarfile.TarInfo, bytes]
) -> None:
    with pytest.raises(PgstrataError, match="something else than files and folders"):
        unpack(registry, registry.serve(*GOOD, member), str(tmp_path / "17.1"))
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("17.1")]


@pytest.mark.parametrize("named", ["../x.tgz", "-x.tgz", "a b.tgz", "x", "/etc/passwd"])
def test_a_strange_name_of_the_archive(registry: Registry, tmp_path: Path, named: str) -> None:
    registry.named = named
    with pytest.raises(PgstrataError, match="named no archive"):
        unpack(registry, registry.serve(*GOOD), str(tmp_path / "17.1"))


def test_sizes_have_bounds() -> None:
    line = "-rw-r--r-- 0/0 {size} 1985-10-26 08:15 package/x{n}"
    with pytest.raises(PgstrataError, match="would unpack to"):
        check_listing(line.format(size=2 << 30, n=0))
    with pytest.raises(PgstrataError, match="would unpack to"):
        check_listing("\n".join(line.format(size=1, n=n) for n in range(20_001)))
    check_listing(line.format(size=5, n=1))


@pytest.mark.parametrize(("machine", "majors"), [("x86_64", range(13, 19)), ("aarch64", range(15, 19))])
def test_known_releases(machine: str, majors: range) -> None:
    for major in majors:
        release = known_release(machine, major)
        assert release.version.startswith(f"{major}.")
        assert len(bytes.fromhex(release.sha512)) == 64
