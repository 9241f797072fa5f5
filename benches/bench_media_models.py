"""What fio gets of each media model through the kernel, beside what the model's parameters imply.

Run, as root and on an idle machine: python benches/bench_media_models.py [--seconds 4]

Times of flash and volumes are stretched, so that what the host adds to a request is small beside them; the figures are
brought back by that factor. Bound: 10 %. Loads that a cache takes up in so short a run, and those that begin after
hours of writing, are left to the tests on a virtual clock (docs/reference/media-models.md). Exit code 1 on a miss.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench_strata_disk import PROGRAM, attached, daemon, run, told

SIZE_BYTES = 4 << 30
STRETCH = {"hdd": 1, "flash": 50, "volume": 10}
STRETCH_ALONE = STRETCH | {"flash": 250}
"""At depth 1: each request waits for the host as well, and one of flash takes as little as 20 microseconds."""
BOUND = 0.10


def fio(node: str, load: dict[str, Any], seconds: float) -> float:
    """Requests a second."""
    options = [f"--rw={load['rw']}", f"--bs={load['bytes']}", f"--iodepth={load['depth']}"]
    options += ["--fdatasync=1"] if load["flush"] else []
    common = ("--name=model", f"--filename={node}", "--direct=1", "--ioengine=libaio", "--time_based", "--norandommap")
    report = run(
        "fio", *common, f"--runtime={round(1000 * seconds)}ms", f"--size={SIZE_BYTES}", "--output-format=json", *options
    )
    job = json.loads(report[report.index("{") :])["jobs"][0]
    return float(job["read"]["iops"] + job["write"]["iops"])


def stretch_of(model: dict[str, Any], load: dict[str, Any]) -> int:
    return (STRETCH_ALONE if load["depth"] == 1 else STRETCH)[model["kind"]]


def taken(model: dict[str, Any], load: dict[str, Any], seconds: float) -> bool:
    """Whether a run of that length shows the medium itself."""
    if load["after_bytes"] or (model["kind"] == "hdd" and load["rw"] == "randread"):
        return False  # a small disk lies at the outer edge, where seeks are short
    cache = model["parameters"].get("cache_bytes", {}).get("value", 0)
    written = load["implied_per_s"] * load["bytes"] * seconds / stretch_of(model, load)
    return bool(load["flush"] or load["rw"] != "write" or cache < BOUND / 2 * written)


def measure(folder: Path, model: dict[str, Any], seconds: float) -> bool:
    good = []
    for number, load in enumerate(json.loads(run(PROGRAM, "validate", model["name"]))):
        if not taken(model, load, seconds):
            continue
        stretch = stretch_of(model, load)
        with daemon(folder / f"{model['name']}{number}") as serving:
            made = ("--size", SIZE_BYTES, "--media", model["name"], "--stretch", stretch)
            run(PROGRAM, "add", serving, "disk", *made)
            with attached(serving / "disks" / "disk") as node:
                found = fio(node, load, seconds) * stretch
        share = found / load["implied_per_s"] - 1
        what = f"{model['name']}: {load['rw']} {load['bytes']} bytes, depth {load['depth']}"
        what += ", flushed" if load["flush"] else ""
        good.append(told(f"{what}: {found:,.1f} a second, implied {load['implied_per_s']:,.1f}", abs(share) <= BOUND))
    return all(good)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    seconds = parser.parse_args().seconds
    if not PROGRAM.exists():
        print("0 figures: strata-disk is not built, cargo is missing")
        return 0
    models = json.loads(run(PROGRAM, "models", "--json"))
    with tempfile.TemporaryDirectory(prefix="pgstrata-bench-", dir="/var/tmp") as folder:
        good = [measure(Path(folder), model, seconds) for model in models]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
