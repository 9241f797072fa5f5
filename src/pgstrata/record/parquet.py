"""Series as Parquet files with the columns of `record.schema`: flat, nullable columns of numbers and text, zstd.

This is the part of the format that series need (parquet.apache.org/docs/file-format: thrift's compact protocol, pages
of version 1, plain and dictionary encoding), as pyarrow and `render_parquet` write it. The reason is size: pyarrow
takes 171 MB, more than the rest of the core. Arrow's Rust reader (arro3) is smaller, but a damaged file ends its
process. Content is untrusted: sizes are checked before memory is taken, and any other content is a ValueError.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pgstrata.record.schema import (
    CHECKPOINT_COLUMNS,
    DEVICE_COLUMNS,
    LONGEST_RUN_S,
    POSTGRES_COLUMNS,
    PROGRESS_COLUMNS,
    SYSTEM_COLUMNS,
    WAIT_COLUMNS,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Column = npt.NDArray[Any]
"""Numbers as float64, NaN where a value is missing; text as objects, then None."""
Table = Mapping[str, Column]
Values = Mapping[str, Sequence[Any] | Column]
"""A table to write; None may stand for missing numbers, too."""

FLOAT, INTEGER, TEXT = "float", "integer", "text"
_TYPES = {FLOAT: 5, INTEGER: 2, TEXT: 6}
_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8
_UNCOMPRESSED, _ZSTD = 0, 6
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_OPTIONAL, _UTF8 = 1, 0
_MAGIC = b"PAR1"
_DEPTH = 16
"""Structures within structures; metadata has five."""
_WIDEST = 24
"""Bits of an index into a dictionary."""


# ---------------------------------------------------------------- thrift's compact protocol


@dataclass
class _Reader:
    """A place in bytes of metadata or of a page."""

    content: bytes
    at: int = 0

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.content[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self.content) - self.at:
            raise ValueError("it ends too early")
        self.at += count
        return self.content[self.at - count : self.at]

    def value(self, kind: int, depth: int) -> Any:
        if kind in (4, 5, 6):
            number = self.varint()
            return (number >> 1) ^ -(number & 1)
        if kind == 8:
            return self.take(self.varint())
        if kind == 12:
            return self.structure(depth + 1)
        if kind in (9, 10):
            head = self.take(1)[0]
            count = head >> 4 if head >> 4 < 15 else self.varint()
            if count > len(self.content):
                raise ValueError("a list is longer than the file")
            return [self.value(head & 15, depth + 1) for _ in range(count)]
        if kind in (1, 2, 3):
            return self.take(1)[0]
        if kind == 7:
            return self.take(8)
        raise ValueError(f"a field of the unknown type {kind}")

    def structure(self, depth: int = 0) -> dict[int, Any]:
        """Return the fields of a structure by their numbers."""
        if depth > _DEPTH:
            raise ValueError("its metadata has too many levels")
        fields: dict[int, Any] = {}
        number = 0
        while head := self.take(1)[0]:
            step, kind = head >> 4, head & 15
            number = number + step if step else self.value(5, depth)
            fields[number] = kind == 1 if kind in (1, 2) else self.value(kind, depth)
        return fields


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _structure(fields: Mapping[int, Any]) -> bytes:
    """Render a structure: integers as i64 but for pairs with their type, bytes, lists and further structures."""
    out, before = bytearray(), 0
    for number, value in fields.items():
        kind, content = _rendered(value)
        out += bytes(((number - before) << 4 | kind,)) + content
        before = number
    return bytes(out) + b"\0"


@dataclass(frozen=True)
class _Short:
    """A number of 32 bits."""

    value: int


def _rendered(value: Any) -> tuple[int, bytes]:
    if isinstance(value, _Short):
        return 5, _varint(value.value << 1)
    if isinstance(value, int):
        return 6, _varint(value << 1)
    if isinstance(value, bytes):
        return 8, _varint(len(value)) + value
    if isinstance(value, list):
        parts = [_rendered(one) for one in value]
        kind = parts[0][0] if parts else 12
        return 9, bytes((0xF0 | kind,)) + _varint(len(parts)) + b"".join(content for _, content in parts)
    return 12, _structure(value)


# ---------------------------------------------------------------- levels and indices


def _unpacked(reader: _Reader, width: int, count: int) -> npt.NDArray[np.int64]:
    """Return `count` numbers of `width` bits from runs of equal numbers and of packed ones."""
    if width > _WIDEST:
        raise ValueError(f"indices of {width} bits")
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    packed, runs, place = bytearray(), [], 0
    while place < count:
        head = reader.varint()
        length = min((head >> 1) * (8 if head & 1 else 1), count - place)
        if length == 0:
            raise ValueError("a run of no values")
        if head & 1:
            packed += reader.take(-(-length // 8) * width)
            runs.append((length, True, 0))
        else:
            runs.append((length, False, int.from_bytes(reader.take((width + 7) // 8), "little")))
        place += length
    lengths, is_packed, values = (np.array(one, dtype=np.int64) for one in zip(*runs, strict=True))
    found = np.repeat(values, lengths)
    if packed:
        bits = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little").reshape(-1, width)
        inside = np.repeat(is_packed, lengths).astype(bool)
        found[inside] = (bits @ (1 << np.arange(width)))[: inside.sum()]
    return found


def _packed(values: npt.NDArray[np.int64], width: int) -> bytes:
    groups = -(-values.size // 8)
    bits = np.zeros((groups * 8, width), dtype=np.uint8)
    bits[: values.size] = values[:, None] >> np.arange(width) & 1
    return _varint(groups << 1 | 1) + np.packbits(bits, bitorder="little").tobytes()


# ---------------------------------------------------------------- reading


@dataclass(frozen=True)
class ParquetFile:
    """A file whose metadata was read; columns are read when needed."""

    content: bytes
    kinds: Mapping[str, str]
    """Name of each column to FLOAT, INTEGER or TEXT; empty for one of another kind."""
    rows: int
    unpacked_bytes: int
    """By the metadata; no page unpacks to more than it declares."""
    groups: tuple[dict[int, Any], ...]

    def read(self, names: Sequence[str]) -> dict[str, Column]:
        """Return columns (FLOAT or TEXT); ValueError where they are damaged."""
        with _damage_is_value_error():
            return {name: self._column(name) for name in names}

    def _column(self, name: str) -> Column:
        place = list(self.kinds).index(name)
        parts = [_read_chunk(self.content, group[1][place][3], self.kinds[name], group[3]) for group in self.groups]
        empty = np.zeros(0, dtype=object if self.kinds[name] == TEXT else np.float64)
        return parts[0] if len(parts) == 1 else np.concatenate([empty, *parts])


class _damage_is_value_error:
    """A block in which content of another shape than the format's is a ValueError."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, IndexError | KeyError | TypeError | AttributeError | struct.error | zstd.ZstdError):
            raise ValueError(f"its content is damaged ({type(error).__name__})") from None


def open_parquet(content: bytes) -> ParquetFile:
    """Read the metadata; ValueError for no Parquet file, or a damaged one."""
    if len(content) < 12 or not content.startswith(_MAGIC) or not content.endswith(_MAGIC):
        raise ValueError("it has no Parquet marks at its ends")
    size = int.from_bytes(content[-8:-4], "little")
    if size > len(content) - 12:
        raise ValueError("its metadata are longer than the file")
    with _damage_is_value_error():
        metadata = _Reader(content[-8 - size : -8]).structure()
        kinds = {}
        for element in metadata[2][1:]:
            flat = element.get(3) == _OPTIONAL and 5 not in element
            known = {type_: kind for kind, type_ in _TYPES.items()}.get(element.get(1), "")
            kinds[element[4].decode()] = known if flat and (known != TEXT or element.get(6) == _UTF8) else ""
        groups = tuple(metadata[4])
        if any(len(group[1]) != len(kinds) or group[3] < 0 for group in groups):
            raise ValueError("its groups of rows have other columns than its schema")
        if sum(group[3] for group in groups) != metadata[3]:
            raise ValueError("its groups have another number of rows than the file")
        unpacked_bytes = sum(chunk[3][6] for group in groups for chunk in group[1])
        return ParquetFile(content, kinds, metadata[3], unpacked_bytes, groups)


def _read_chunk(content: bytes, chunk: dict[int, Any], kind: str, rows: int) -> Column:
    """Return the values of a column within a group of rows."""
    if chunk[1] != _TYPES[kind] or chunk[4] not in (_UNCOMPRESSED, _ZSTD):
        raise ValueError("a column of another type, or compressed by another method than zstd")
    reader = _Reader(content, min(chunk[9], chunk.get(11, chunk[9])) or chunk[9])
    left_bytes = chunk[6]
    dictionary: Column | None = None
    pages: list[Column] = []
    missing = rows
    while missing > 0:
        head = reader.structure()
        if (left_bytes := left_bytes - head[2]) < 0:
            raise ValueError("a page is longer than its column")
        page = reader.take(head[3])
        page = _decompressed(page, head[2]) if chunk[4] == _ZSTD else page
        if head[1] == _DICTIONARY_PAGE:
            dictionary = _plain(page, head[7][1], kind)
        elif head[1] == _DATA_PAGE and 0 < head[5][1] <= missing:
            pages.append(_data_page(page, head[5], kind, dictionary))
            missing -= pages[-1].size
        else:
            raise ValueError("a page of an unknown kind or size")
    return pages[0] if len(pages) == 1 else np.concatenate([np.zeros(0, object if kind == TEXT else float), *pages])


def _decompressed(page: bytes, size_bytes: int) -> bytes:
    unpacked = zstd.ZstdDecompressor().decompress(page, max_length=size_bytes + 1) if page else b""
    if len(unpacked) != size_bytes:
        raise ValueError("a page unpacks to another size than it declares")
    return unpacked


def _data_page(page: bytes, head: Mapping[int, Any], kind: str, dictionary: Column | None) -> Column:
    reader = _Reader(page)
    levels = _Reader(reader.take(int.from_bytes(reader.take(4), "little")))
    present = _unpacked(levels, 1, head[1]).astype(bool)
    count = int(present.sum())
    if head[2] in (_PLAIN_DICTIONARY, _RLE_DICTIONARY) and dictionary is not None:
        values = dictionary[_unpacked(reader, reader.take(1)[0] if count else 0, count)]
    elif head[2] == _PLAIN:
        values = _plain(page[reader.at :], count, kind)
    else:
        raise ValueError(f"the unknown encoding {head[2]}")
    if count == present.size:
        return values
    column: Column = np.full(present.size, None, object) if kind == TEXT else np.full(present.size, np.nan)
    column[present] = values
    return column


def _plain(page: bytes, count: int, kind: str) -> Column:
    if kind != TEXT:
        return np.frombuffer(_Reader(page).take(8 * count), dtype="<f8" if kind == FLOAT else "<i8").astype(np.float64)
    reader = _Reader(page)
    texts = [reader.take(int.from_bytes(reader.take(4), "little")).decode() for _ in range(min(count, len(page)))]
    if len(texts) != count:
        raise ValueError("it has fewer texts than it declares")
    return np.array([*texts, None], dtype=object)[:-1]


# ---------------------------------------------------------------- writing


def render_parquet(kinds: Mapping[str, str], tables: Iterable[Values]) -> Iterable[bytes]:
    """Yield the bytes of a file with a group of rows for each table."""
    yield _MAGIC
    offset = len(_MAGIC)
    groups: list[dict[int, Any]] = []
    for table in tables:
        chunks: list[dict[int, Any]] = []
        rows = 0
        for name, kind in kinds.items():
            rows = len(table[name])
            if rows:
                pages, described = _rendered_chunk(name, kind, table[name], offset)
                chunks.append({2: offset, 3: described})
                offset += len(pages)
                yield pages
        if rows:
            groups.append({1: chunks, 2: sum(c[3][6] for c in chunks), 3: rows})
    schema: list[dict[int, Any]] = [{4: b"schema", 5: _Short(len(kinds))}]
    for name, kind in kinds.items():
        text = {6: _Short(_UTF8)} if kind == TEXT else {}
        schema.append({1: _Short(_TYPES[kind]), 3: _Short(_OPTIONAL), 4: name.encode(), **text})
    rows = sum(group[3] for group in groups)
    metadata = _structure({1: _Short(1), 2: schema, 3: rows, 4: groups, 6: b"pgstrata"})
    yield metadata + len(metadata).to_bytes(4, "little") + _MAGIC


def _rendered_chunk(name: str, kind: str, column: Sequence[Any] | Column, offset: int) -> tuple[bytes, dict[int, Any]]:
    """Return the pages of a column and their metadata."""
    pages: list[bytes] = []
    unpacked = 0
    encoding, places = _PLAIN, {}
    if kind == TEXT:
        known = [value for value in column if value is not None]
        present = np.array([value is not None for value in column])
        texts = list(dict.fromkeys(known))
        words = [text.encode() for text in texts]
        dictionary = b"".join(len(word).to_bytes(4, "little") + word for word in words)
        pages.append(_page(_DICTIONARY_PAGE, dictionary, {7: {1: _Short(len(words)), 2: _Short(_PLAIN)}}))
        unpacked += len(dictionary)
        numbers = {text: number for number, text in enumerate(texts)}
        width = max(1, (len(texts) - 1).bit_length())
        indices = np.array([numbers[value] for value in known], dtype=np.int64)
        values, encoding, places = bytes((width,)) + _packed(indices, width), _RLE_DICTIONARY, {11: offset}
    else:
        numeric = (
            np.array(column, dtype=np.float64)
            if kind == FLOAT
            else np.array([value or 0 for value in column], dtype=np.int64)
        )
        present = ~np.isnan(numeric) if kind == FLOAT else np.array([value is not None for value in column])
        values = numeric[present].astype("<f8" if kind == FLOAT else "<i8").tobytes()
    levels = _packed(present.astype(np.int64), 1)
    page = len(levels).to_bytes(4, "little") + levels + values
    head = {1: _Short(len(column)), 2: _Short(encoding), 3: _Short(_RLE), 4: _Short(_RLE)}
    pages.append(_page(_DATA_PAGE, page, {5: head}))
    unpacked += len(page)
    described = {
        1: _Short(_TYPES[kind]), 2: [_Short(_PLAIN), _Short(_RLE), _Short(encoding)], 3: [name.encode()],
        4: _Short(_ZSTD), 5: len(column), 6: unpacked, 7: sum(map(len, pages)),
        9: offset + sum(map(len, pages[:-1])), **places,
    }  # fmt: skip
    return b"".join(pages), described


def _page(kind: int, content: bytes, head: Mapping[int, Any]) -> bytes:
    packed = zstd.compress(content)
    return _structure({1: _Short(kind), 2: _Short(len(content)), 3: _Short(len(packed)), **head}) + packed


SERIES: Mapping[str, tuple[str, ...]] = {
    "progress": PROGRESS_COLUMNS,
    "devices": DEVICE_COLUMNS,
    "system": SYSTEM_COLUMNS,
    "postgres": POSTGRES_COLUMNS,
    "waits": WAIT_COLUMNS,
    "checkpoints": CHECKPOINT_COLUMNS,
}
"""Name of a series (and of its file, without `.parquet`) to its columns."""

_TEXT = frozenset({"device", "role", "wait_event_type", "wait_event", "kind"})


@cache
def series_kinds(series: str) -> Mapping[str, str]:
    """The kind of each column of a series: text, or a number that may be missing."""
    return {column: TEXT if column in _TEXT else FLOAT for column in SERIES[series]}


def write_series(path: Path, series: str, rows: Iterable[Mapping[str, Any] | Sequence[Any]]) -> int:
    """Writes the rows of one series (mappings by column, or values in column order); returns how many.

    A column that a mapping does not have is null; a key that is no column is a KeyError, so that nothing is lost.
    """
    columns = SERIES[series]
    values: dict[str, list[Any]] = {c: [] for c in columns}
    count = 0
    for row in rows:
        count += 1
        _append(values, columns, row)
    write_parquet(path, series_kinds(series), [values])
    return count


def write_parquet(path: Path, kinds: Mapping[str, str], tables: Iterable[Values]) -> None:
    """Writes a file with a group of rows for each table."""
    with path.open("wb") as file:
        file.writelines(render_parquet(kinds, tables))


def empty_table(series: str) -> Table:
    """A table without rows."""
    return {name: np.zeros(0, object if kind == TEXT else float) for name, kind in series_kinds(series).items()}


def check_times(table: Table) -> None:
    """ValueError unless every row has its time, and no time lies further from the start than a run takes."""
    for name in (n for n in table if n.endswith("t_s")):
        times = table[name]
        if name == "t_s" and np.isnan(times).any():
            raise ValueError("a row has no time")
        if (np.abs(times) > LONGEST_RUN_S).any():
            raise ValueError(f"{name} holds a time more than {LONGEST_RUN_S:g} s from the start")


def _append(values: dict[str, list[Any]], columns: Sequence[str], row: Mapping[str, Any] | Sequence[Any]) -> None:
    if isinstance(row, Mapping):
        unknown = row.keys() - values.keys()
        if unknown:
            raise KeyError(f"not a column of the series: {', '.join(sorted(unknown))}")
        for column in columns:
            values[column].append(row.get(column))
        return
    for column, value in zip(columns, row, strict=True):
        values[column].append(value)
