"""What `pgstrata plan` says is what `pgstrata run` does: every step and every command, on real filesystems."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from campaigning import environment, nothing_left, reachable, run
from following import differences, executed_steps, not_followed, planned_steps
from pgstrata.cli.main import app
from pgstrata.record.reader import read

HEAD = """\
name: small
workload: {{scale: 1, warmup: {warmup}{workload}}}
runs: {{blocks: {blocks}, fresh_blocks: 1{runs}}}
{stages}
defaults:
  device: {{loop: 1, size: {size}}}
  postgresql: {{initdb: [--no-sync], settings: {{fsync: "off", max_wal_size: 64MB}}}}
stacks:
{stacks}
"""


def campaign(
    stacks: str,
    *,
    workload: str = "",
    runs: str = "",
    blocks: int = 1,
    warmup: int = 0,
    size: str = "2560M",
    stages: str = "",
) -> str:
    given = workload if "clients:" in workload else f", clients: 2, duration: 1{workload}"
    given += "" if stages or "rate:" in given else ", rate: 100"
    return HEAD.format(stacks=stacks, workload=given, runs=runs, blocks=blocks, warmup=warmup, size=size, stages=stages)


SPLIT = """\
  split:
    data: {fs: ext4}
    wal: {fs: xfs}
    tablespaces: {fast: {fs: tmpfs}}
    kernel: {queue: {read_ahead_kb: 256}}
"""

CAMPAIGNS = {
    "a copy of what was loaded, wal and tablespace apart": campaign(
        f"{SPLIT}  plain: tmpfs\n", workload=", tablespace: fast, freeze: true, log: all", blocks=2, warmup=1
    ),
    "raid1 of btrfs, trimmed, every load anew": campaign(
        "  b: btrfs(raid1,2)", runs=", load: fresh, precondition: trim", blocks=2
    ),
    "a stack that is kept, and a directory": campaign("  k: tmpfs\n  d: dir:PLACE/own", runs=", load: keep", blocks=2),
    "a filesystem that is aged, a script and a database of one's own": campaign(
        "  x: xfs", workload=", script: PLACE/own.sql, sql: PLACE/database.sql", runs=", aged: true", size="1536M"
    ),
    "a device that is written full, at a fixed rate": campaign(
        "  e: ext4", workload=", rate: 200", runs=", precondition: steady", size="1G"
    ),
}


MEDIA = "modelled media"
CAMPAIGNS[MEDIA] = campaign("  m: media(nvme,2)/btrfs(raid1)@wal=media(sata-ssd,timed=runs)/ext4")
CAMPAIGNS["servers of two majors"] = campaign("  old: tmpfs@major=16\n  new: tmpfs@major=18")
CAMPAIGNS["checksums, small segments and settings from a file"] = campaign(
    """\
  s:
    data: {fs: ext4}
    postgresql:
      initdb: [--no-sync, --wal-segsize=4]
      data_checksums: true
      postgresql_conf: PLACE/own.conf
      settings: {work_mem: 2MB}
"""
)
CAMPAIGNS["two scripts at two numbers of clients, by transactions"] = campaign(
    "  t: tmpfs", workload=", script: [select-only, simple-update], clients: [1, 2], transactions: 20"
)
HAS_DISKS = (Path(sys.executable).parent / "strata-disk").exists()


STAGES = {
    "latency at a matched rate, then a soak": campaign(
        "  t: tmpfs\n  d: dir:PLACE/own", stages="latency: {rates: [50%], blocks: 1}\nsoak: {duration: 2s, runs: 1}"
    ),
    "capacity": campaign("  t: tmpfs", stages="latency: {rates: [50%], blocks: 1, objective_ms: 200}"),
}
"""What a plan cannot hold: rates and stacks of later stages follow from what was measured before."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with reachable(tmp_path) as folder:
        (folder / "own").mkdir()
        (folder / "own").chmod(0o777)
        yield folder


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.skipif(name == MEDIA and not HAS_DISKS, reason="strata-disk is not built"))
        for name in CAMPAIGNS
    ],
)
def test_what_is_planned_is_done(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "database.sql").write_text("CREATE TABLE own AS SELECT g AS id FROM generate_series(1, 1000) g;\n")
    (place / "own.sql").write_text("SELECT count(*) FROM own;\n")
    (place / "own.conf").write_text("work_mem = 8MB\narchive_command = 'false'\nrandom_page_cost = 1.1\n")
    file = place / "c.yaml"
    file.write_text(CAMPAIGNS[name].replace("PLACE", str(place)), encoding="utf-8")
    for key, value in environment(place).items():
        monkeypatch.setenv(key, value)
    asked = CliRunner().invoke(app, ["plan", str(file), "--out", str(place / "out"), "--json"])
    assert asked.exit_code == 0, asked.output
    planned = {t["id"]: planned_steps(t["steps"]) for t in json.loads(asked.stdout)["trials"]}
    assert run(file, place) == 0, (place / "log.txt").read_text()
    trials = sorted((place / "out" / "trials").iterdir())
    assert {t.name for t in trials} == planned.keys()
    for trial in trials:
        assert differences(planned[trial.name], executed_steps(trial)) == []
        assert not_followed(trial) == []
        events = [json.loads(line) for line in (trial / "events.jsonl").read_text().splitlines()]
        assert events[-1]["event"] == "verdict"
        assert any(row["holds"] for e in events if e["event"] == "attested" for row in e["rows"])
    if name == MEDIA:
        used = [
            (use.disk, use.model, use.elapsed_s > 0, use.untimed)
            for cell in read(place / "out").cells()
            for use in cell.result.disks
        ]
        assert used == [("data.0", "nvme", True, 0), ("data.1", "nvme", True, 0), ("wal.0", "sata-ssd", True, 0)]
    nothing_left(place)


@pytest.mark.timeout(900)  # the search for a capacity takes as many trials as the noise asks for
@pytest.mark.parametrize("name", STAGES)
def test_a_stage_does_what_its_own_plans_say(name: str, place: Path) -> None:
    file = place / "c.yaml"
    file.write_text(STAGES[name].replace("PLACE", str(place)), encoding="utf-8")
    assert run(file, place) == 0, (place / "log.txt").read_text()
    trials = read(place / "out").trials
    stages = {t.trial.stage for t in trials}
    assert stages == ({"screen", "latency", "soak"} if "soak" in name else {"screen", "latency", "capacity"})
    for trial in (place / "out" / "trials").iterdir():
        assert not_followed(trial) == []
        (record,) = (t for t in trials if t.id == trial.name)
        measured = [argv for step, run in executed_steps(trial) if step.endswith(": measure") for argv in run]
        (pgbench,) = (argv for argv in measured if argv[0].endswith("/pgbench"))
        if record.trial.stage == "soak":
            assert pgbench[pgbench.index("--time") + 1] == "2"
        if record.trial.stage in ("latency", "capacity"):
            assert float(pgbench[pgbench.index("--rate") + 1]) > 0
            assert any(argument.startswith("--log-prefix=") for argument in pgbench)
    nothing_left(place)
