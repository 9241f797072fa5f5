"""What the live view costs: viewers at once for some seconds, and the first paint of a large campaign.

    python benches/bench_watch.py [--viewers 200] [--seconds 10] [--trials 1000]

Bound: first paint within 1 s on 1,000 trials, in headless Chromium where it is installed. The server runs in a process
of its own; its processor time is what the viewers cost the machine. Figures of the campaign are made up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pgstrata_fake.campaigns import Shape, write_campaign

BOUND_PAINT_S = 1.0
CHROMIUM = "/usr/bin/chromium"
STACKS = ("ext4", "ext4-a", "xfs", "xfs-a", "xfs-noatime", "btrfs", "btrfs-nodatacow", "tmpfs", "ext4-b", "xfs-b")
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


async def view(port: int, token: str, seconds: float) -> int:
    """One viewer; returns the bytes that it was sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=16 << 20)
    writer.write(f"GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    received = 0
    try:
        async with asyncio.timeout(seconds):
            while piece := await reader.read(1 << 16):
                received += len(piece)
    except TimeoutError:
        pass
    finally:
        writer.close()
    return received


async def view_all(viewers: int, port: int, token: str, seconds: float) -> list[int]:
    return await asyncio.gather(*(view(port, token, seconds) for _ in range(viewers)))


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
        page.wait_for_function(f"({_PAINT}) !== null")
        paint_ms = float(page.evaluate(_PAINT))
        page.locator("#live-facts dd").first.wait_for()
        browser.close()
    return paint_ms / 1000


def main() -> int:
    """Prints figure against bound; 1 when a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--trials", type=int, default=1000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "campaign"
        write_campaign(directory, Shape(stacks=STACKS, blocks=asked.trials // len(STACKS), duration_s=5))
        argv = [sys.executable, "-m", "pgstrata.cli.main", "watch", str(directory), "--json"]
        began_s = time.perf_counter()
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                told = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
                listening_s = time.perf_counter() - began_s
                paint_s = first_paint_s(told["address"])
                before_s = processor_s(process.pid)
                sent = asyncio.run(view_all(asked.viewers, told["port"], told["token"], asked.seconds))
                used_s, memory = processor_s(process.pid) - before_s, memory_mib(process.pid)
            finally:
                process.terminate()
    print(f"{asked.trials} trials, {asked.viewers} viewers for {asked.seconds:g} s")
    print(f"listening after {listening_s:8.2f} s")
    print(f"first paint     {'no browser' if paint_s is None else f'{paint_s:8.2f} s'}   bound {BOUND_PAINT_S:.0f} s")
    print(f"processor time  {used_s:8.2f} s   {100 * used_s / asked.seconds:.0f} % of one, with the verdict")
    print(f"a viewer        {sum(sent) / len(sent) / 1024:8.0f} KiB, the one with least {min(sent) / 1024:.0f} KiB")
    print(f"memory          {memory:8.0f} MiB")
    return int(min(sent) == 0 or (paint_s is not None and paint_s > BOUND_PAINT_S))


if __name__ == "__main__":
    sys.exit(main())
