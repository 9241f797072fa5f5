"""Modelled media: their plan, what the daemon says, and that both halves know the same models."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from fake_host import FakeHost, completed
from pgstrata.errors import PgstrataError, TrialError, UsageError
from pgstrata.host.delivery import OWN, PROGRAM
from pgstrata.host.facts.modelled import PATH, ModelledDisk, ask_modelled, read_modelled, render_modelled
from pgstrata.spec.file.files import resolve_stack_files
from pgstrata.spec.layers.media import KEEP_CACHE, MODELS
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.stack.block.media import AttachedCheck, StopMedia
from pgstrata.stack.disk_counters import MediaCheck, TimingIs
from pgstrata.stack.plan import PlanContext, StackPlan, plan_stack
from pgstrata.stack.undo import RemovePath
from pgstrata.stack.undoing import run_undo

CRATE = Path(__file__).parents[3] / "crates" / "strata-disk"
CONTEXT = PlanContext("b0-t1", "/scratch", 4 * 2**30)
ACCOUNT = {
    "model": "nvme",
    "parameters": {"read_us": 80.0},
    "stretch": 1.0,
    "timing": "on",
    "elapsed_s": 2.0,
    **dict.fromkeys(("untimed", "writes", "zeroes", "flushes", "errors", "read_bytes", "written_bytes"), 0),
    "queued_s": 0.5,
    "effort": {"busy_s": 0.25, "seeks": 0, "seek_s": 0.0},
    "late_percent_counts": [1] + [0] * 100,
}
FOLDER = "/scratch/pgstrata-b0-t1/data.media"


def planned(text: str) -> StackPlan:
    return plan_stack(parse_stack(text), CONTEXT)


def test_the_daemon_has_the_models_that_can_be_asked_for() -> None:
    supplied = [tomllib.loads(file.read_text()) for file in (CRATE / "models").glob("*.toml")]
    assert sorted(model["name"] for model in supplied) == sorted(MODELS)
    assert {model["name"] for model in supplied if not model["volatile_cache"]} == KEEP_CACHE


def test_one_daemon_serves_the_disks_of_a_volume() -> None:
    plan = planned("media(hdd-7200,2,stretch=20)/btrfs(raid1)")
    commands = [line for step in plan.steps for line in step.shown_commands]
    size = f"--size {4 * 2**30} --media hdd-7200 --stretch 20"
    assert [line for line in commands if line.startswith("strata-disk")] == [
        f"strata-disk serve {FOLDER} --background",
        f"strata-disk add {FOLDER} disk0 {size} --seed 0",
        f"strata-disk add {FOLDER} disk1 {size} --seed 1",
        f"strata-disk attach {FOLDER} disk0",
        f"strata-disk attach {FOLDER} disk1",
    ]


def test_the_first_volume_on_recorded_disks_starts_the_daemon_of_all() -> None:
    recorded = "media(none,recorded=true)/ext4"
    for text, first in (
        (f"{recorded}@wal={recorded}", "data"),
        (f"cluster(2)/tmpfs@standby={recorded}@archive={recorded}", "standby1.data"),
    ):
        plan = planned(text)
        serving = [s.name for s in plan.steps if any(" serve " in line for line in s.shown_commands)]
        assert serving == [f"modelled disks for {first}"]
        (stopping,) = [step.name for step in plan.steps if any(isinstance(undo, StopMedia) for undo in step.undo)]
        assert stopping == serving[0]


def test_the_daemon_does_not_carry_the_marker_of_processes_that_are_ended_first() -> None:
    commands = [command for step in planned("media(nvme)/ext4").steps for command in step.commands]
    programs = [command for command in commands if command.argv[0] == PROGRAM]
    environments = [dict(command.env) for command in programs]
    marks = {command.argv[1]: dict(command.env)["PGSTRATA_TRIAL"] for command in programs}
    assert marks == {"serve": FOLDER, "add": "", "attach": ""}
    assert all(environment["PATH"].endswith(f":{OWN.parent}") for environment in environments)


def test_what_stops_the_daemon_is_journaled_before_it_starts() -> None:
    step = next(step for step in planned("media(nvme)/ext4").steps if step.name == "modelled disks for data")
    assert StopMedia(folder=FOLDER) in step.undo


def test_the_head_of_a_table_says_that_the_medium_is_modelled() -> None:
    device = parse_stack("media(hdd-7200,stretch=20)/ext4").data.device
    assert device.lies_on("/scratch", lambda path, loop: "") == "modelled medium hdd-7200, times stretched 20-fold"


def test_a_disk_that_is_timed_in_runs_alone_is_made_without_timing_and_says_so() -> None:
    text = "media(hdd-7200,2,timed=runs)/btrfs(raid1)"
    plan = planned(text)
    added = [line for step in plan.steps for line in step.shown_commands if line.startswith("strata-disk add")]
    assert [line.split(" --timing ")[1] for line in added] == ["off --seed 0", "off --seed 1"]
    (counted,) = plan.counted
    assert counted.switch is not None
    assert counted.switch.on.shown == f"strata-disk timing {FOLDER} on disk0 disk1"
    assert counted.switch.off.shown == f"strata-disk timing {FOLDER} off disk0 disk1"
    device = plan.stack.data.device
    assert device.lies_on("/scratch", lambda path, loop: "") == "modelled medium hdd-7200, timed in runs alone"


def test_what_ends_early_is_taken_down_without_the_times_of_the_medium() -> None:
    (counted,) = planned("media(nvme,2,timed=runs)/btrfs(raid1)").counted
    assert counted.switch is not None
    host = FakeHost(files={FOLDER: ""}, answer=lambda asked: completed(asked.argv, exit_code=1))
    for there, commands in ((host, [(PROGRAM, "timing", FOLDER, "off", "disk0", "disk1")]), (FakeHost(), [])):
        assert run_undo(there, counted.switch.undo, same_boot=True) == ""
        assert [command.argv for command in there.asked] == commands


@pytest.mark.parametrize("text", ["media(none,timed=runs)/ext4", "media(nvme,timed=runs,recorded=true)/ext4"])
def test_a_disk_without_runs_or_times_cannot_be_timed_in_runs_alone(text: str) -> None:
    with pytest.raises(UsageError, match="timed: runs does not go with this disk"):
        parse_stack(text)


@pytest.mark.parametrize("said", ["off", "on", None])
def test_timing_is_looked_at_where_it_was_switched(said: str | None) -> None:
    (counted,) = planned("media(nvme,timed=runs)/ext4").counted
    answer = accounts_of("disk0", timing=said) if said else accounts_of()
    host = FakeHost(answer=lambda asked: completed(asked.argv, answer))
    look = TimingIs(counted, ("disk0",), on=True)
    if said == "on":
        look.require(host, {})
        return
    with pytest.raises(TrialError, match=r"the timing of modelled disk disk0 on .* is not on"):
        look.require(host, {})


def accounts_of(*names: str, **changes: object) -> str:
    disks = [{**ACCOUNT, "name": name, "reads": number, **changes} for number, name in enumerate(names)]
    return json.dumps({"ok": True, "disks": disks})


@pytest.mark.parametrize("there", ["disk1", "disk0", None])
def test_a_block_device_of_ublk_is_the_disk_that_its_daemon_says_it_is(there: str | None) -> None:
    plan = planned("media(nvme,2)/btrfs")
    (check,) = (check for check in plan.checks if isinstance(check, AttachedCheck))
    said = {"ok": True, "disks": [], "nodes": {there: "/dev/ublkb3"} if there else {}}
    loops = [{"name": "/dev/loop0", "back-file": f"{FOLDER}/disks/disk0", "dio": True, "log-sec": 512}]
    answers = {"losetup": {"loopdevices": loops}, "strata-disk": said}
    host = FakeHost(
        answer=lambda asked: completed(asked.argv, json.dumps(answers[asked.argv[0]])),
        files={"/proc/self/mountinfo": ""},
    )
    rows = {row.what: row for row in check.attest(host, {"data.0": "/dev/loop0", "data.1": "/dev/ublkb3"})}
    assert rows["loop data.0 backing_file"].holds
    assert (rows["ublk data.1 disk"].holds, rows["ublk data.1 disk"].actual) == (
        there == "disk1",
        there or "not attached",
    )
    assert not rows["ublk data.1 size_bytes"].holds


def test_statistics_are_in_the_order_of_disks() -> None:
    (counted,) = planned("media(nvme,3)/btrfs").counted
    assert counted.disks == ("data.0", "data.1", "data.2")
    assert [disk.reads for disk in counted.parse(accounts_of("disk2", "disk0", "disk1"))] == [1, 2, 0]
    assert counted.parse(accounts_of("disk0", "disk2")) == ()


MINE = (CRATE / "models" / "nvme.toml").read_text().replace('"nvme"', '"mine"').strip()


def test_a_model_of_ones_own_is_sent_and_its_parameters_are_attested(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE)
    problems, stack = resolve_stack_files(parse_stack("media(./mine.toml,2)/btrfs(raid1)"), tmp_path)
    assert problems == []
    plan = plan_stack(stack, CONTEXT)
    file = f"{FOLDER}.toml"
    (step,) = [step for step in plan.steps if step.name == "modelled disks for data"]
    assert step.shown_commands[:2] == (f"strata-disk serve {FOLDER} --background", f"tee {file}")
    assert step.commands[1].stdin == MINE
    assert [f"--media {file} " in line for line in step.shown_commands] == [False, False, True, True]
    assert RemovePath(path=file) in step.undo
    (check,) = (check for check in plan.checks if isinstance(check, MediaCheck))
    own = {name: p["value"] for name, p in tomllib.loads(MINE)["parameters"].items()}
    for parameters, holds in ((own, True), (own | {"read_us": 1.0}, False)):
        said = accounts_of("disk0", "disk1", model="mine", parameters=parameters)
        syncs = {("sync", f"/dev/loop{number}"): completed(()) for number in (0, 1)}
        host = FakeHost({("strata-disk", "stats", FOLDER): completed((), said), **syncs})
        rows = check.attest(host, {"data.0": "/dev/loop0", "data.1": "/dev/loop1"})
        assert [row.holds for row in rows if row.what == "media data.1 parameters"] == [holds]


def test_so_are_those_of_a_disk_that_the_host_models() -> None:
    modelled = {LOG: ModelledDisk("log", "mine", 1.0, parameters={"read_us": 80.0})}
    assert read_modelled(FakeHost(files={PATH: render_modelled(modelled)})) == modelled
    plan = plan_stack(parse_stack(f"disk({LOG})/ext4"), replace(CONTEXT, modelled=modelled))
    (check,) = (check for check in plan.checks if isinstance(check, MediaCheck))
    said = accounts_of("log", model="mine", parameters={"read_us": 81.0})
    rows = check.attest(FakeHost(answer=lambda asked: completed(asked.argv, said)), {"data.0": "/dev/vdb"})
    assert [row.holds for row in rows if row.what == "media data.0 parameters"] == [False]


LOG = "/dev/disk/by-id/virtio-log"
OTHER = "/dev/disk/by-id/virtio-a"
MODELLED = {LOG: ModelledDisk("log", "sata-ssd-plp", 20.0)}


def test_a_real_disk_that_its_host_models_is_counted_and_attested() -> None:
    plan = plan_stack(parse_stack(f"disk(/dev/disk/by-id/virtio-a,{LOG})/btrfs"), replace(CONTEXT, modelled=MODELLED))
    (counted,) = plan.counted
    assert counted.disks == ("data.1",)
    (check,) = (check for check in plan.checks if isinstance(check, MediaCheck))
    for flushes, arrives in ((7, "arrives"), (0, "does not arrive")):
        said = accounts_of("data", "log", model="sata-ssd-plp", stretch=20.0, flushes=flushes)
        host = FakeHost({ask_modelled().argv: completed((), said), ("sync", "/dev/vdb"): completed(())})
        rows = check.attest(host, {"data.1": "/dev/vdb"})
        assert [(row.what, row.actual, row.holds) for row in rows[1:]] == [
            ("media data.1 model", "sata-ssd-plp", True),
            ("media data.1 stretch", "20", True),
            ("media data.1 flush", arrives, arrives == "arrives"),
        ]


def test_of_the_disks_that_a_host_models_those_are_switched_that_are_timed_in_runs_alone() -> None:
    modelled = {LOG: ModelledDisk("log", "sata-ssd-plp", 20.0, "runs"), OTHER: ModelledDisk("a", "nvme", 1.0)}
    plan = plan_stack(parse_stack(f"disk({OTHER},{LOG})/btrfs"), replace(CONTEXT, modelled=modelled))
    (counted,) = plan.counted
    assert counted.switch is not None
    assert counted.switch.names == ("log",)
    assert counted.switch.on.resolve({}).argv != counted.switch.off.resolve({}).argv
    assert read_modelled(FakeHost(files={PATH: render_modelled(modelled)})) == modelled


def test_a_flush_of_a_disk_of_ones_own_must_arrive_each_time() -> None:
    (check,) = (check for check in planned("media(nvme)/ext4").checks if isinstance(check, MediaCheck))
    said = accounts_of("disk0", flushes=7)
    host = FakeHost(answer=lambda asked: completed(asked.argv, said))
    assert check.attest(host, {"data.0": "/dev/loop0"})[-1].actual == "does not arrive"


def test_a_real_disk_of_any_other_host_is_not() -> None:
    assert plan_stack(parse_stack(f"disk({LOG})/ext4"), CONTEXT).counted == ()


def test_what_a_host_says_of_its_modelled_disks_is_read_back() -> None:
    assert read_modelled(FakeHost()) == {}
    assert read_modelled(FakeHost(files={PATH: render_modelled(MODELLED)})) == MODELLED
    with pytest.raises(PgstrataError):
        read_modelled(FakeHost(files={PATH: '{"log": {}}'}))


@pytest.mark.parametrize(
    "text", ["media/ext4", "media(hdd-15000)/ext4", "media(nvme,stretch=0)/ext4", "media(nvme,sizes=3)/ext4"]
)
def test_media_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_stack(text)


def test_so_is_what_lies_on_disks_that_the_host_has_modelled() -> None:
    modelled = {LOG: ModelledDisk("log", "sata-ssd-plp", 20.0, "runs")}
    (counted,) = plan_stack(parse_stack(f"disk({LOG})/ext4"), replace(CONTEXT, modelled=modelled)).counted
    assert counted.switch is not None
    host = FakeHost(answer=lambda asked: completed(asked.argv))
    assert run_undo(host, counted.switch.undo, same_boot=True) == ""
    assert host.asked == [counted.switch.off.resolve({})]
