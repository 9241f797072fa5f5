"""Campaigns with made-up figures, for tests and benchmarks of the offline side.

Noise is that of a typical host: run-to-run CV 2 %, AR(1) seconds, checkpoints every 30 s, a stall now and then on
stacks whose name asks for it, one failed, one excluded and one unsupported trial. Everything is drawn from a seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from pgstrata.record.recorder import CampaignDirectory, TrialRecorder
from pgstrata.record.schema import (
    AttestedRecord,
    CellResult,
    EventRecord,
    HostFacts,
    LoadRecord,
    PlannedRecord,
    SettingRecord,
    SpaceRecord,
    TrialVerdict,
)
from pgstrata.spec.campaign import Campaign, Stage, Trial
from pgstrata.spec.layers.btrfs import Btrfs
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.spec.layers.xfs import Xfs
from pgstrata.spec.stack import Stack, Volume
from pgstrata.spec.workload import Cell, Workload
from pgstrata_fake.cells import Rows, write_cell

MIB = 1024**2
NASTY = "ext4-<script>alert(1)</script>"
BEGUN = "2026-01-01T00:00:00.000+00:00"
STEPS = ("make files", "attach loop", "mkfs", "mount", "initdb", "start", "load", "restart", "warm up")
PHASES = {"drop tables": 0.01, "create tables": 0.02, "client-side generate": 6.2, "vacuum": 0.9, "primary keys": 2.1}
BASE_TPS = {
    "ext4": 2050.0,
    "xfs": 2210.0,
    "xfs-noatime": 2230.0,
    "btrfs": 980.0,
    "btrfs-nodatacow": 1500.0,
    "tmpfs": 9400.0,
}


@dataclass(frozen=True)
class Shape:
    """What to make."""

    stacks: tuple[str, ...] = ("ext4", "xfs", "xfs-noatime", "btrfs", "btrfs-nodatacow", "tmpfs")
    blocks: int = 6
    duration_s: int = 60
    scripts: tuple[str, ...] = ("tpcb-like",)
    scales: tuple[int, ...] = (50,)
    clients: tuple[int, ...] = (8,)
    seed: int = 1
    confirm: tuple[str, ...] = ()
    confirm_blocks: int = 0
    incidents: bool = True
    matched_rates: tuple[float, ...] = ()
    """Rates of a latency stage, TPS; three blocks of open loops after everything else."""
    soak_s: int = 0
    """Length of one soak run of every stack; none by default."""
    base_tps: dict[str, float] = field(default_factory=dict)
    hosts: int = 0
    """Blocks go round over so many hosts; by default all are of one."""
    host_effects: dict[tuple[int, str], float] = field(default_factory=dict)
    """By number of the host and stack: how much faster it is there, as a logarithm."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        return Workload(script=self.scripts, scale=self.scales, clients=self.clients).cells


def make_stack(name: str) -> Stack:
    """A stack of the filesystem that the name begins with."""
    kind = name.split("-")[0]
    noatime = "noatime" in name
    match kind:
        case "xfs":
            return Stack(name=name, data=Volume(fs=Xfs(noatime=noatime)))
        case "btrfs":
            return Stack(name=name, data=Volume(fs=Btrfs(nodatacow="nodatacow" in name)))
        case "tmpfs":
            return Stack(name=name, data=Volume(fs=Tmpfs()))
    return Stack(name=name, data=Volume(fs=Ext4(noatime=noatime)))


def write_runs(directory: Path, campaign: Campaign, base_tps: dict[str, float], blocks: int) -> Path:
    """Records runs of a campaign's own stacks, with those means; returns the directory."""
    workload, names = campaign.workload, tuple(stack.name for stack in campaign.stacks)
    shape = Shape(
        stacks=names,
        blocks=blocks,
        duration_s=int(workload.duration_s or 1),
        scales=workload.scale,
        clients=workload.clients,
        incidents=False,
        base_tps=base_tps,
    )
    with CampaignDirectory.create_or_open(directory, campaign) as recorded:
        _Maker(recorded, shape, campaign.stacks, np.random.default_rng(campaign.seed)).screen()
    return directory


def write_campaign(directory: Path, shape: Shape | None = None) -> Path:
    """Records a whole campaign; returns the directory."""
    shape = shape or Shape()
    stacks = tuple(make_stack(name) for name in shape.stacks)
    workload = Workload(
        script=shape.scripts, scale=shape.scales, clients=shape.clients, duration=float(shape.duration_s)
    )
    campaign = Campaign(name="made-up figures", stacks=stacks, workload=workload, seed=shape.seed)
    with CampaignDirectory.create_or_open(directory, campaign) as recorded:
        maker = _Maker(recorded, shape, stacks, np.random.default_rng(shape.seed))
        maker.screen()
        maker.confirm()
        maker.later()
    return directory


@dataclass(frozen=True)
class _Maker:
    """Trial after trial, from one stream of random numbers."""

    directory: CampaignDirectory
    shape: Shape
    stacks: tuple[Stack, ...]
    rng: np.random.Generator

    def screen(self) -> None:
        drift = 1.0
        for block in range(self.shape.blocks):
            for position, at in enumerate(self.rng.permutation(len(self.stacks))):
                drift *= math.exp(self.rng.normal(-0.0008, 0.004))
                for scale in self.shape.scales:
                    self.trial(self.stacks[at], block, position, scale, drift)

    def confirm(self) -> None:
        named = [s for s in self.stacks if s.name in self.shape.confirm]
        for pair in range(self.shape.confirm_blocks):
            for position, at in enumerate(self.rng.permutation(len(named))):
                for scale in self.shape.scales:
                    self.trial(named[at], self.shape.blocks + pair, position, scale, stage="confirm")

    def later(self) -> None:
        """Latency at matched load, then soak."""
        shape, scale = self.shape, self.shape.scales[0]
        block = shape.blocks + shape.confirm_blocks
        for _ in range(3 if shape.matched_rates else 0):
            cells = tuple(c.model_copy(update={"rate_tps": rate}) for c in shape.cells for rate in shape.matched_rates)
            for position, stack in enumerate(self.stacks):
                self.trial(stack, block, position, scale, stage="latency", cells=cells)
            block += 1
        longer = replace(self, shape=replace(shape, duration_s=shape.soak_s))
        for position, stack in enumerate(self.stacks if shape.soak_s else ()):
            longer.trial(stack, block, position, scale, stage="soak")

    def trial(
        self,
        stack: Stack,
        block: int,
        position: int,
        scale: int,
        drift: float = 1.0,
        *,
        stage: Stage = "screen",
        cells: tuple[Cell, ...] = (),
    ) -> None:
        shape, rng = self.shape, self.rng
        trial = Trial(
            id=f"b{block:02d}-p{position:02d}-{shape.stacks.index(stack.name):02d}-s{scale}",
            stack=stack.name,
            block=block,
            position=position,
            stage=stage,
            load="fresh" if block < 3 else "copy",
            scale=scale,
            cells=tuple(c for c in cells or shape.cells if c.scale == scale),
            workload_seed=block,
            host=f"ssh://db{block % shape.hosts:02d}" if shape.hosts else "",
        )
        if shape.hosts:
            drift *= math.exp(shape.host_effects.get((block % shape.hosts, stack.name), 0.0))
        recorder = self.directory.start_trial(trial, PlannedRecord(trial=trial, stack=stack, steps=()))
        recorder.write("facts.json", _facts(trial.host))
        recorder.write_list("attested.json", _attested(stack))
        recorder.write_list("settings.json", _settings(stack))
        for name in STEPS:
            recorder.append("events.jsonl", EventRecord(at=BEGUN, event="step_begun", step=name))
            duration_s = float(rng.gamma(2, 0.4))
            recorder.append("events.jsonl", EventRecord(at=BEGUN, event="step_ended", step=name, duration_s=duration_s))
        recorder.write_text("raw/postgresql.log", "LOG:  database system is ready to accept connections\n")
        status, reason = _status(shape, stack, block)
        if status in ("ok", "excluded"):
            _write_measured(recorder, shape, stack, drift, rng)
        verdict = TrialVerdict(
            trial_id=trial.id,
            status=status,
            reason=reason,
            hint="pgstrata doctor" if status == "failed" else "",
            duration_s=shape.duration_s + 14.0,
        )
        recorder.finish(verdict)


def _status(shape: Shape, stack: Stack, block: int) -> tuple[str, str]:
    last = shape.stacks[-1]
    if shape.incidents and stack.name == shape.stacks[0] and block == 1:
        return "failed", "pgbench ended with 2 after 14 s: server closed the connection unexpectedly"
    if shape.incidents and stack.name == last and block == 2:
        return "excluded", "foreign load: 41 % of a processor was used by others"
    return "ok", ""


def _facts(host: str) -> HostFacts:
    checked = {
        "machine id": f"0123{host}",
        "kernel release": "6.18.0",
        "CPU model": "made-up CPU @ 3.0 GHz",
        "CPUs": "8",
        "memory": "32 GiB",
        "PostgreSQL": "16.4",
    }
    return HostFacts(
        name=host or "db-test-1", checked=checked, told={"load average": "0.12"}, medium="loop file on ext4 on /dev/vda"
    )


def _attested(stack: Stack) -> list[AttestedRecord]:
    kind = stack.data.fs.kind
    return [
        AttestedRecord(what="filesystem", expected=kind, actual=kind, holds=True),
        AttestedRecord(what="mount options", expected="rw", actual="rw,relatime", holds=True, moment="before cell"),
        AttestedRecord(what="fsync", expected="on", actual="on", holds=True),
    ]


def _settings(stack: Stack) -> list[SettingRecord]:
    """Copy-on-write filesystems are run without full page writes."""
    by_file = "configuration file"
    full_page_writes = "off" if stack.data.fs.kind in ("btrfs", "zfs") else "on"
    return [
        SettingRecord(name="full_page_writes", setting=full_page_writes, default="on", source=by_file),
        SettingRecord(name="server_version", setting="16.4", default="16.4", source="default"),
        SettingRecord(name="shared_buffers", setting="131072", unit="8kB", default="16384", source=by_file),
        SettingRecord(name="data_directory", setting=f"/mnt/{stack.name}", source="command line"),
    ]


def _write_measured(
    recorder: TrialRecorder, shape: Shape, stack: Stack, drift: float, rng: np.random.Generator
) -> None:
    trial = recorder.trial
    slow = 1.6 if stack.name.startswith("btrfs") else 1.0
    phases = {name: s * slow * trial.scale / 50 for name, s in PHASES.items()} if trial.load == "fresh" else {}
    recorder.write("load.json", LoadRecord(how=trial.load, total_s=sum(phases.values()) or 1.4, phases_s=phases))
    database = int(15.1 * trial.scale * MIB)
    spaces = [SpaceRecord(moment="after load", physical_bytes=int(database * 1.2), database_bytes=database)]
    for cell in trial.cells:
        result = _make_cell(recorder, shape, stack, cell, drift, rng)
        grown = int(database * 1.2 + (result.wal_bytes or 0) * 0.4)
        spaces.append(SpaceRecord(moment=f"after {cell.id}", physical_bytes=grown, database_bytes=int(database * 1.03)))
    recorder.write_list("space.json", spaces)


def _seconds(shape: Shape, stack: Stack, mean: float, rng: np.random.Generator) -> np.ndarray:
    """AR(1) seconds of CV 10 %, slower in checkpoints; `btrfs` stalls now and then."""
    n = shape.duration_s
    noise = np.zeros(n)
    shocks = rng.normal(0, 0.1 * math.sqrt(1 - 0.8**2), n)
    for t in range(1, n):
        noise[t] = 0.8 * noise[t - 1] + shocks[t]
    tps = mean * np.exp(noise)
    for start in range(20, n, 30):
        tps[start : start + 9] *= 0.7
    if stack.name == "btrfs" and n > 40:
        at = int(rng.integers(10, n - 8))
        tps[at : at + 3] *= 0.02
    return tps


def _make_cell(
    recorder: TrialRecorder, shape: Shape, stack: Stack, cell: Cell, drift: float, rng: np.random.Generator
) -> CellResult:
    base = shape.base_tps.get(stack.name, BASE_TPS.get(stack.name, 2000.0))
    factor = (cell.clients / 8) ** 0.6 * (50 / cell.scale) ** 0.15 * (1.6 if cell.script == "simple-update" else 1.0)
    tps = _seconds(shape, stack, base * factor * drift * math.exp(rng.normal(0, 0.02)), rng)
    series = _series(cell, tps, rng)
    n = len(tps)
    mean = float(tps.mean())
    percentiles = {"p50": 1.1, "p95": 3.9, "p99": 11.0, "p999": 210.0} if cell.rate_tps else {}
    result = CellResult(
        cell=cell,
        started=BEGUN,
        duration_s=float(n),
        transactions=int(tps.sum()),
        tps=mean,
        latency_avg_ms=1000 * cell.clients / mean,
        latency_stddev_ms=2.0,
        initial_connection_ms=11.0,
        wal_bytes=int(tps.sum() * 1900),
        checkpoints=n // 30,
        prewarmed="sequential read",
        open_loop=cell.rate_tps is not None,
        percentiles_ms={k: v * float(rng.normal(1, 0.05)) for k, v in percentiles.items()},
    )
    write_cell(recorder, result, tps.tolist(), series)
    return result


def _series(cell: Cell, tps: np.ndarray, rng: np.random.Generator) -> dict[str, Rows]:
    n = len(tps)
    latency = 1000 * cell.clients / np.maximum(tps, 1)
    devices = []
    for t in range(n):
        rate = float(tps[t])
        devices.append((t + 1, "loop0", "data", 12.0, rate * 1.4, rate * 0.2, 0, 90e3, rate * 14e3, 1.2, 0.71))
        devices.append((t + 1, "vda", "backing", 12.0, rate * 1.5, rate * 0.2, 0, 90e3, rate * 15e3, 1.4, 0.83))
    cpu = rng.uniform(0.1, 0.3, n)
    return {
        "progress": [
            (t + 1, float(tps[t]), float(latency[t]), float(latency[t]) * 0.4, None, 0, 0, 0) for t in range(n)
        ],
        "checkpoints": [(s, min(s + 9, n), "time", 4000, 8.1, 0.4, 8.9) for s in range(20, n, 30)],
        "devices": devices,
        "system": [
            (t + 1, float(cpu[t]), 0.1, 0.2, 0.4, 0.0, 8e7, 1e6, 0.1, 0.2, 0.0, 0.9, 0.1, 0.2, 0.0) for t in range(n)
        ],
        "postgres": [{"t_s": t + 1, "wal_syncs": float(tps[: t + 1].sum()) * 0.2} for t in range(n)],
        "waits": [(t + 1, "IO", "WALSync", 5.0) for t in range(n)],
    }
