"""The table of docs/installing.md against the packages that are installed here."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

import pgstrata
from stage import with_required

PAGE = Path(__file__).parents[2] / "docs" / "installing.md"
SOURCE = Path(pgstrata.__file__).parent
ROW = re.compile(r"^\| (?:`(\w+)`|core) \| (\d+) \|", re.MULTILINE)
TOLERANCE = 0.15
"""Releases grow."""


def size_mb(found: dict[str, Distribution]) -> float:
    """Size of the files of the distributions in 10^6 bytes, without those that Python compiles."""
    files = (f for one in found.values() for f in one.files or () if f.suffix != ".pyc")
    return sum(f.size or 0 for f in files) / 1e6


def test_each_extra_has_the_size_that_the_page_says() -> None:
    told = {extra or "core": int(size) for extra, size in ROW.findall(PAGE.read_text(encoding="utf-8"))}
    assert set(told) == {"core", *(distribution("pgstrata").metadata.get_all("Provides-Extra") or ())}
    own = sum(f.stat().st_size for f in SOURCE.rglob("*") if f.is_file() and f.suffix != ".pyc") / 1e6
    core = size_mb(with_required("pgstrata", frozenset(), {}))
    found = {
        e: core + own if e == "core" else size_mb(with_required("pgstrata", frozenset({e}), {})) - core for e in told
    }
    assert found == {extra: pytest.approx(size, rel=TOLERANCE, abs=1) for extra, size in told.items()}
