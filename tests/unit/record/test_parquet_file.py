"""Own Parquet files against pyarrow's: both read what the other writes, and no damage is taken for content."""

from __future__ import annotations

import io
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgstrata.record.parquet import FLOAT, INTEGER, TEXT, open_parquet, render_parquet

KINDS = {"number": FLOAT, "word": TEXT}
NUMBERS = st.none() | st.floats(allow_nan=False)
WORDS = st.none() | st.text(max_size=6) | st.sampled_from(["vda", "vdb"])
ROWS = st.lists(st.tuples(NUMBERS, WORDS), min_size=1, max_size=60)


def rendered(table: Mapping[str, Sequence[Any]]) -> bytes:
    return b"".join(render_parquet(KINDS, [table]))


def values(content: bytes) -> dict[str, list[Any]]:
    file = open_parquet(content)
    assert dict(file.kinds) == KINDS
    read = file.read(["number", "word"])
    return {"number": [None if math.isnan(n) else n for n in read["number"]], "word": read["word"].tolist()}


@given(st.lists(ROWS, max_size=4))
def test_pyarrow_and_the_reader_read_what_is_written(groups: list[list[tuple[float | None, str | None]]]) -> None:
    tables: list[dict[str, Any]] = [{"number": [n for n, _ in rows], "word": [w for _, w in rows]} for rows in groups]
    content = b"".join(render_parquet(KINDS, tables))
    read = pq.ParquetFile(io.BytesIO(content)).read()
    read.validate(full=True)
    expected = {name: [value for table in tables for value in table[name]] for name in KINDS}
    assert read.to_pydict() == values(content) == expected


@given(ROWS, st.booleans(), st.integers(1, 40), st.sampled_from(["zstd", "none"]))
def test_the_reader_reads_what_pyarrow_writes(
    rows: list[tuple[float | None, str | None]], dictionary: bool, group_rows: int, compression: str
) -> None:
    expected = {"number": [n for n, _ in rows], "word": [w for _, w in rows]}
    table = pa.table(expected, schema=pa.schema([("number", pa.float64()), ("word", pa.string())]))
    out = io.BytesIO()
    pq.write_table(table, out, compression=compression, use_dictionary=dictionary, row_group_size=group_rows)
    assert values(out.getvalue()) == expected


def test_integers_are_written() -> None:
    table = {"n": [1, None, -(2**53), 2**62]}
    read = pq.read_table(io.BytesIO(b"".join(render_parquet({"n": INTEGER}, [table]))))
    assert (read.schema.field("n").type, read.to_pydict()) == (pa.int64(), table)


def test_damage_is_a_value_error_or_other_content_of_the_same_size() -> None:
    rows = 200
    rng = np.random.default_rng(1)
    table: dict[str, Any] = {
        "number": np.where(rng.random(rows) < 0.1, np.nan, rng.random(rows).round(2)),
        "word": [None if i % 7 == 0 else f"vd{i % 5}" for i in range(rows)],
    }
    whole, choice, refused = rendered(table), random.Random(1), 0
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(choice.choice((1, 1, 3))):
            damaged[choice.randrange(len(damaged))] = choice.randrange(256)
        try:
            file = open_parquet(bytes(damaged))
            if file.rows <= 10 * rows:
                read = file.read([name for name, kind in file.kinds.items() if kind in (FLOAT, TEXT)])
                assert {column.size for column in read.values()} <= {file.rows}
        except ValueError:
            refused += 1
    assert refused > 1000


@pytest.mark.parametrize("cut", [0, 3, 11, -1, -9])
def test_part_of_a_file_is_refused(cut: int) -> None:
    with pytest.raises(ValueError, match=r"marks|metadata|early|damaged"):
        open_parquet(rendered({"number": [1.0], "word": ["a"]})[:cut])


def test_a_page_that_unpacks_to_more_than_it_declares_is_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"number": [0.5] * 10_000}), out, compression="zstd", use_dictionary=False)
    content = out.getvalue()
    file = open_parquet(content)
    chunk = file.groups[0][1][0][3]
    chunk[6] = 79_999  # bytes of its pages
    with pytest.raises(ValueError, match="a page is longer than its column"):
        file.read(["number"])


def test_other_compression_is_named() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"number": [1.0]}), out, compression="snappy")
    with pytest.raises(ValueError, match="another method than zstd"):
        open_parquet(out.getvalue()).read(["number"])
