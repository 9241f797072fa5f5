"""Files of a campaign, which anybody may have written: a directory, or a zip of one; bounded JSON."""

from __future__ import annotations

import errno
import io
import json
import lzma
import os
import stat
import struct
import zipfile
import zlib
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

from pgstrata.errors import UsageError

MAX_JSON_BYTES = 16 << 20
MAX_NODES = 1_000_000
"""Values of one file of JSON: each takes some sixty bytes of memory, and as little as three of the file."""


def parse_json(content: bytes) -> Any:
    """Parse a whole file. ValueError for more than the bounds, and for anything that is not JSON."""
    require_bounded(content)
    return parse_text(content.decode(json.detect_encoding(content)))


def require_bounded(content: bytes) -> None:
    """Raise ValueError for more than the bounds."""
    if len(content) > MAX_JSON_BYTES:
        raise ValueError(f"it is longer than {MAX_JSON_BYTES} bytes")
    if sum(map(content.count, (b",", b"[", b"{"))) > MAX_NODES:
        raise ValueError(f"it holds more than {MAX_NODES} values")


def parse_text(text: str) -> Any:
    """Parse a text whose size is known to be within the bounds."""
    return _DECODER.decode(text)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text[:30]} is too large")
    return value


def _integer(text: str) -> int:
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{text[:30]} is too large")
    return value


_DECODER = json.JSONDecoder(parse_constant=_no_number, parse_int=_integer, parse_float=_finite)


MAX_MEMBER_BYTES = 2 << 30
SMALL_BYTES = 16 << 20
MAX_RATIO = 200
"""Unpacked to packed size of a member above SMALL_BYTES; logs of pgbench shrink to a tenth."""
MAX_MEMBERS = 1_000_000

_UNPACK_ERRORS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError, EOFError, RuntimeError, ValueError,
)  # fmt: skip

NO_LINKS = "put the file itself there, or remove the link: what it leads to may be no part of the campaign"
DAMAGED = "the file was changed or damaged: copy the directory again, whole, or open it with the version that wrote it"


_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP, errno.ENAMETOOLONG)


class Source(Protocol):
    """Place of the files of a campaign."""

    @property
    def text(self) -> str: ...

    def trials(self, folder: str = "trials") -> tuple[str, ...]:
        """Names of the finished trials, sorted: the folders below `folder`, whether or not their files are there."""
        ...

    def has(self, name: str) -> bool:
        """True if there is that file; names are relative to the campaign directory, with `/`."""
        ...

    def below(self, folder: str) -> tuple[str, ...]:
        """Every file below a folder, sorted; a link to a folder is not followed, and counts as a file."""
        ...

    def open(self, name: str, most_bytes: int = MAX_MEMBER_BYTES) -> io.BufferedIOBase:
        """The content of a file; UsageError where it would have to be unpacked to more than `most_bytes`."""
        ...


@dataclass(frozen=True)
class FolderSource:
    """A campaign directory."""

    root: Path

    @property
    def text(self) -> str:
        return str(self.root)

    def trials(self, folder: str = "trials") -> tuple[str, ...]:
        # The trial that is being written comes and goes; its name begins with a dot.
        return tuple(sorted(p.name for p in (self.root / folder).glob("[!.]*") if p.is_dir()))

    def has(self, name: str) -> bool:
        try:
            return stat.S_ISREG(os.stat(f"{self.root}/{name}").st_mode)
        except OSError as error:
            # names come from the record, which may be damaged: no file has one that is too long
            if error.errno in _NOT_THERE:
                return False
            raise
        except ValueError:  # a zero byte in it
            return False

    def below(self, folder: str) -> tuple[str, ...]:
        files = (p for p in (self.root / folder).rglob("*") if p.is_file() or p.is_symlink())
        return tuple(sorted(p.relative_to(self.root).as_posix() for p in files))

    def open(self, name: str, most_bytes: int = MAX_MEMBER_BYTES) -> io.BufferedIOBase:
        try:
            return open(f"{self.root}/{name}", "rb")
        except OSError as error:
            raise UsageError(f"{self.text}/{name} cannot be read: {error.strerror}", hint=DAMAGED) from None

    def open_own(self, name: str) -> io.BufferedIOBase:
        """The same for a file that lies below the directory itself: UsageError where a link leads to it.

        Every component is opened by itself, so that nothing can be exchanged between a look and its use.
        """
        *folders, last = name.split("/")
        at = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for folder in folders:
                below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = below
            file = os.fdopen(os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at), "rb")
        except OSError as error:
            linked = error.errno in (errno.ELOOP, errno.ENOTDIR)
            what = "is a link, or lies behind one" if linked else f"cannot be read: {error.strerror}"
            raise UsageError(f"{self.text}/{name} {what}", hint=NO_LINKS) from None
        finally:
            os.close(at)
        found, owner = os.fstat(file.fileno()), os.stat(self.root).st_uid
        if not stat.S_ISREG(found.st_mode) or (found.st_nlink > 1 and found.st_uid != owner):
            file.close()
            what = "a hard link to a file of another user" if stat.S_ISREG(found.st_mode) else "not a file"
            raise UsageError(f"{self.text}/{name} is {what}", hint=NO_LINKS)
        return file


@dataclass(frozen=True)
class ZipSource:
    """A zipped campaign directory; the campaign may lie below folders of the zip."""

    path: Path
    prefix: str
    archive: zipfile.ZipFile = field(repr=False, compare=False)

    @property
    def text(self) -> str:
        return str(self.path)

    @cached_property
    def _names(self) -> list[str]:
        cut = len(self.prefix)
        names = self.archive.namelist()
        return sorted({n[cut:] for n in names if n.startswith(self.prefix) and not n.endswith("/")})

    def trials(self, folder: str = "trials") -> tuple[str, ...]:
        root = f"{self.prefix}{folder}/"
        below = (n.removeprefix(root) for n in self.archive.namelist() if n.startswith(root))
        return tuple(sorted({n.split("/", 1)[0] for n in below if "/" in n and not n.startswith(("/", "."))}))

    def has(self, name: str) -> bool:
        at = bisect_left(self._names, name)
        return at < len(self._names) and self._names[at] == name

    def below(self, folder: str) -> tuple[str, ...]:
        # "0" follows "/".
        first, end = (bisect_left(self._names, f"{folder}{last}") for last in "/0")
        return tuple(self._names[first:end])

    def open(self, name: str, most_bytes: int = MAX_MEMBER_BYTES) -> io.BufferedIOBase:
        member = self.archive.getinfo(self.prefix + name)
        packed_bytes = max(member.compress_size, 1)
        if member.file_size > most_bytes or member.file_size > SMALL_BYTES + MAX_RATIO * packed_bytes:
            raise UsageError(
                f"{self.text}/{name} would unpack to {member.file_size} bytes from {member.compress_size}",
                hint="no record packs so well: it is not what pgstrata wrote; unpack it yourself if you trust it",
            )
        try:
            return io.BytesIO(self.archive.read(member))
        except (*_UNPACK_ERRORS, MemoryError) as error:
            why = str(error) or "not enough memory"
            raise UsageError(f"{self.text}/{name} cannot be unpacked: {why}", hint=DAMAGED) from None


def open_source(directory: Path) -> Source:
    """UsageError where there is no campaign."""
    hint = "name the folder that `pgstrata run` or `pgstrata import` wrote, or a zip of it"
    if directory.is_dir():
        if not (directory / "campaign.json").is_file():
            raise UsageError(f"{directory} is no campaign directory: it has no campaign.json", hint=hint)
        return FolderSource(directory)
    if not directory.is_file():
        raise UsageError(f"no campaign directory at {directory}", hint=hint)
    if not zipfile.is_zipfile(directory):
        raise UsageError(f"{directory} is neither a campaign directory nor a zip of one", hint=hint)
    archive = _open_zip(directory)
    found = sorted((n for n in archive.namelist() if n.rsplit("/", 1)[-1] == "campaign.json"), key=len)
    if not found:
        archive.close()
        raise UsageError(f"{directory} holds no campaign: there is no campaign.json in it", hint=hint)
    return ZipSource(directory, found[0].removesuffix("campaign.json"), archive)


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(path)
    except _UNPACK_ERRORS as error:
        raise UsageError(f"{path} cannot be unpacked: {error}", hint=DAMAGED) from None
    count = len(archive.namelist())
    if count > MAX_MEMBERS:
        archive.close()
        raise UsageError(f"{path} holds {count} files, more than {MAX_MEMBERS}", hint="unpack it, and name the folder")
    return archive
