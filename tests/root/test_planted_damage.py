"""Damage planted in a recovered cluster, one kind of place after the other: which look of a crash trial notices it."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from planted_damage import FLIP, REMOVE, STALE, ZERO, is_noticed, plant

KINDS = {
    "heap", "btree", "hash", "GIN", "GiST", "SP-GiST", "BRIN", "TOAST", "large object", "catalogs", "sequence",
    "visibility map", "pg_xact", "missing file", "2PC state",
}  # fmt: skip
EXPLAINED = {"hash, no values", "BRIN, no values", "SP-GiST, no values"}
"""Kinds of pages whose damage no query can see (docs/crash.md)."""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("checksums", [True, False], ids=["checksums", "no checksums"])
def test_damage_of_every_kind_of_place_is_noticed(checksums: bool) -> None:
    """One place of each for each damage. What the looks of other states cannot see, the deep one does."""
    given = argparse.Namespace(scratch=Path("/dev/shm"), major=15, places=1, seed=1, only=None)
    found = plant(given, checksums=checksums)
    assert {one.damage.kind for one in found} == KINDS | EXPLAINED
    missed = [one.damage for one in found if not is_noticed(one.deep) and one.damage.kind not in EXPLAINED]
    # without checksums a wrong bit shows only where something compares it
    assert [one.shown for one in missed if checksums or one.how != FLIP] == []
    by_wide = {(one.damage.kind, one.damage.how) for one in found if is_noticed(one.wide)}
    assert by_wide >= {("heap", STALE), ("btree", STALE)}, "the ledger's own"
    deep_alone = {(one.damage.kind, one.damage.how) for one in found} - by_wide
    stale = {"hash", "GIN", "GiST", "SP-GiST", "BRIN", "large object", "sequence"}
    assert deep_alone >= {(kind, STALE) for kind in stale} | {("2PC state", REMOVE), ("TOAST", ZERO)}
    reasons = " ".join(one.deep.reason for one in found)
    assert "prepared transactions (1)" in reasons
