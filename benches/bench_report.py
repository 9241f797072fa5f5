"""How long the page of 200 trials x 600 s takes, how large it is, and how much memory it needs.

    python benches/bench_report.py [--trials 200] [--seconds 600]

Bounds: 10 s, 6 MB. Figures are written to a temporary folder and are made up; the reading, judging and
rendering is that of `pgstrata report --format html`, in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from pgstrata_fake.campaigns import Shape, write_campaign

BOUND_S = 10.0
BOUND_BYTES = 6_000_000

_RENDER = """
import resource, sys, time
from pathlib import Path
start = time.perf_counter()
from pgstrata.analyze.campaign.judge import judge
from pgstrata.record.reader import read
from pgstrata.report.render import render
directory = Path(sys.argv[1])
data = read(directory)
findings = judge(data)
judged = time.perf_counter()
path = render(data, findings, ["html"], directory).paths[0]
end = time.perf_counter()
peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(judged - start, end - judged, path.stat().st_size, peak_kib, time.process_time())
"""


def main() -> int:
    """Prints figure against bound; 1 when a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=600)
    asked = parser.parse_args()
    stacks = (
        "ext4",
        "ext4-noatime",
        "xfs",
        "xfs-noatime",
        "btrfs",
        "btrfs-nodatacow",
        "tmpfs",
        "ext4-a",
        "xfs-a",
        "xfs-b",
    )
    with tempfile.TemporaryDirectory() as folder:
        shape = Shape(stacks=stacks, blocks=asked.trials // len(stacks), duration_s=asked.seconds)
        write_campaign(Path(folder) / "campaign", shape)
        argv = [sys.executable, "-c", _RENDER, str(Path(folder) / "campaign")]
        done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=600)
    judge_s, render_s, size_bytes, peak_kib, cpu_s = (float(value) for value in done.stdout.split())
    whole_s = judge_s + render_s
    print(f"{shape.blocks * len(stacks)} trials x {asked.seconds} s")
    print(f"read and judge  {judge_s:8.2f} s")
    print(f"render          {render_s:8.2f} s")
    print(f"whole           {whole_s:8.2f} s   bound {BOUND_S:.0f} s")
    print(f"processor time  {cpu_s:8.2f} s   (what the whole takes on an idle machine)")
    print(f"page            {size_bytes / 1e6:8.2f} MB  bound {BOUND_BYTES / 1e6:.0f} MB")
    print(f"peak memory     {peak_kib / 1024:8.0f} MiB")
    return int(whole_s > BOUND_S or size_bytes > BOUND_BYTES)


if __name__ == "__main__":
    sys.exit(main())
