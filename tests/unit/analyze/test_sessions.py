"""Campaigns against one another: coverage with drift between the sessions, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pgstrata.analyze.sessions.comparison import (
    Session,
    common_stacks,
    compare_sessions,
    differing_facts,
    paired,
    session_estimate,
)
from pgstrata.analyze.stats.interval import ALPHA, SCREEN_G, interval
from pgstrata.cli.main import app
from pgstrata.record.redact import machine_stand_in
from pgstrata.report.sentences.history import comparison_lines
from pgstrata_fake.campaigns import Shape, write_campaign

pytestmark = pytest.mark.slow

CAMPAIGNS = 1000


def coverage(*, with_reference: bool, blocks: tuple[int, int], sigma: float = 0.03) -> float:
    """Share of simulated pairs of sessions whose interval holds the true change of 4 %.

    Sessions lie apart by drift of SD 5 %, blocks by 2 %, and the two stacks scatter differently.
    """
    rng, hits = np.random.default_rng(7), 0
    for _ in range(CAMPAIGNS):
        xs = []
        for at, count in enumerate(blocks):
            drift = rng.normal(0, 0.05) + rng.normal(0, 0.02, count)
            stack = dict(enumerate(drift + 0.04 * at + rng.normal(0, sigma, count)))
            reference = dict(enumerate(drift + rng.normal(0, sigma / 2, count)))
            xs.append(paired(stack, reference) if with_reference else list(stack.values()))
        found = interval(session_estimate(*xs), ALPHA, SCREEN_G)
        hits += found.low <= 0.04 <= found.high
    return hits / CAMPAIGNS


@pytest.mark.parametrize("blocks", [(3, 3), (6, 6), (4, 12), (20, 20)])
def test_intervals_hold_the_true_change_whatever_the_drift(blocks: tuple[int, int]) -> None:
    assert coverage(with_reference=True, blocks=blocks) >= 0.95


def test_without_the_reference_they_do_not() -> None:
    assert coverage(with_reference=False, blocks=(20, 20)) < 0.8


def test_they_are_of_use() -> None:
    rng = np.random.default_rng(3)
    found = interval(
        session_estimate(rng.normal(0, 0.02, 12).tolist(), rng.normal(0.1, 0.02, 12).tolist()), ALPHA, SCREEN_G
    )
    assert found.excludes_zero()
    assert found.high - found.low < 0.1


def sessions_of(changes: dict[str, float], *, scatter: float = 0.0, blocks: int = 8) -> tuple[Session, Session]:
    """Two sessions whose stacks changed by so much, on the scale of logarithms."""
    rng = np.random.default_rng(11)

    def session(name: str, at: int) -> Session:
        runs = {s: {"cell": dict(enumerate(at * by + rng.normal(0, scatter, blocks)))} for s, by in changes.items()}
        when = datetime(2026, 1, 1 + at, tzinfo=UTC)
        return Session(name, when, "tps", 0.02, paired=True, specs={s: s for s in changes}, values=runs, facts={})

    return session("a", 0), session("b", 1)


def test_how_far_sessions_lie_apart_is_told_by_the_other_stacks() -> None:
    """Every stack moves by itself between sessions, and blocks of a session share that."""
    apart = {"ext4": 0.0, "xfs": 0.03, "btrfs": -0.03, "zfs": 0.02}
    found = compare_sessions(*sessions_of(apart, scatter=0.002), "ext4")
    assert [one.verdict for one in found.moved] == ["undecided"] * 3
    alike = {"ext4": 0.0, "xfs": 0.001, "btrfs": -0.001, "zfs": 0.2}
    found = compare_sessions(*sessions_of(alike, scatter=0.002), "ext4")
    assert {one.stack: one.verdict for one in found.moved}["zfs"] == "higher"


def test_an_import_that_knows_no_specification_has_its_stacks_in_common_by_name() -> None:
    a, b = sessions_of({"ext4": 0.0, "xfs": 0.1, "zfs": 0.0})
    assert common_stacks((replace(a, specs=dict.fromkeys(a.specs, "imported")), b)) == ("ext4", "xfs", "zfs")
    assert common_stacks((replace(a, specs={**a.specs, "xfs": "xfs:noatime"}), b)) == ("ext4", "zfs")


def test_two_stacks_in_common_make_no_claim() -> None:
    found = compare_sessions(*sessions_of({"ext4": 0.0, "xfs": 0.3}, scatter=0.002), "ext4")
    (only,) = found.moved
    assert only.verdict == "unclaimed"
    assert only.low is not None
    assert only.low > 1.2
    assert "nothing tells how far sessions lie apart" in "".join(comparison_lines(found))


def test_a_reference_that_moved_itself_is_told() -> None:
    changes = {"ext4": -0.2, "xfs": 0.0, "btrfs": 0.001, "zfs": -0.001}
    found = compare_sessions(*sessions_of(changes, scatter=0.002), "ext4")
    ((cell, moved),) = found.reference_moved
    assert cell == "cell"
    assert moved == pytest.approx(np.exp(-0.2), rel=0.01)
    assert "the reference itself moved against the other stacks in cell: −18" in "\n".join(comparison_lines(found))
    assert {one.verdict for one in found.moved} == {"undecided"}
    assert compare_sessions(*sessions_of(changes, scatter=0.002), "xfs").reference_moved == ()


def made(path: Path, *stacks: str, factor: float = 1.0, seed: int = 1, **tps: float) -> str:
    base = dict.fromkeys(stacks, 2000.0 * factor) | {name: value * factor for name, value in tps.items()}
    shape = Shape(stacks=stacks, blocks=8, duration_s=5, seed=seed, incidents=False, base_tps=base)
    return str(write_campaign(path, shape))


def compared(*words: str, code: int = 0) -> dict[str, object]:
    done = CliRunner().invoke(app, ["compare", *words, "--json"])
    assert done.exit_code == code, done.output
    found: dict[str, object] = json.loads(done.stdout)["comparisons"][0]
    return found


def test_a_slower_day_is_no_change_of_the_stack(tmp_path: Path) -> None:
    a = made(tmp_path / "a", "ext4", "xfs", "btrfs", "f2fs", "tmpfs")
    b = made(tmp_path / "b", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", factor=0.8, seed=2, tmpfs=3000.0)
    found = compared(a, b, "--reference", "ext4")
    rows = {row["stack"]: row for row in found["moved"]}  # type: ignore[attr-defined]
    assert rows["xfs"]["verdict"] in ("undecided", "equal")
    assert rows["xfs"]["raw"] < 0.9
    assert rows["xfs"]["low"] < 1 < rows["xfs"]["high"]
    assert rows["tmpfs"]["verdict"] == "higher"
    assert rows["tmpfs"]["low"] < 1.5 < rows["tmpfs"]["high"]
    shown = CliRunner().invoke(app, ["compare", a, b, "--reference", "ext4"])
    assert "more than the reference, proven" in shown.output


def test_without_a_second_stack_in_common_it_is_refused(tmp_path: Path) -> None:
    a = made(tmp_path / "a", "ext4", "xfs")
    assert compared(a, made(tmp_path / "b", "ext4", "tmpfs"), code=3)["refused"] == "no reference"
    assert compared(a, made(tmp_path / "c", "btrfs", "tmpfs"), code=3)["refused"] == "no stack in common"


def test_a_bundle_is_compared_as_its_directory(tmp_path: Path) -> None:
    a, b = made(tmp_path / "a", "ext4", "xfs"), made(tmp_path / "b", "ext4", "xfs", seed=2)
    done = CliRunner().invoke(app, ["bundle", b, "--redact", "--out", str(tmp_path / "b.zip")])
    assert done.exit_code == 0, done.output
    bundle = str(tmp_path / "b.zip")
    whole, bundled, turned, own = compared(a, b), compared(a, bundle), compared(bundle, a), compared(b, bundle)
    assert whole["moved"] == bundled["moved"]
    assert [found["differing"] for found in (whole, bundled, turned, own)] == [[], [], [], []]


def test_another_machine_is_named_also_where_one_of_both_was_redacted() -> None:
    def session(machine: str) -> Session:
        at = datetime(2026, 1, 1, tzinfo=UTC)
        return Session(
            "", at, "tps", 0.02, paired=True, specs={}, values={}, facts={"machine id": machine, "CPUs": "8"}
        )

    assert differing_facts(session("0123"), session(machine_stand_in("0123"))) == ()
    other = machine_stand_in("4567")
    assert differing_facts(session("0123"), session(other)) == (("machine id", "0123", other),)
    assert differing_facts(session(other), session("0123")) == (("machine id", other, "0123"),)


def test_a_fact_that_neither_knows_does_not_differ() -> None:
    def session(facts: dict[str, str]) -> Session:
        return Session("", datetime(2026, 1, 1, tzinfo=UTC), "tps", 0.02, paired=True, specs={}, values={}, facts=facts)

    found = differing_facts(session({"turbo": "unknown", "CPUs": "8"}), session({}))
    assert found == (("CPUs", "8", "unknown"),)


def test_the_reference_is_the_stack_with_most_runs(tmp_path: Path) -> None:
    a, b = made(tmp_path / "a", "xfs", "ext4"), made(tmp_path / "b", "xfs", "ext4", seed=2)
    assert compared(a, b)["reference"] == "ext4"
    assert compared(a, b, "--reference", "xfs")["reference"] == "xfs"
