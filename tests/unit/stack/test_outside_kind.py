"""A kind of filesystem that is registered from outside the package is treated like those of the package everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from drawer import KIND, Drawer
from pgstrata.errors import UsageError
from pgstrata.host.local import LocalHost
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.durability import durability_class
from pgstrata.spec.durability_class import LOSES
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.file.schema import campaign_schema
from pgstrata.spec.layers.kind import Filesystem
from pgstrata.spec.notation.stack import parse_stack, render_stack
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack.build import attest, build
from pgstrata.stack.journal import Journal, clean
from pgstrata.stack.kind import FILESYSTEMS, register
from pgstrata.stack.plan import PlanContext, plan_empty_caches, plan_stack
from pgstrata.stack.preflight import known_capabilities, missing, required_for
from pgstrata.stack.sizing import scratch_bytes
from pgstrata.stack.tuning.setting import IN_EFFECT
from pgstrata.stack.undoing import RUNS
from pgstrata.trial.program import physical_bytes
from pgstrata.trial.steps.facts import describe_medium
from pgstrata_docs.campaign import render_reference


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Known for the time of a test."""
    tables: tuple[dict[str, Any], ...] = (FILESYSTEMS, Filesystem.kinds, RUNS, IN_EFFECT)
    before = [dict(table) for table in tables]
    register(KIND)
    yield
    for table, held in zip(tables, before, strict=True):
        table.clear()
        table.update(held)


@pytest.fixture
def stack(registered: None) -> Stack:
    return Stack(name="x", data=Volume(fs=Drawer(depth=2, locked=True)))


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    host = LocalHost(state_directory=str(tmp_path / "state"))
    yield host
    host.close()


def test_short_notation_reads_and_writes_it() -> None:
    stack = parse_stack("drawer:deep=2,locked@wal=tmpfs")
    assert stack.data.fs == Drawer(depth=2, locked=True)
    assert render_stack(stack) == "drawer:deep=2,locked@wal=tmpfs"
    assert Stack.model_validate_json(stack.model_dump_json()) == stack


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("drawer:deeep=2", "did you mean deep"),
        ("drawer:depth=12", "at most 9"),
        ("md(raid1)/drawer", "drawer takes no device and no block layer"),
        ("nfs(drawer)", "valid here: btrfs, ext4, xfs"),
        ("drawr", "did you mean drawer"),
    ],
)
def test_nonsense_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_stack(text)
    assert reason in f"{caught.value.message} {caught.value.hint}"


def test_campaign_files_their_schema_and_the_reference_know_it(tmp_path: Path) -> None:
    file = tmp_path / "campaign.yaml"
    file.write_text("stacks:\n  a: {fs: {kind: drawer, depth: 3}}\n  b: drawer\n")
    assert [stack.data.fs for stack in load_campaign(file).stacks] == [Drawer(depth=3), Drawer()]
    known = {"stacks": {"a": {"fs": {"kind": "drawer", "depth": 3}}}}
    jsonschema.validate(known, campaign_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"stacks": {"a": {"fs": {"kind": "drawer", "dept": 3}}}}, campaign_schema())
    page = render_reference()
    assert "## fs: drawer\n\nA folder in folders, which stands for a filesystem.\n" in page
    assert "| `depth` | whole number | `1` | folders inside one another |" in page
    assert "[fs: drawer](#fs-drawer)" in page


def test_durability_medium_and_size_are_told(host: LocalHost, stack: Stack) -> None:
    told = durability_class(stack)
    assert (told.class_, told.reason) == (LOSES, "the data directory is in a drawer")
    campaign = Campaign.model_validate({"name": "c", "stacks": (stack,)})
    assert describe_medium(host, campaign, "/var/tmp", {}) == "a drawer"
    assert scratch_bytes(campaign, loop_bytes=2**30) > 0


def test_capabilities_are_asked_and_listed(host: LocalHost, stack: Stack) -> None:
    assert required_for(stack) == ("root", "fs.drawer")
    assert known_capabilities()["fs.drawer"].what == "open drawers"
    assert missing(host, ["fs.drawer"]) == ()


def test_it_is_planned_built_attested_counted_and_taken_back(host: LocalHost, stack: Stack, tmp_path: Path) -> None:
    plan = plan_stack(stack, PlanContext("t1", str(tmp_path), 2**30))
    drawer = tmp_path / "pgstrata-t1" / "mount" / "data"
    (make,) = (step for step in plan.steps if step.name == "drawer for data")
    assert make.shown_commands == (f"install --directory --mode 0700 {drawer}/in/in",)
    journal = Journal.create(host, "t1")
    built = build(host, plan, journal)
    assert (drawer / "in" / "in" / "pgdata").is_dir()
    assert [(row.what, row.holds) for row in attest(host, plan, built)] == [("data drawer locked", True)]
    assert physical_bytes(host, plan) == {"data": 1}
    assert [c.argv for c in plan_empty_caches(plan)] == [("true", str(drawer))]
    (drawer / "in" / "in").chmod(0o755)
    assert [row.holds for row in attest(host, plan, built)] == [False]
    host.close()
    after = LocalHost(state_directory=str(tmp_path / "state"))
    cleaned = clean(after)
    assert f"t1: emptied {drawer}" in cleaned.lines
    assert not cleaned.failed
    assert not (tmp_path / "pgstrata-t1").exists()
    after.close()
