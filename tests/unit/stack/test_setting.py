"""Kernel settings in files: how the present value is found and put back."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_host import FakeHost
from pgstrata.errors import PreflightError, TrialError
from pgstrata.host.local import LocalHost
from pgstrata.stack.build import StepRunner
from pgstrata.stack.journal import Journal, parse_journal
from pgstrata.stack.step import Ref, Setting, Step
from pgstrata.stack.tuning.setting import SettingCheck, plan_restore, require_room_to_commit, setting_path
from pgstrata.stack.undo import GiveBackSetting

MEMINFO = "MemTotal: 8388608 kB\nSwapTotal: 0 kB\nCommitLimit: {limit} kB\nCommitted_AS: 2097152 kB\n"


def _host(files: dict[str, str]) -> FakeHost:
    return FakeHost(files={"/proc/sys/kernel/random/boot_id": "b\n", **files})


def test_a_partition_has_the_queue_of_its_disk(tmp_path: Path) -> None:
    disk = tmp_path / "devices" / "sda"
    (disk / "sda1").mkdir(parents=True)
    (disk / "queue").mkdir()
    (disk / "queue" / "nr_requests").write_text("64\n")
    (tmp_path / "class").mkdir()
    for name, target in (("sda", disk), ("sda1", disk / "sda1")):
        (tmp_path / "class" / name).symlink_to(target)
    host = LocalHost(state_directory=str(tmp_path / "state"))
    path = Ref("data.0", before=f"{tmp_path}/class/", after="/queue/nr_requests", base=True)
    for node in ("/dev/sda", "/dev/sda1"):
        found = setting_path(host, path, {"data.0": node})
        assert host.read_text(found) == "64\n"
        (row,) = SettingCheck("queue", path, "64").attest(host, {"data.0": node})
        assert row.holds


def test_the_present_value_is_what_is_put_back() -> None:
    host = _host({"/sys/queue/scheduler": "none [mq-deadline] kyber\n"})
    assert plan_restore(host, "/sys/queue/scheduler") == ("/sys/queue/scheduler", "mq-deadline")


@pytest.mark.parametrize(
    ("values", "written", "restored"),
    [
        ({"dirty_bytes": "0", "dirty_ratio": "20"}, "dirty_bytes", ("dirty_ratio", "20")),
        ({"dirty_bytes": "4096", "dirty_ratio": "0"}, "dirty_ratio", ("dirty_bytes", "4096")),
        ({"dirty_bytes": "0", "dirty_ratio": "20"}, "dirty_ratio", ("dirty_ratio", "20")),
        ({"overcommit_kbytes": "0", "overcommit_ratio": "50"}, "overcommit_kbytes", ("overcommit_ratio", "50")),
    ],
)
def test_of_a_pair_the_one_in_effect_is_put_back(
    values: dict[str, str], written: str, restored: tuple[str, str]
) -> None:
    host = _host({f"/proc/sys/vm/{name}": f"{text}\n" for name, text in values.items()})
    name, text = restored
    assert plan_restore(host, f"/proc/sys/vm/{written}") == (f"/proc/sys/vm/{name}", text)


def test_undos_are_journaled_first_and_in_the_order_of_restoring() -> None:
    host = _host({"/sys/a": "1\n", "/sys/b": "2\n"})
    journal = Journal.create(host, "t1")
    step = Step("settings", (), settings=(Setting("/sys/a", "8"), Setting("/sys/b", "9")))
    StepRunner(host, journal).run(step)
    assert (host.read_text("/sys/a"), host.read_text("/sys/b")) == ("8", "9")
    undos = parse_journal(host.read_text(journal.path)).undos
    assert undos == (GiveBackSetting(trial="t1", group="/sys/b"), GiveBackSetting(trial="t1", group="/sys/a"))
    assert [u.line for u in journal.undo_all()] == ["set /sys/a back to 1", "set /sys/b back to 2"]


def test_a_setting_that_is_not_there_fails_the_trial() -> None:
    host = _host({})
    journal = Journal.create(host, "t1")
    with pytest.raises(TrialError, match="settings could not be set on fake"):
        StepRunner(host, journal).run(Step("settings", (), settings=(Setting("/sys/none", "1"),)))
    (row,) = SettingCheck("queue", "/sys/none", "1").attest(host, {})
    assert (row.expected, row.actual) == ("1", "missing")


def test_strict_overcommit_is_checked_when_it_is_set() -> None:
    path = "/proc/sys/vm/overcommit_memory"
    tight = _host({"/proc/meminfo": MEMINFO.format(limit=2097152 + 400_000)})
    with pytest.raises(PreflightError, match="are committed") as refusal:
        require_room_to_commit(tight, path, "2")
    assert "overcommit_ratio" in refusal.value.hint
    require_room_to_commit(tight, path, "1")
    require_room_to_commit(_host({"/proc/meminfo": MEMINFO.format(limit=8388608)}), path, "2")
