"""Maps blocks of a disk to files of its filesystem, and files of a server to relations. Pure.

`place_client` reads the locations of files on the host. ext4 and xfs report addresses on the device. Those of btrfs are
its own, and its chunks map them to offsets on its devices.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgstrata.errors import parser_of
from pgstrata.host.protocol import Command

PLACES_TIMEOUT_S = 120.0
CATALOG = (
    "SELECT json_object_agg(pg_relation_filepath(c.oid), n.nspname || '.' || c.relname)::text AS relations "
    "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE pg_relation_filepath(c.oid) IS NOT NULL;\n"
)
"""A statement for a single-user server: the names of relations by their files."""

_CLIENT = Path(__file__).with_name("place_client.py")
_SEGMENT = re.compile(r"(?:_(?:fsm|vm|init))?(?:\.\d+)?$")


@dataclass(frozen=True)
class Extent:
    """A part of a file: its offset in the file and its address in the filesystem."""

    start: int
    address: int
    length: int


@dataclass(frozen=True)
class Chunk:
    """A range of a btrfs' addresses, whole on each of its stripes: (disk, offset there)."""

    address: int
    length: int
    stripes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class VolumeFiles:
    """A volume's files with their extents, by path below the mount point. With chunks, addresses are a btrfs'."""

    files: Mapping[str, tuple[Extent, ...]]
    chunks: tuple[Chunk, ...] = ()
    scattered: bool = False
    """True if there are striped chunks, which are not followed."""


@dataclass(frozen=True)
class FilePart:
    """A part of a range on a disk, and its file: empty if it belongs to none, None if unknown."""

    offset: int
    length: int
    file: str | None = ""
    file_offset: int = 0


@dataclass(frozen=True)
class Layout:
    """The location of all files, by disk: its volume, and its number there. A disk that is missing holds no file: it is
    a device of the filesystem's own, as that of an external journal."""

    volumes: tuple[VolumeFiles, ...]
    disks: Mapping[str, tuple[int, int]]
    names: tuple[tuple[str, str], ...] = field(default=())
    """For each volume: PostgreSQL's folder below its mount point, and its path in the data directory."""

    def parts(self, disk: str, offset: int, length: int) -> tuple[FilePart, ...]:
        """Splits a range of a disk into parts that belong to one file or to none."""
        if disk not in self.disks:
            return (FilePart(offset, length),)
        number, device = self.disks[disk]
        found = [self._named(number, part) for part in _parts(self.volumes[number], device, offset, length)]
        return tuple(_joined(found))

    def _named(self, number: int, part: FilePart) -> FilePart:
        folder, name = self.names[number]
        if part.file is None or not part.file.startswith(f"{folder}/"):
            return part
        return FilePart(part.offset, part.length, name + part.file.removeprefix(f"{folder}/"), part.file_offset)


def plan_places(mount_points: Sequence[str]) -> Command:
    """Reads the locations of files below mount points; run where a state is mounted."""
    return Command(
        ("python3", "-I", "-", *mount_points), PLACES_TIMEOUT_S, _CLIENT.read_text(encoding="utf-8"), user="root"
    )


@parser_of("the client of places")
def parse_places(text: str) -> tuple[VolumeFiles, ...]:
    return tuple(_parse_volume(given["files"], given["chunks"]) for given in json.loads(text))


def _parse_volume(files: Mapping[str, list[list[int]]], chunks: str) -> VolumeFiles:
    found = parse_chunks(chunks)
    whole = tuple(chunk for chunk in found if chunk is not None)
    extents = {path: tuple(Extent(*map(int, part)) for part in parts) for path, parts in files.items()}
    return VolumeFiles(extents, whole, scattered=len(whole) < len(found))


_CHUNK = re.compile(r"CHUNK_ITEM (\d+)\)")
_LENGTH = re.compile(r"^\s*length (\d+) .*\btype (\S+)")
_STRIPE = re.compile(r"^\s*stripe \d+ devid (\d+) offset (\d+)")
_IN_STRIPES = ("RAID0", "RAID10", "RAID5", "RAID6")


@parser_of("btrfs inspect-internal dump-tree")
def parse_chunks(text: str) -> tuple[Chunk | None, ...]:
    """Parses every chunk of a btrfs; None for one whose stripes each hold a part of it."""
    found: list[Chunk | None] = []
    for item in re.split(r"^\s*item ", text, flags=re.MULTILINE):
        key = _CHUNK.search(item.split("\n", 1)[0])
        if key is None:
            continue
        lines = item.split("\n")
        length, kind = next(match.groups() for match in map(_LENGTH.match, lines) if match)
        stripes = [match.groups() for match in map(_STRIPE.match, lines) if match]
        where = tuple((int(device) - 1, int(offset)) for device, offset in stripes)
        scattered = any(word in _IN_STRIPES for word in kind.split("|"))
        found.append(None if scattered else Chunk(int(key[1]), int(length), where))
    return tuple(found)


def _parts(volume: VolumeFiles, device: int, offset: int, length: int) -> Iterator[FilePart]:
    """The files' parts of a range of a device, and the gaps between them, in order."""
    at, nobody = offset, None if volume.scattered else ""
    for found in sorted(_hits(volume, device, offset, length), key=lambda part: part.offset):
        if found.offset > at:
            yield FilePart(at, found.offset - at, nobody)
        if found.offset >= at:
            yield found
            at = found.offset + found.length
    if at < offset + length:
        yield FilePart(at, offset + length - at, nobody)


def _hits(volume: VolumeFiles, device: int, offset: int, length: int) -> Iterator[FilePart]:
    """The extents that a range hits; of files that share an extent, the alphabetically first."""
    for address, at, most in _addresses(volume, device, offset, length):
        for path, extents in sorted(volume.files.items()):
            for extent in extents:
                start, end = max(address, extent.address), min(address + most, extent.address + extent.length)
                if start < end:
                    yield FilePart(at + start - address, end - start, path, extent.start + start - extent.address)


def _addresses(volume: VolumeFiles, device: int, offset: int, length: int) -> Iterator[tuple[int, int, int]]:
    """The addresses of a range of a device: (address, offset on the device, length)."""
    if not volume.chunks and not volume.scattered:
        yield offset, offset, length
    for chunk in volume.chunks:
        for number, begins in chunk.stripes:
            start, end = max(offset, begins), min(offset + length, begins + chunk.length)
            if number == device and start < end:
                yield chunk.address + start - begins, start, end - start


def _joined(parts: Sequence[FilePart]) -> Iterator[FilePart]:
    """Joins neighbours of one file."""
    last: FilePart | None = None
    for part in parts:
        if last and last.file == part.file and (not part.file or last.file_offset + last.length == part.file_offset):
            last = FilePart(last.offset, last.length + part.length, last.file, last.file_offset)
            continue
        if last:
            yield last
        last = part
    if last:
        yield last


@parser_of("postgres --single")
def parse_relations(values: Mapping[str, str]) -> dict[str, str]:
    """Names of relations by their files below the data directory; empty if they were not answered."""
    return {str(path): str(name) for path, name in json.loads(values.get("relations", "{}")).items()}


def relation_of(file: str, relations: Mapping[str, str]) -> str:
    """The relation that a file below the data directory belongs to, whatever its fork and segment; empty for none."""
    return relations.get(_SEGMENT.sub("", file), "")
