"""Factors and designs of `pgstrata tune`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pgstrata.errors import UsageError
from pgstrata.spec.durability import durability_class
from pgstrata.spec.file.factors import load_tuning, presets, tuned_stack
from pgstrata.spec.screening import interaction_aliases, screening_rows, signs

BASES = {"ext4": "ext4", "xfs": "xfs", "btrfs": "btrfs", "zfs": "zfs", "postgres-io": "xfs", "linux-vm": "ext4"}

PUBLISHED = {
    8: "+++-+--",
    12: "++-+++---+-",
    16: "++++-+-++--+---",
    20: "++--++++-+-+----++-",
    24: "+++++-+-++--++--+-+----",
}
"""First rows of Plackett & Burman (1946), table 1; the others are its cyclic shifts and a row of minus."""


def _write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "over.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("runs", sorted(PUBLISHED))
def test_designs_have_the_orthogonality_of_the_published_tables(runs: int) -> None:
    first = np.array([1.0 if sign == "+" else -1.0 for sign in PUBLISHED[runs]])
    table = np.vstack([*(np.roll(first, k) for k in range(runs - 1)), -np.ones(runs - 1)])
    ours = signs(screening_rows(runs - 1))
    assert ours.shape == (2 * runs, runs - 1)
    assert np.array_equal(table.T @ table * 2, ours.T @ ours)
    assert {tuple(row) for row in ours} == {tuple(-row) for row in ours}


@pytest.mark.parametrize("factors", range(2, 24))
def test_main_effects_are_aliases_of_no_interaction_and_the_start_runs(factors: int) -> None:
    rows = screening_rows(factors)
    levels = signs(rows)
    pairs = np.array([levels[:, i] * levels[:, j] for i in range(factors) for j in range(i)])
    assert np.array_equal(levels.T @ levels, len(rows) * np.eye(factors))
    assert not (pairs @ levels).any()
    assert not any(rows[0])
    assert all(rows[-1])


def test_aliases_of_interactions_are_those_of_the_design() -> None:
    rows = screening_rows(7)  # 2^(7-3), resolution IV: 21 interactions in 7 sets of 3
    assert all(len(interaction_aliases(rows, (i, j))) == 2 for j in range(7) for i in range(j))
    assert interaction_aliases(screening_rows(4), (0, 1)) == ()  # the full factorial
    assert interaction_aliases(screening_rows(2), (0, 1)) == ()
    assert interaction_aliases(screening_rows(11), (0, 1)) == ()


@pytest.mark.parametrize("preset", presets())
def test_every_row_of_every_preset_is_a_stack(preset: str) -> None:
    tuning = load_tuning(BASES[preset], preset)
    stacks = [tuned_stack(tuning, row, name) for name, row in tuning.rows.items()]
    assert len({stack.model_copy(update={"name": "", "note": ""}).model_dump_json() for stack in stacks}) == len(
        tuning.rows
    )
    assert all(factor.source and factor.cost for factor in tuning.factors)


def test_levels_are_values_of_a_key_options_or_notation(tmp_path: Path) -> None:
    over = _write(
        tmp_path,
        """factors:
  synchronous_commit: [on, off]
  vm.swappiness: ["60", "1"]
  atime: [null, ":noatime"]
  wal: {with data: null, apart: "@wal=xfs"}
""",
    )
    tuning = load_tuning("ext4:commit=60@work_mem=8MB", over)
    start = tuned_stack(tuning, (False,) * 4, "start")
    changed = tuned_stack(tuning, (True,) * 4, "all")
    assert tuning.factors[0].levels == ("on", "off")
    assert tuning.factors[3].levels == ("with data", "apart")
    assert start.postgresql.settings == {"work_mem": "8MB", "synchronous_commit": "on"}
    assert changed.postgresql.settings["synchronous_commit"] == "off"
    assert changed.kernel.sysctl == {"vm.swappiness": "1"}
    assert changed.data.fs.model_dump()["noatime"] is True
    assert changed.data.fs.model_dump()["commit_s"] == 60
    assert changed.wal is not None
    assert changed.wal.fs.kind == "xfs"
    assert durability_class(start).class_ != durability_class(changed).class_
    assert changed.note == "synchronous_commit: off; vm.swappiness: 1; atime: noatime; wal: apart"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("factors: {jit: [on, off]}", "over.yaml:1: factors: factors is a mapping of 2 to 23", "wal_compression"),
        ("factors: {jit: [on, off], a: [x]}", "over.yaml:1", ""),
        ("factors:\n  jit: [on, off]\n  thp: [never]", "over.yaml:3: factors.thp: a factor has two levels, not 1", ""),
        ("factor: {}", "over.yaml:1: factor: unknown key 'factor'", "did you mean factors?"),
        ("for: xfs\nfactors: {}", "over.yaml:1: for: these factors are of stacks on xfs", "name a stack on xfs"),
        ("factors:\n  jit: [on, off]\n  b: [null, ':noatim']", "over.yaml:3", "did you mean noatime?"),
        ("factors:\n  jit: [null, off]\n  b: [null, '@jit=off']", "b does the same as jit", "leave out one"),
        ("factors:\n  jit: [on, off]\n  b: ['@jit=on', '@work_mem=8MB']", "set the same thing", "one factor"),
        ("factors:\n  jit: [on, on]\n  work_mem: [4MB, 8MB]", "two levels of jit are the same stack", "differ"),
    ],
)
def test_bad_files_are_refused_with_the_line_and_a_hint(tmp_path: Path, text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_tuning("ext4", _write(tmp_path, text))
    assert message in str(caught.value)
    assert hint in caught.value.hint
    assert caught.value.hint


def test_an_unknown_preset_is_told_with_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        load_tuning("ext4", "postgres-oi")
    assert "did you mean postgres-io?" in caught.value.hint


def test_a_setting_that_is_refused_is_told_by_its_row(tmp_path: Path) -> None:
    tuning = load_tuning("ext4", _write(tmp_path, "factors: {jit: [on, off], b: [null, '@archive_mode=on']}"))
    with pytest.raises(UsageError, match="archive_mode"):
        tuned_stack(tuning, (False, True), "row 02")
