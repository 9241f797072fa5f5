"""Trials that are made up, for tests of everything around them: PGSTRATA_FAKE=1 drives the command line with these.

Deterministic by campaign seed, stack and block. Every record says so: the host is named `fake`.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from pgstrata.record.recorder import CampaignDirectory, TrialRecorder
from pgstrata.record.schema import (
    AttestedRecord,
    CellResult,
    HostFacts,
    LoadRecord,
    PlannedRecord,
    PlannedStep,
    ScriptRun,
    SpaceRecord,
    TrialVerdict,
)
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.stack import Stack
from pgstrata.spec.workload import Cell
from pgstrata.trial.events import StepBegun, Tell
from pgstrata.trial.scheduling import OneByOne
from pgstrata_fake.cells import Rows, write_cell

_BEGIN = "2026-01-01T00:00:00.000+00:00"
_LEVEL_TPS = {"tmpfs": 4000.0, "xfs": 2100.0, "ext4": 2000.0, "btrfs": 1300.0, "zfs": 1200.0, "nfs": 900.0}
_FAILING = "fail"
"""A stack with this in its name fails in its first block, so that failures can be tested."""


def _seeded(*parts: object) -> random.Random:
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))


@dataclass
class FakeRunner(OneByOne):
    """Writes trials as the real runner does, with invented numbers; touches nothing else."""

    campaign: Campaign

    def begin_block(self, block: int, directory: CampaignDirectory) -> None:
        """There is no medium to look at."""

    def run(self, trial: Trial, directory: CampaignDirectory, tell: Tell) -> TrialVerdict:
        stack = self.campaign.stack(trial.stack)
        steps = (PlannedStep(name="pretend", commands=("true",)),)
        recorder = directory.start_trial(trial, PlannedRecord(trial=trial, stack=stack, steps=steps))
        recorder.write("facts.json", _fake_facts())
        failed = _FAILING in stack.name and trial.block == 0
        if not failed:
            self._write_results(recorder, stack, tell)
        verdict = TrialVerdict(
            trial_id=trial.id,
            status="failed" if failed else "ok",
            reason="made to fail by its name" if failed else "",
            started=_BEGIN,
            ended=_BEGIN,
            duration_s=60.0 * len(trial.cells),
        )
        recorder.finish(verdict)
        return verdict

    def _write_results(self, recorder: TrialRecorder, stack: Stack, tell: Tell) -> None:
        trial = recorder.trial
        built = AttestedRecord(what="filesystem", expected=stack.data.fs.kind, actual=stack.data.fs.kind, holds=True)
        recorder.write_list("attested.json", [built])
        rng = _seeded(self.campaign.seed, trial.id)
        load_s = 0.15 * trial.scale * rng.uniform(0.95, 1.05)
        recorder.write(
            "load.json", LoadRecord(how=trial.load, total_s=load_s, phases_s={"client-side generate": load_s})
        )
        size_bytes = 16 * 2**20 * trial.scale
        space = [SpaceRecord(moment="after load", physical_bytes=size_bytes, database_bytes=size_bytes)]
        for cell in trial.cells:
            tell(StepBegun(self.campaign.name, trial.id, f"pgbench {cell.id}", 0.0))
            tps = _fake_tps(self.campaign, stack, trial, cell)
            _make_cell(recorder, cell, tps, trial.duration_s or self.campaign.workload.duration_s or 60.0, rng)
            grown = int(size_bytes * 1.1)
            space.append(SpaceRecord(moment=f"after {cell.id}", physical_bytes=grown, database_bytes=grown))
        recorder.write_list("space.json", space)


def _fake_facts() -> HostFacts:
    checked = {"machine id": "fake", "kernel": "0.0-fake", "CPU model": "fake", "PostgreSQL version": "18.0"}
    return HostFacts(name="fake", checked=checked, medium="invented numbers, no device")


def _fake_tps(campaign: Campaign, stack: Stack, trial: Trial, cell: Cell) -> float:
    """Level of the filesystem x drift of the block (the same for all stacks) x noise of the run (2 %)."""
    level = _LEVEL_TPS.get(stack.data.fs.kind, 1000.0) * (1 + math.log2(cell.clients) / 4)
    drift = math.exp(_seeded(campaign.seed, "drift", trial.block).gauss(0, 0.02))
    noise = math.exp(_seeded(campaign.seed, trial.id, cell.id).gauss(0, 0.02))
    script = {"select-only": 8.0, "simple-update": 1.3}.get(cell.script, 1.0)
    return level * drift * noise * script


def _fake_percentiles(cell: Cell, capacity_tps: float) -> dict[str, float]:
    """A queue that fills up as the scheduled rate comes near the capacity; a closed loop has none."""
    if cell.rate_tps is None:
        return {}
    wait_ms = 2.0 / max(0.02, 1 - cell.rate_tps / capacity_tps)
    return {"p50": wait_ms, "p95": 3 * wait_ms, "p99": 5 * wait_ms}


def _make_cell(recorder: TrialRecorder, cell: Cell, level_tps: float, duration_s: float, rng: random.Random) -> None:
    tps = min(level_tps, cell.rate_tps or level_tps)
    seconds = [tps * rng.gauss(1, 0.1) for _ in range(max(1, round(duration_s)))]
    mean = sum(seconds) / len(seconds)
    seconds = [s * tps / mean for s in seconds]
    transactions = round(tps * duration_s)
    latency_ms = 1000 * cell.clients / tps
    result = CellResult(
        cell=cell,
        started=_BEGIN,
        duration_s=duration_s,
        transactions=transactions,
        tps=tps,
        latency_avg_ms=latency_ms,
        latency_stddev_ms=latency_ms / 2,
        initial_connection_ms=5.0,
        wal_bytes=transactions * 600,
        checkpoints=1,
        warmup_stable=True,
        prewarmed="pg_prewarm",
        percentiles_ms=_fake_percentiles(cell, level_tps),
        open_loop=cell.rate_tps is not None,
        scripts=tuple(_fake_scripts(cell, transactions, duration_s, latency_ms)),
    )
    write_cell(recorder, result, seconds, _fake_series(seconds, latency_ms))


def _fake_scripts(cell: Cell, transactions: int, duration_s: float, latency_ms: float) -> Iterator[ScriptRun]:
    """Every script of a mix has its share of the transactions."""
    for script in cell.scripts if len(cell.scripts) > 1 else ():
        own = round(transactions * cell.share_of(script.name))
        yield ScriptRun(
            name=script.short_name,
            weight=script.weight,
            transactions=own,
            tps=own / duration_s,
            latency_avg_ms=latency_ms,
            latency_stddev_ms=latency_ms / 2,
        )


def _fake_series(seconds: list[float], latency_ms: float) -> dict[str, Rows]:
    times = list(enumerate(seconds, 1))
    end_s = float(len(seconds))
    checkpoint = {"start_t_s": end_s / 3, "end_t_s": end_s / 2, "kind": "time", "buffers_written": 1000.0}
    return {
        "progress": ({"t_s": t, "tps": s, "latency_ms": latency_ms, "failed": 0} for t, s in times),
        "devices": (
            {"t_s": t, "device": "fake0", "role": "data", "writes_per_s": s, "write_bytes_per_s": 8192 * s}
            for t, s in times
        ),
        "system": (
            {"t_s": t, "cpu_user": 0.4, "cpu_system": 0.2, "cpu_idle": 0.4, "dirty_bytes": 1e8} for t, _ in times
        ),
        "postgres": ({"t_s": t, "wal_bytes": 600 * s * t, "xact_commit": s * t} for t, s in times),
        "waits": ({"t_s": t, "wait_event_type": "IO", "wait_event": "WALSync", "sessions": 2.0} for t, _ in times),
        "checkpoints": [checkpoint],
    }
