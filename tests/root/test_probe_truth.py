"""The host probe against bytes and flushes that fio is known to have made on a loop device."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Command
from pgstrata.probe.parse import device_rows, parse_lines, probe_cpu_s, system_rows
from pgstrata.probe.start import SAMPLES, plan_host_probe, start_probes
from pgstrata.workload.medium import plan_fio

DEVICE_BYTES = 128 << 20
BLOCK_BYTES = 8192
SECTOR_BYTES = 512


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[str]:
    host = LocalHost()
    backing = tmp_path / "device"
    with backing.open("wb") as file:
        file.truncate(DEVICE_BYTES)
    node = host.run(Command(("losetup", "--find", "--show", "--direct-io=on", str(backing)))).stdout.strip()
    yield node
    host.run(Command(("losetup", "--detach", node)))


@dataclass(frozen=True)
class FioTotals:
    """What fio did, by its own account."""

    read_ios: int
    read_bytes: int
    write_ios: int
    write_bytes: int
    syncs: int

    @classmethod
    def of(cls, output: str) -> FioTotals:
        (job,) = json.loads(output)["jobs"]
        read, write = job["read"], job["write"]
        return cls(read["total_ios"], read["io_bytes"], write["total_ios"], write["io_bytes"], job["sync"]["total_ios"])


def sampled(loop: str, folder: Path, *further: str, **job: object) -> tuple[FioTotals, list[dict[str, object]], str]:
    """fio's own totals and the probe's samples, of which the first is from before and the last from after."""
    host = LocalHost()
    status = host.status(loop)
    assert status is not None
    major, minor = status.device
    probes = start_probes(host, str(folder), plan_host_probe(f"{major}:{minor}"))
    try:
        planned = plan_fio(loop, **job)  # type: ignore[arg-type]
        result = FioTotals.of(host.run(replace(planned, argv=(*planned.argv, *further))).stdout)
    finally:
        probes.stop()
    return result, parse_lines((folder / SAMPLES).read_text()), f"{major}:{minor}"


def grown(samples: list[dict[str, object]], device: str, field: int) -> int:
    first, last = samples[0]["disk"][device], samples[-1]["disk"][device]  # type: ignore[index]
    return int(last[field] - first[field])


@pytest.mark.parametrize("fsync_every", [1, 4])
def test_writes_bytes_and_flushes_are_fios(loop: str, tmp_path: Path, fsync_every: int) -> None:
    """At depth 1 on the raw device nothing is merged: each write and each fsync is one request of the device.

    Bytes have to be the same to the last one. The kernel may add a flush of its own when fio opens and closes the
    device, hence 2 flushes of tolerance. It counts a flush without data among the writes as well, so the number of
    writes is fio's plus that of the flushes.
    """
    fio, samples, device = sampled(
        loop, tmp_path, f"--fsync={fsync_every}", pattern="randwrite", size_bytes=4 << 20, block_bytes=BLOCK_BYTES
    )
    assert fio.write_bytes == 4 << 20
    assert grown(samples, device, 6) * SECTOR_BYTES == fio.write_bytes
    assert fio.write_ios == (4 << 20) // BLOCK_BYTES
    assert fio.syncs >= fio.write_ios // fsync_every - 1
    flushes = grown(samples, device, 15)
    assert abs(flushes - fio.syncs) <= 2
    assert grown(samples, device, 4) == fio.write_ios + flushes


def test_rates_add_up_to_fios_totals(loop: str, tmp_path: Path) -> None:
    """Rates times their intervals give back the counters, so that nothing is lost between samples."""
    fio, samples, device = sampled(
        loop, tmp_path, "--fsync=8", "--rate_iops=150", pattern="randwrite", size_bytes=64 << 20, runtime_s=3
    )
    origin = float(samples[0]["time"])  # type: ignore[arg-type]
    rows = device_rows(samples, {device: "data"}, origin)
    monotonic = [float(s["mono"]) for s in samples]  # type: ignore[arg-type]
    intervals = [b - a for a, b in itertools.pairwise(monotonic)]
    assert len(rows) == len(intervals) >= 3
    total = sum(row["write_bytes_per_s"] * elapsed for row, elapsed in zip(rows, intervals, strict=True))
    assert total == pytest.approx(fio.write_bytes, rel=1e-9)
    flushes = sum(row["flushes_per_s"] * elapsed for row, elapsed in zip(rows, intervals, strict=True))
    assert flushes == pytest.approx(fio.syncs, abs=2)
    assert all(row["role"] == "data" and 0 <= row["utilisation"] <= 1 for row in rows)
    assert max(row["utilisation"] for row in rows) > 0


def test_reads_are_fios(loop: str, tmp_path: Path) -> None:
    fio, samples, device = sampled(loop, tmp_path, pattern="randread", size_bytes=8 << 20)
    # udev, where it runs, may read the first sectors of a new device; the sizes say whose reads are whose.
    assert grown(samples, device, 2) * SECTOR_BYTES == pytest.approx(fio.read_bytes, abs=1 << 20)
    assert grown(samples, device, 0) >= fio.read_ios


def test_the_host_rows_are_shares(loop: str, tmp_path: Path) -> None:
    _, samples, _ = sampled(loop, tmp_path, pattern="randwrite", size_bytes=64 << 20, runtime_s=2)
    rows = system_rows(samples, 0.0)
    for row in rows:
        shares = [row[f"cpu_{name}"] for name in ("user", "system", "iowait", "idle", "steal")]
        assert sum(shares) == pytest.approx(1.0)
        assert row["dirty_bytes"] >= 0
    assert max(row["cpu_system"] for row in rows) > 0
    assert probe_cpu_s(samples) > 0
