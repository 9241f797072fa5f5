"""Modelled media: their plan, what the daemon says, and that both halves know the same models."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from pgstrata.errors import UsageError
from pgstrata.spec.layers.media import MODELS
from pgstrata.spec.notation import parse_stack
from pgstrata.stack.block.delivery import OWN, PROGRAM
from pgstrata.stack.block.media import StopMedia, parse_statistics
from pgstrata.stack.plan import PlanContext, StackPlan, plan_stack

CRATE = Path(__file__).parents[3] / "crates" / "strata-disk"
CONTEXT = PlanContext("b0-t1", "/scratch", 4 * 2**30)
ACCOUNT = {
    "model": "nvme",
    "parameters": {"read_us": 80.0},
    "stretch": 1.0,
    "elapsed_s": 2.0,
    **dict.fromkeys(("writes", "zeroes", "flushes", "errors", "read_bytes", "written_bytes"), 0),
    "queued_s": 0.5,
    "effort": {"busy_s": 0.25, "seeks": 0, "seek_s": 0.0},
    "late_percent_counts": [1] + [0] * 100,
}
FOLDER = "/scratch/pgstrata-b0-t1/data.media"


def planned(text: str) -> StackPlan:
    return plan_stack(parse_stack(text), CONTEXT)


def test_the_daemon_has_the_models_that_can_be_asked_for() -> None:
    supplied = [tomllib.loads(file.read_text())["name"] for file in (CRATE / "models").glob("*.toml")]
    assert sorted(supplied) == sorted(MODELS)


def test_one_daemon_serves_the_disks_of_a_volume() -> None:
    plan = planned("media(hdd-7200,2,stretch=20)/btrfs(raid1)")
    commands = [line for step in plan.steps for line in step.shown_commands]
    size = f"--size {4 * 2**30} --media hdd-7200 --stretch 20"
    assert [line for line in commands if line.startswith("strata-disk")] == [
        f"strata-disk serve {FOLDER} --background",
        f"strata-disk add {FOLDER} disk0 {size} --seed 0",
        f"strata-disk add {FOLDER} disk1 {size} --seed 1",
    ]
    assert f"losetup --find --show --direct-io=on {FOLDER}/disks/disk1" in commands


def test_the_daemon_does_not_carry_the_marker_of_processes_that_are_ended_first() -> None:
    commands = [command for step in planned("media(nvme)/ext4").steps for command in step.commands]
    environments = [dict(command.env) for command in commands if command.argv[0] == PROGRAM]
    assert {environment["PGSTRATA_TRIAL"] for environment in environments} == {""}
    assert all(environment["PATH"].endswith(f":{OWN.parent}") for environment in environments)


def test_what_stops_the_daemon_is_journaled_before_it_starts() -> None:
    step = next(step for step in planned("media(nvme)/ext4").steps if step.name == "modelled disks for data")
    assert StopMedia(folder=FOLDER) in step.undo


def test_the_head_of_a_table_says_that_the_medium_is_modelled() -> None:
    device = parse_stack("media(hdd-7200,stretch=20)/ext4").data.device
    assert device.lies_on("/scratch", lambda path, loop: "") == "modelled medium hdd-7200, times stretched 20-fold"


def test_statistics_are_in_the_order_of_disks() -> None:
    text = json.dumps({"ok": True, "disks": [{**ACCOUNT, "name": f"disk{i}", "reads": i} for i in (10, 2, 0)]})
    assert [disk.reads for disk in parse_statistics(text)] == [0, 2, 10]


@pytest.mark.parametrize(
    "text", ["media/ext4", "media(hdd-15000)/ext4", "media(nvme,stretch=0)/ext4", "media(nvme,sizes=3)/ext4"]
)
def test_media_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_stack(text)
