"""What the live view costs: a running trial with many viewers and without, and the first paint of a large campaign.

    python benches/bench_watch.py [--pairs 5] [--viewers 200] [--seconds 60] [--trials 1000]

A trial on tmpfs with select-only, where nothing but CPU counts, runs for so many seconds under pgstrata with a live
view that so many watch, and without, in alternating order. Bounds: the 95 % t interval of the ratio of TPS contains a
value >= 0.99, and says nothing where it is wider than +-2 %; first paint within 1 s on 1,000 trials, in headless
Chromium where it is installed. The viewers are a process on the same machine at the lowest priority, as far as that
goes: what they take is in the ratio. Needs root.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench_overhead import BOUND, Loaded, campaign, measure_loaded, ratio_interval, under_pgstrata

from pgstrata_fake.campaigns import Shape, write_campaign

BOUND_PAINT_S = 1.0
WIDEST = 0.02
"""Half the width of an interval that says anything about a bound of 1 %."""
CHROMIUM = "/usr/bin/chromium"
STACKS = ("ext4", "ext4-a", "xfs", "xfs-a", "xfs-noatime", "btrfs", "btrfs-nodatacow", "tmpfs", "ext4-b", "xfs-b")
_PAINT = """() => new Promise((painted) => {
  new PerformanceObserver((list, observer) => {
    const paint = list.getEntriesByName("first-contentful-paint")[0];
    if (paint) { observer.disconnect(); painted(paint.startTime); }
  }).observe({ type: "paint", buffered: true });
})"""


async def view(port: int, token: str, reading: asyncio.Event) -> int:
    """One viewer, until the live view ends; returns the bytes that it was sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=16 << 20)
    writer.write(f"GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    received = 0
    with suppress(ConnectionError):
        while piece := await reader.read(1 << 16):
            received += len(piece)
            reading.set()
    writer.close()
    return received


async def view_all(viewers: int, port: int, token: str, told: Connection) -> list[int]:
    """Tells when all of them are served."""
    reading = [asyncio.Event() for _ in range(viewers)]
    tasks = [asyncio.create_task(view(port, token, one)) for one in reading]
    for one in reading:
        await one.wait()
    told.send("all are served")
    return await asyncio.gather(*tasks)


def view_apart(viewers: int, port: int, token: str, told: Connection) -> None:
    """In a process of their own; tells how many bytes each was sent."""
    os.nice(19)
    told.send(asyncio.run(view_all(viewers, port, token, told)))


@dataclass
class Seen:
    """What was seen besides, over all pairs."""

    processor_s: float = 0.0
    watched_s: float = 0.0
    sent: list[int] = field(default_factory=list)
    memory: float = 0.0


@contextmanager
def served(directory: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The live view of a directory: its process, and what it told."""
    argv = [sys.executable, "-m", "pgstrata.cli.main", "watch", str(directory), "--json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            yield process.pid, json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
        finally:
            process.terminate()


def watched(loaded: Loaded, viewers: int, seen: Seen) -> float:
    """TPS of a run with viewers."""
    ours, theirs = Pipe()
    with served(loaded.context.recorder.partial.parents[1]) as (pid, told):
        there = Process(target=view_apart, args=(viewers, told["port"], told["token"], theirs))
        there.start()
        ours.recv()
        began_s, before_s = time.perf_counter(), processor_s(pid)
        tps = under_pgstrata(loaded)
        seen.processor_s += processor_s(pid) - before_s
        seen.watched_s += time.perf_counter() - began_s
        seen.memory = max(seen.memory, memory_mib(pid))
    seen.sent += ours.recv()
    there.join()
    return tps


def measure_pairs(loaded: Loaded, pairs: int, viewers: int, seen: Seen) -> list[float]:
    """Logarithms of watched / unwatched."""
    ratios = []
    sides = {"watched": lambda: watched(loaded, viewers, seen), "unwatched": lambda: under_pgstrata(loaded)}
    for pair in range(pairs):
        tps = {name: sides[name]() for name in (list(sides) if pair % 2 == 0 else list(sides)[::-1])}
        ratios.append(math.log(tps["watched"] / tps["unwatched"]))
        print(f"  pair {pair + 1}: {tps['watched']:.0f} TPS watched, {tps['unwatched']:.0f} unwatched", flush=True)
    return ratios


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> float:
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def first_paint_s(address: str) -> float | None:
    """From the start of the navigation; None without a browser."""
    try:
        from playwright import sync_api
    except ModuleNotFoundError:
        return None
    if not Path(CHROMIUM).exists():
        return None
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page: Any = browser.new_page()
        page.goto(address)
        paint_ms = float(page.evaluate(_PAINT))
        page.locator("#live-facts dd").first.wait_for()
        browser.close()
    return paint_ms / 1000


def paint_s(trials: int) -> float | None:
    """Of a finished campaign, which is written to memory: a thousand trials are synced."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        directory = Path(folder) / "campaign"
        write_campaign(directory, Shape(stacks=STACKS, blocks=trials // len(STACKS), duration_s=5))
        with served(directory) as (_, told):
            return first_paint_s(told["address"])


def verdict(high: float, width: float) -> str:
    """An interval that is wide contains almost anything."""
    if high < BOUND:
        return "DOES NOT HOLD"
    return "holds" if width <= WIDEST else f"INCONCLUSIVE, wider than +-{100 * WIDEST:.0f} %"


def main() -> int:
    """Prints figure against bound; 1 when a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--trials", type=int, default=1000)
    given = parser.parse_args()
    painted_s = paint_s(given.trials)
    shown = "no browser" if painted_s is None else f"{painted_s:.2f} s"
    print(f"first paint of {given.trials} trials: {shown}; bound {BOUND_PAINT_S:.0f} s", flush=True)
    seen = Seen()
    ratios = measure_loaded(
        campaign(given.seconds), lambda loaded: measure_pairs(loaded, given.pairs, given.viewers, seen)
    )
    ratio, low, high = ratio_interval(ratios)
    print(f"TPS watched by {given.viewers} / unwatched: {ratio:.4f} ({low:.4f} ... {high:.4f}), {given.pairs} pairs")
    width = (high - low) / 2
    print(f"  the interval contains a value >= {BOUND}: {verdict(high, width)} (+-{100 * width:.1f} %)")
    print(f"  a viewer was sent {min(seen.sent) / 1024:.0f} to {max(seen.sent) / 1024:.0f} KiB a run")
    print(f"  the view took {100 * seen.processor_s / seen.watched_s:.1f} % of a processor and {seen.memory:.0f} MiB")
    slow = painted_s is not None and painted_s > BOUND_PAINT_S
    return int(min(seen.sent) == 0 or slow or high < BOUND)


if __name__ == "__main__":
    sys.exit(main())
