"""Real trials on real filesystems: what is recorded, what fails a trial, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from leavings import kernel_settings, leftovers
from pgstrata.analyze.campaign.selection import Selection
from pgstrata.host.local import LocalHost
from pgstrata.postgres.binaries import choose, discover
from pgstrata.record.reader import CampaignData, TrialData, read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.stack import Postgres
from pgstrata.trial.events import Event, Notice, StepBegun
from small_campaigns import QUICK, campaign, only, run, stack


@dataclass
class Meddling:
    """Does something the moment a step begins."""

    at: str
    do: Callable[[], object]
    seen: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        match event:
            case Notice(text=text):
                self.told.append(text)
            case StepBegun(step=name):
                self.seen.append(name)
                if name.endswith(self.at):
                    self.do()


def mount_of(place: Path) -> str:
    """Where the data of the trial that is running is mounted."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    (found,) = [line.split()[4] for line in lines if f"{place}/state/mount/" in line and "/data" in line.split()[4]]
    return found


class TestRecord:
    def test_everything_is_recorded(self, place: Path) -> None:
        """Fresh load, then a copy of it, with pg_wal on a volume and the tables in a tablespace of their own."""
        split = stack("split", "ext4", wal={"fs": {"kind": "tmpfs"}}, tablespaces={"fast": {"fs": {"kind": "tmpfs"}}})
        asked = campaign(
            split, workload={"tablespace": "fast", "script": ["select-only", "tpcb-like"], "duration": 3}, blocks=2
        )
        assert run(place, asked).counts == {"ok": 2}
        data = read(place / "out")
        assert [t.load.how for t in data.trials if t.load] == ["fresh", "copy"]
        for trial in data.trials:
            self.check_trial(trial)
        self.check_series(data)
        assert not (place / "out" / "scratch").exists()

    def check_trial(self, trial: TrialData) -> None:
        assert [c.cell.script for c in trial.cells] == ["select-only", "tpcb-like"]
        assert trial.facts is not None
        assert {"machine id", "kernel", "PostgreSQL version"} <= set(trial.facts.checked)
        assert {a.moment for a in trial.attested} == {"built", "before cell", "after cell"}
        assert all(a.holds for a in trial.attested)
        assert any(a.what.startswith("PostgreSQL fsync") for a in trial.attested)
        settings = {s.name: s for s in trial.settings}
        assert (settings["max_wal_size"].setting, settings["max_wal_size"].default) == ("64", "1024"), "changed"
        assert settings["random_page_cost"].source == "default", "important, and at its default"
        assert not {"application_name", "enable_seqscan"} & set(settings), (
            "of psql's own session; at its default and not important"
        )
        assert [s.moment for s in trial.space] == ["after load", *(f"after {c.id}" for c in trial.cells)]
        assert all(set(s.by_role) == {"data", "wal", "tablespace.fast"} for s in trial.space)
        tables = trial.space[0].by_role["tablespace.fast"]
        assert tables > 14_000_000, "the tables are in their tablespace"
        names = [s.name for s in trial.steps]
        assert names[-1] == "undo"
        assert all(s.error == "" for s in trial.steps)
        assert {"raw/postgresql.log"} <= {n.removeprefix(f"{trial.folder}/") for n in trial.raw_names()}

    def check_series(self, data: CampaignData) -> None:
        for cell in data.cells():
            assert cell.result.transactions > 0
            assert cell.result.prewarmed in ("pg_prewarm", "sequential read")
            raw = {name.rsplit("/", 1)[-1] for name in cell.raw_names()}
            assert {"pgbench.out", "pgbench.err", "samples.jsonl", "postgres.jsonl"} <= raw
            for series in ("progress", "devices", "system", "postgres"):
                assert cell.table(series)["t_s"].size >= 1, series
            system = cell.table("system")
            whole = ~np.isnan(list(system.values())).any(axis=0)
            assert (system["server_cpu"][whole] > 0).all()
            assert (system["client_cpu"][whole] > 0).all()
            assert whole.any(), "neither server nor pgbench was found by the probe"
        writing = [c for c in data.cells() if c.cell.script == "tpcb-like"]
        assert all((c.result.wal_bytes or 0) > 100 * c.result.transactions for c in writing)

    def test_a_golden_copy_that_has_decayed_is_made_anew(self, place: Path) -> None:
        def decay() -> None:
            for file in (place / "out" / "scratch").glob("pgstrata-golden-*/*/files/data/PG_VERSION"):
                file.write_bytes(b"9")

        meddling = Meddling("check the golden directory", decay)
        assert run(place, campaign(stack("ext4"), blocks=2), meddling).counts == {"ok": 2}
        assert [t.load.how for t in read(place / "out").trials if t.load] == ["fresh", "fresh"]
        assert len([line for line in meddling.told if "is recreated" in line]) == 2, "of data and empty cluster"

    @kernel_settings
    def test_keep_runs_again_on_the_same_filesystem(self, place: Path) -> None:
        tuned = stack("tuned", "ext4", kernel={"sysctl": {"vm.swappiness": 7}})
        assert run(place, campaign(tuned, load="keep", blocks=2)).counts == {"ok": 2}
        first, second = read(place / "out").trials
        assert first.load is not None
        assert second.load is not None
        assert (first.load.how, second.load.how) == ("fresh", "keep")
        assert "make ext4 for data" not in [s.name for s in second.steps]
        assert any(a.what.endswith("vm.swappiness") and a.actual == "7" for a in second.attested)

    def test_an_existing_directory(self, place: Path) -> None:
        (place / "mine").mkdir(mode=0o755)
        (place / "mine" / "precious").write_text("data")
        there = stack("mine", "dir")
        there["data"]["fs"]["path"] = str(place / "mine")
        assert run(place, campaign(there)).counts == {"ok": 1}
        assert [p.name for p in (place / "mine").iterdir()] == ["precious"]

    def test_a_build_by_its_folder_is_a_level_beside_the_default(self, place: Path) -> None:
        found = discover(LocalHost())
        systems = [i for i in found if i.source == "system"]
        if not systems:
            pytest.skip("no PostgreSQL of the system: apt-get install postgresql")
        tree = Path(choose(found, Postgres()).bin_directory).parent
        named = stack("named", "tmpfs", postgresql={**QUICK, "installation": str(tree)})
        assert run(place, campaign(stack("usual", "tmpfs"), named)).counts == {"ok": 2}
        data = read(place / "out")
        servers = {t.trial.stack: t.facts.checked for t in data.trials if t.facts}
        assert servers["named"]["PostgreSQL version"].endswith(f" ({tree})")
        assert servers["usual"]["PostgreSQL version"].endswith(" (system)")
        assert servers["named"]["PostgreSQL program"].startswith("SHA-256 ")
        assert Selection.of(data.trials).counts(data.trials[0])
        assert Selection.of(data.trials).counts(data.trials[1])

    def test_an_aged_and_trimmed_filesystem(self, place: Path) -> None:
        aged = stack("aged")
        aged["data"]["device"] = {"kind": "loop", "size": "1200M"}
        assert run(place, campaign(aged, aged=True, precondition="trim")).counts == {"ok": 1}
        trial = only(place)
        assert {"trim", "age the filesystem"} <= {s.name for s in trial.steps}
        loaded = trial.space[0].physical_bytes
        assert loaded is not None
        assert loaded > 0.75 * 1200 * 2**20, "the old files are still there"
        assert "trimmed" in (place / "out" / trial.folder / "raw" / "trim-data.txt").read_text()

    def test_bounded_by_transactions(self, place: Path) -> None:
        bounded = campaign(stack("tmpfs", "tmpfs"), workload={"duration": None, "transactions": 100})
        assert run(place, bounded).counts == {"ok": 1}
        assert only(place).cells[0].result.transactions == 200


class TestSabotage:
    """Somebody changes something while pgbench runs: the trial fails, and says what."""

    def fail(self, place: Path, asked: Campaign, do: Callable[[], object]) -> str:
        meddling = Meddling("measure", do)
        assert run(place, asked, meddling).counts == {"failed": 1}
        assert meddling.seen[-1] == "undo"
        return only(place).verdict.reason

    def test_mount_option_dropped(self, place: Path) -> None:
        asked = stack("noatime")
        asked["data"]["fs"]["noatime"] = True

        def remount() -> None:
            subprocess.run(["mount", "-o", "remount,strictatime", mount_of(place)], check=True, timeout=60)

        reason = self.fail(place, campaign(asked), remount)
        assert "after cell" in reason
        assert "atime" in reason

    @kernel_settings
    def test_sysctl_reset(self, place: Path) -> None:
        asked = stack("tuned", kernel={"sysctl": {"vm.swappiness": 7}})
        reason = self.fail(place, campaign(asked), lambda: Path("/proc/sys/vm/swappiness").write_text("33"))
        assert "vm.swappiness" in reason
        assert "expected 7, found 33" in reason

    def test_queue_setting_changed(self, place: Path) -> None:
        asked = stack("queue", kernel={"queue": {"read_ahead_kb": 64}})

        def change() -> None:
            device = subprocess.run(
                ["findmnt", "--noheadings", "--output", "SOURCE", mount_of(place)],
                check=True, capture_output=True, text=True, timeout=60,
            ).stdout.strip()  # fmt: skip
            Path(f"/sys/block/{Path(device).name}/queue/read_ahead_kb").write_text("128")

        reason = self.fail(place, campaign(asked), change)
        assert "read_ahead" in reason
        assert "found 128" in reason

    def test_server_setting_changed(self, place: Path) -> None:
        def change() -> None:
            conf = Path(mount_of(place)) / "pgdata" / "postgresql.auto.conf"
            conf.write_text("work_mem = '1MB'\n")
            pid = int((conf.parent / "postmaster.pid").read_text().splitlines()[0])
            os.kill(pid, signal.SIGHUP)

        reason = self.fail(place, campaign(stack("ext4")), change)
        assert "PostgreSQL work_mem" in reason or "PostgreSQL" in reason


class TestFailures:
    def test_pgbench_fails_half_way(self, place: Path) -> None:
        script = place / "wrong.sql"
        script.write_text("INSERT INTO pgbench_history (tid) SELECT 1;\nSELECT 1/(SELECT count(*) < 50 FROM "
                          "pgbench_history)::int;\n")  # fmt: skip
        asked = campaign(stack("tmpfs", "tmpfs"), workload={"script": str(script)})
        assert run(place, asked).counts == {"failed": 1}
        trial = only(place)
        assert "division by zero" in trial.verdict.reason
        assert trial.cells == ()
        (raw,) = (place / "out").glob(f"trials/{trial.id}/cells/*/raw")
        assert "division by zero" in (raw / "pgbench.err").read_text(), "its output is kept"
        assert (raw / "samples.jsonl").stat().st_size > 0

    def test_a_server_that_does_not_start(self, place: Path) -> None:
        greedy = stack("greedy", "tmpfs")
        greedy["postgresql"] = {"settings": {"huge_pages": "on"}}  # and the host has none
        fine = stack("fine", "tmpfs")
        assert run(place, campaign(greedy, fine)).counts == {"failed": 1, "ok": 1}
        reasons = {t.trial.stack: t.verdict.reason for t in read(place / "out").trials}
        assert "did not start" in reasons["greedy"]
        assert "shared memory" in reasons["greedy"] or "could not" in reasons["greedy"]

    def test_a_device_that_fills_up(self, place: Path) -> None:
        filling = Meddling("measure", lambda: self.fill(place))
        asked = campaign(stack("ext4"), workload={"duration": 5})
        assert run(place, asked, filling).counts == {"failed": 1}
        assert "No space left" in only(place).verdict.reason

    def fill(self, place: Path) -> None:
        """The data and its future WAL no longer fit."""
        argv = ["dd", "if=/dev/zero", f"of={mount_of(place)}/filler", "bs=4M", "status=none"]
        subprocess.run(argv, check=False, stderr=subprocess.DEVNULL, timeout=120)

    def test_a_trial_that_takes_too_long(self, place: Path) -> None:
        assert run(place, campaign(stack("tmpfs", "tmpfs"), max_trial_duration=1)).counts == {"failed": 1}
        assert "longer than" in only(place).verdict.reason


class TestInterruption:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_undoes_and_resumes(self, place: Path, number: signal.Signals) -> None:
        asked = campaign(stack("ext4"), stack("tmpfs", "tmpfs"), workload={"duration": 3})

        def interrupt() -> None:
            threading.Timer(1.0, lambda: os.kill(os.getpid(), number)).start()

        began = time.monotonic()
        assert run(place, asked, Meddling("measure", interrupt)).interrupted
        assert time.monotonic() - began < 120
        assert leftovers(place) == []
        assert len(list((place / "out" / "interrupted").iterdir())) == 1
        assert not (place / "state" / "journal").exists() or not list((place / "state" / "journal").iterdir())
        assert run(place, asked).counts == {"ok": 2}

    def test_two_runs_at_once_in_one_directory(self, place: Path) -> None:
        from pgstrata.errors import PreflightError

        refused: list[str] = []

        def second() -> None:
            with pytest.raises(PreflightError) as caught:
                CampaignDirectory.create_or_open(place / "out", asked)
            refused.append(caught.value.message)

        asked = campaign(stack("tmpfs", "tmpfs"))
        assert run(place, asked, Meddling("measure", second)).counts == {"ok": 1}
        assert "is running in" in refused[0]


def test_two_runs_at_once_on_one_device(place: Path) -> None:
    """The second is refused also between two trials of the first, when nothing is mounted."""
    from pgstrata.errors import PreflightError

    image = place / "disk.img"
    with image.open("wb") as file:
        file.truncate(2560 * 2**20)
    argv = ["losetup", "--find", "--show", str(image)]
    device = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    try:
        asked = campaign({"name": "disk", "data": {"device": {"kind": "disk", "ids": [str(image)]},
                                                   "fs": {"kind": "ext4"}}, "postgresql": QUICK})  # fmt: skip
        first = LocalHost(state_directory=str(place / "state"))
        assert first.try_lock(f"device-{image}", json.dumps("another run")) is None
        with pytest.raises(PreflightError, match="another pgstrata"):
            run(place, asked)
        first.close()
        assert run(place, asked).counts == {"ok": 1}
    finally:
        subprocess.run(["losetup", "--detach", device], check=True, timeout=60)
