"""What a disk of strata-disk can do without a model, beside qemu-storage-daemon, and how late a modelled one answers.

Run, as root and on an idle machine: python benches/bench_strata_disk.py [--seconds 5]

Requests a second through FUSE and a loop device with the event log on: 4 KiB at queue depth 1 and 32, and 8 KiB with a
flush each. qemu-storage-daemon (blklogwrites, FUSE export) does the same in the same run where it is installed, and a
FUSE file that keeps nothing (crates/strata-disk/examples/null_disk.rs) where cargo is. They take turns: a ratio is the
median of those within a round. Then attaching and detaching an overlay, and how late answers of modelled disks left the
daemon. Bounds: those of BOUNDS_IOPS, 15 ms for an overlay, and for late answers; exit code 1 on a miss. It takes 16
times --seconds and a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

PROGRAM = Path(sys.executable).with_name("strata-disk")
BUILD = Path(__file__).parents[1] / ".ci" / "crates"
SIZE_BYTES = 1 << 30
JOBS = {
    "4k read, depth 1": ("--rw=randread", "--bs=4k", "--iodepth=1"),
    "4k write, depth 1": ("--rw=randwrite", "--bs=4k", "--iodepth=1"),
    "4k read, depth 32": ("--rw=randread", "--bs=4k", "--iodepth=32"),
    "4k write, depth 32": ("--rw=randwrite", "--bs=4k", "--iodepth=32"),
    "8k write and flush": ("--rw=randwrite", "--bs=8k", "--iodepth=1", "--fdatasync=1"),
}
BOUNDS_IOPS = dict(zip(JOBS, (18_000, 14_000, 60_000, 33_000, 8_000), strict=True))
COMPARED = (("qemu", 2.5, "times qemu's"), ("null", 0.9, "of a FUSE file that keeps nothing"))
RATIOS = ("4k read, depth 1", "4k write, depth 1", "8k write and flush")
OVERLAY_BOUND_MS = 15.0
LATE_MEDIAN_PERCENT, LATE_P99_PERCENT = 5, 20
TIMED = ("sata-ssd", "cloud-volume", "hdd-7200")
"""Their reads take 0.1, 1 and about 10 ms."""
OVERLAYS = 20
ROUNDS_PER_SECOND = 2
"""Ratios of one round vary by a quarter, so that their median needs many."""


def run(*argv: object) -> str:
    return subprocess.run([str(a) for a in argv], check=True, capture_output=True, text=True, timeout=300).stdout


@contextmanager
def attached(file: Path) -> Iterator[str]:
    node = run("losetup", "--find", "--show", "--direct-io=on", file).strip()
    try:
        yield node
    finally:
        run("losetup", "--detach", node)


@contextmanager
def daemon(folder: Path, *options: object) -> Iterator[Path]:
    run(PROGRAM, "serve", folder, "--background", *options)
    try:
        yield folder
    finally:
        run(PROGRAM, "stop", folder)


def measure(node: str, options: tuple[str, ...], seconds: float) -> float:
    """Requests a second that fio gets; fio takes whole units of time, and 0 of them as no bound at all."""
    common = ("--name=bench", f"--filename={node}", "--direct=1", "--ioengine=libaio", "--time_based")
    runtime = f"--runtime={max(1, round(seconds * 1e3))}ms"
    report = run("fio", *common, runtime, f"--size={SIZE_BYTES}", "--output-format=json", *options)
    job = json.loads(report[report.index("{") :])["jobs"][0]
    return float(job["read"]["iops"] + job["write"]["iops"])


@contextmanager
def ours(folder: Path) -> Iterator[str | None]:
    with daemon(folder / "ours", "--log", folder / "log") as serving:
        run(PROGRAM, "add", serving, "disk", "--size", SIZE_BYTES)
        with attached(serving / "disks" / "disk") as node:
            yield node


def end(pid: int) -> None:
    """Returns once the process is gone."""
    os.kill(pid, signal.SIGTERM)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.05)


@contextmanager
def qemu(folder: Path) -> Iterator[str | None]:
    """None where qemu-storage-daemon is not installed."""
    program = shutil.which("qemu-storage-daemon")
    if program is None:
        yield None
        return
    image, log, export, pid = (folder / name for name in ("image", "qemu-log", "export", "pid"))
    run("truncate", f"--size={SIZE_BYTES}", image)
    run("truncate", f"--size={16 * SIZE_BYTES}", log)
    export.touch()
    run(
        *(program, "--daemonize", "--pidfile", pid),
        *("--blockdev", f"driver=file,filename={image},node-name=image"),
        *("--blockdev", f"driver=file,filename={log},node-name=log"),
        *("--blockdev", "driver=blklogwrites,file=image,log=log,node-name=disk"),
        *("--export", f"type=fuse,id=disk,node-name=disk,mountpoint={export},writable=on"),
    )
    try:
        with attached(export) as node:
            yield node
    finally:
        end(int(pid.read_text()))
        subprocess.run(["umount", "--lazy", str(export)], check=False, capture_output=True, timeout=60)


@contextmanager
def null(folder: Path) -> Iterator[str | None]:
    """A FUSE file that keeps nothing; None where it cannot be built."""
    program, mount = folder / "null_disk", folder / "null"
    run("bash", BUILD, "null-disk", program)
    if not program.exists():
        yield None
        return
    mount.mkdir()
    argv = [str(program), str(mount), str(SIZE_BYTES)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdin is not None
        assert serving.stdout is not None
        try:
            assert serving.stdout.readline() == "ready\n"
            with attached(mount / "disk") as node:
                yield node
        finally:
            serving.stdin.close()


def measure_rounds(folder: Path, seconds: float) -> dict[str, dict[str, list[float]]]:
    """Requests a second of each disk in each job, by round; what is not compared is measured of ours alone."""
    found: dict[str, dict[str, list[float]]] = {}
    rounds = max(1, round(ROUNDS_PER_SECOND * seconds))
    with ours(folder) as first, qemu(folder) as second, null(folder) as third:
        nodes = {"ours": first, "qemu": second, "null": third}
        for number, (job, options) in product(range(rounds), JOBS.items()):
            turns = [(name, node) for name, node in nodes.items() if node and (name == "ours" or job in RATIOS)]
            for name, node in turns if number % 2 else turns[::-1]:
                rates = found.setdefault(name, {}).setdefault(job, [])
                rates.append(measure(node, options, seconds / rounds))
    return found


def measure_overlays(folder: Path) -> float:
    """Milliseconds to attach and detach an overlay, median."""
    taken = []
    with daemon(folder / "overlays") as serving:
        run(PROGRAM, "add", serving, "below", "--size", 40 * SIZE_BYTES)
        run(PROGRAM, "ask", serving, '{"op": "snapshot", "disk": "below", "name": "loaded"}')
        for number in range(OVERLAYS):
            began = time.monotonic()
            run(PROGRAM, "add", serving, f"disk{number}", "--snapshot", "loaded")
            with attached(serving / "disks" / f"disk{number}"):
                pass
            taken.append((time.monotonic() - began) * 1e3)
    return statistics.median(taken)


def measure_lateness(folder: Path, model: str, seconds: float) -> tuple[int, int]:
    """Median and p99 of how late answers left, in percent of what they were to take."""
    with daemon(folder / f"timed-{model}") as serving:
        run(PROGRAM, "add", serving, "disk", "--size", SIZE_BYTES, "--media", model)
        with attached(serving / "disks" / "disk") as node:
            measure(node, JOBS["4k read, depth 1"], seconds)
        disk = json.loads(run(PROGRAM, "stats", serving))["disks"][0]
    return disk["late_median_percent"], disk["late_p99_percent"]


def told(what: str, holds: bool) -> bool:
    print(f"{what}: {'holds' if holds else 'DOES NOT HOLD'}", flush=True)
    return holds


def bench(folder: Path, seconds: float) -> bool:
    found = measure_rounds(folder, seconds)
    good = []
    for name, bound in BOUNDS_IOPS.items():
        rate = statistics.median(found["ours"][name])
        good.append(told(f"{name}: {rate:,.0f} a second (>= {bound:,})", rate >= bound))
    for other, least, words in COMPARED:
        for name in RATIOS if other in found else ():
            ratio = statistics.median(a / b for a, b in zip(found["ours"][name], found[other][name], strict=True))
            good.append(told(f"{name}: {ratio:.2f} {words} (>= {least})", ratio >= least))
    overlay_ms = measure_overlays(folder)
    good.append(
        told(f"overlay up and down: {overlay_ms:.1f} ms (<= {OVERLAY_BOUND_MS})", overlay_ms <= OVERLAY_BOUND_MS)
    )
    for model in TIMED:
        median, p99 = measure_lateness(folder, model, seconds)
        holds = median <= LATE_MEDIAN_PERCENT and p99 <= LATE_P99_PERCENT
        bounds = f"(<= {LATE_MEDIAN_PERCENT} and {LATE_P99_PERCENT})"
        good.append(told(f"answers of {model} are late by {median} % (median), {p99} % (p99) {bounds}", holds))
    return all(good)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5)
    seconds = parser.parse_args().seconds
    if not PROGRAM.exists():
        print("0 figures: strata-disk is not built, cargo is missing")
        return 0
    with tempfile.TemporaryDirectory(prefix="pgstrata-bench-", dir="/var/tmp") as folder:
        return 0 if bench(Path(folder), seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
