"""A real server whose disk, processor and locks are made scarce: each is named as what most of the time goes to."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from awaiting import wait_until
from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.findings import Findings
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Command, Host
from pgstrata.postgres.binaries import choose, discover
from pgstrata.postgres.server import Server, ServerDirectories
from pgstrata.postgres.user import readable_installation, run_user
from pgstrata.probe.parse import device_rows, parse_lines, postgres_rows, system_rows, wait_rows
from pgstrata.probe.postgres import render_probe_script
from pgstrata.probe.start import POSTGRES, SAMPLES, plan_host_probe, start_probes
from pgstrata.record.reader import read
from pgstrata.record.recorder import CampaignDirectory, TrialRecorder
from pgstrata.record.schema import CellResult, PlannedRecord, TrialVerdict
from pgstrata.report.sentences.why import profile_words, profiles_of
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.stack import Postgres, Stack, Volume
from pgstrata.spec.workload import Cell, Workload
from pgstrata.workload.pgbench import plan_init, plan_run
from pgstrata.workload.pgbench_output import PgbenchResult, parse_result
from pgstrata.workload.target import Target

CGROUPS = Path("/sys/fs/cgroup")
CLIENTS = 8
SECONDS = 4
"""With half as many samples, beside other work, the scarce processor was once taken for the client."""
WRITES_PER_S = 60
QUOTA_US = 20_000
"""Of every tenth of a second."""
MUCH_TO_DO = "SELECT sum(n) FROM generate_series(1, 30000) n;\n"
ONE_ROW = "BEGIN;\nUPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 1;\nSELECT pg_sleep(0.01);\nEND;\n"
CELL = Cell(script="simple-update", scale=2, clients=CLIENTS)
DEVICE_BYTES = 512 << 20

pytestmark = pytest.mark.skipif(
    not all((CGROUPS / name / "cgroup.procs").exists() for name in ("cpu", "blkio")),
    reason="needs control groups of version 1 for processors and disks",
)


@dataclass(frozen=True)
class Place:
    """A server on a loop device."""

    host: Host
    server: Server
    device: str
    folder: Path
    target: Target


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    host = LocalHost()
    with (
        tempfile.TemporaryDirectory(prefix="pgstrata-test-", dir="/var/tmp") as name,
        mounted(host, Path(name)) as node,
    ):
        folder, user = Path(name), run_user(host)
        installation = readable_installation(host, choose(discover(host), Postgres()), user)
        host.make_directory(f"{folder}/mount/server", owner=user)
        server = Server(host, installation, user, ServerDirectories(f"{folder}/mount/server/data"), marker=folder.name)
        try:
            server.init(options=("--no-sync",))
            server.configure({"shared_buffers": "64MB", "max_connections": "30", "autovacuum": "off"})
            server.start()
            target = Target(
                installation.client_directory, installation.client_major, server.run_directory, server.port, user
            )  # fmt: skip
            host.run(plan_init(target, CELL.scale))
            status = host.status(node)
            assert status is not None
            yield Place(host, server, "{}:{}".format(*status.device), folder, target)
            server.stop()
        finally:
            server.crash_stop()
            host.remove(server.run_directory)
    host.close()


@contextmanager
def mounted(host: Host, folder: Path) -> Iterator[str]:
    folder.chmod(0o711)
    with (folder / "device").open("wb") as file:
        file.truncate(DEVICE_BYTES)
    node = host.run(Command(("losetup", "--find", "--show", str(folder / "device")))).stdout.strip()
    try:
        host.run(Command(("mkfs.ext4", "-q", node)))
        (folder / "mount").mkdir()
        host.run(Command(("mount", node, str(folder / "mount"))))
        try:
            yield node
        finally:
            # A process that was killed in a write is gone a little later.
            wait_until(lambda: is_unmounted(folder / "mount"), "nothing holds the filesystem")
    finally:
        host.run(Command(("losetup", "--detach", node)))


def is_unmounted(folder: Path) -> bool:
    return subprocess.run(["umount", str(folder)], capture_output=True, timeout=60).returncode == 0


@contextmanager
def confined(place: Place, controller: str, limits: dict[str, str]) -> Iterator[None]:
    """The server, and the sessions that it starts, in a control group with these limits."""
    group = CGROUPS / controller / f"pgstrata-test-{os.getpid()}"
    pid = place.server.postmaster_pid()
    assert pid is not None
    own = CGROUPS / controller / dict(groups_of(pid))[controller].lstrip("/") / "cgroup.procs"
    group.mkdir()
    try:
        for name, value in limits.items():
            (group / name).write_text(value)
        (group / "cgroup.procs").write_text(str(pid))
        yield
        own.write_text(str(pid))
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "the sessions have ended")
        group.rmdir()


def groups_of(pid: int) -> Iterator[tuple[str, str]]:
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def slow_disk(place: Place) -> AbstractContextManager[None]:
    limits = {"blkio.throttle.write_iops_device": f"{place.device} {WRITES_PER_S}"}
    return confined(place, "blkio", limits)


def slow_processor(place: Place) -> AbstractContextManager[None]:
    return confined(place, "cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": str(QUOTA_US)})


@dataclass(frozen=True)
class Condition:
    """The script of pgbench, or its text, and what is done to the server meanwhile."""

    script: str
    scarce: Callable[[Place], AbstractContextManager[None]]
    text: str = ""


CONDITIONS = {
    "disk": Condition("simple-update", slow_disk),
    "processor": Condition("much-to-do", slow_processor, MUCH_TO_DO),
    "locks": Condition("one-row", lambda place: nullcontext(), ONE_ROW),
}


def measure(place: Place, condition: str, number: int) -> tuple[PgbenchResult, float, Path]:
    """One run with the probes beside it; when it began, and where their output is. Its sessions alone are confined."""
    asked = CONDITIONS[condition]
    folder = place.folder / f"run{number}"
    folder.mkdir()
    host, server = place.host, place.server
    host_probe = plan_host_probe(
        place.device, data_directory=server.layout.data_directory, sockets=server.run_directory
    )
    host_probe = replace(host_probe, argv=(*host_probe.argv, "--interval=0.2"))
    major = server.installation.major
    postgres_probe = Command(tuple(server.psql()), stdin=render_probe_script(major, 0.1), user=server.user, cwd="/")
    path = place.folder / f"{asked.script}.sql"
    path.write_text(asked.text)
    cell, workload = CELL.model_copy(update={"script": asked.script}), Workload(duration=SECONDS, jobs=2)
    run = plan_run(
        place.target, cell, workload, seed=number, script_paths={asked.script: str(path)} if asked.text else None
    )
    probes = start_probes(host, str(folder), host_probe, postgres_probe)
    began = time.time()
    try:
        with asked.scarce(place):
            done = host.run(run)
    finally:
        probes.stop()
    return parse_result(done.stdout), began, folder


def record(recorder: TrialRecorder, place: Place, found: PgbenchResult, began: float, folder: Path) -> None:
    samples = parse_lines((folder / SAMPLES).read_text())
    server = parse_lines((folder / POSTGRES).read_text())
    for name, rows in {
        "system": system_rows(samples, began),
        "devices": device_rows(samples, {place.device: "data"}, began),
        "postgres": postgres_rows(server, began),
        "waits": wait_rows(server, began),
    }.items():
        recorder.series(CELL.id, name, rows)
    result = CellResult(
        cell=CELL, started="", duration_s=float(SECONDS), transactions=found.transactions, tps=found.tps
    )
    recorder.write(f"cells/{CELL.id}/result.json", result)


def findings_of(place: Place) -> Findings:
    """A run of each, as a campaign."""
    stacks = tuple(Stack(name=name, data=Volume(fs=Ext4())) for name in CONDITIONS)
    workload = Workload(script=CELL.script, scale=CELL.scale, clients=CLIENTS, duration=SECONDS)
    campaign = Campaign(name="scarce", stacks=stacks, workload=workload)
    out = place.folder / "out"
    with CampaignDirectory.create_or_open(out, campaign) as directory:
        for position, stack in enumerate(stacks):
            measured = measure(place, stack.name, position)
            trial = Trial(
                id=f"b0-{stack.name}", stack=stack.name, block=0, position=position, load="fresh",
                scale=CELL.scale, cells=(CELL,), workload_seed=0,
            )  # fmt: skip
            recorder = directory.start_trial(trial, PlannedRecord(trial=trial, stack=stack, steps=()))
            record(recorder, place, *measured)
            recorder.finish(TrialVerdict(trial_id=trial.id, status="ok"))
    return judge(read(out))


def test_what_is_scarce_is_named(place: Place) -> None:
    findings = findings_of(place)
    (cell,) = findings.cells
    profiles = profiles_of(findings, cell)
    told = "\n".join(f"{profile_words(p)} {p.figures}" for p in profiles.values())
    assert {name: profile.mostly for name, profile in profiles.items()} == {
        "disk": "storage",
        "processor": "processor",
        "locks": "locks",
    }, told
    assert profiles["disk"].figures["flushes_per_transaction"].mean > 0
