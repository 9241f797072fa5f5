"""Every benchmark runs, in a tiny size: its figures mean nothing then, and whether they hold their bounds neither."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHES = Path(__file__).parents[2] / "benches"

TINY = {
    "acceptance.py": ["--campaigns", "2"],
    "bench_analysis.py": ["--seconds", "5"],
    "bench_capture.py": ["--megabytes", "5", "--sessions", "10", "--seconds", "1"],
    "bench_cluster.py": ["--scale", "1", "--failures", "3", "--stack", "cluster(2,ANY 1)/tmpfs"],
    "bench_fleet.py": ["--hosts", "2", "--trials", "8", "--workers", "1"],
    "bench_crash.py": ["--states", "4"],
    "bench_help.py": [],
    "bench_history.py": ["--histories", "2"],
    "bench_logs.py": ["--millions", "1"],
    "bench_media_models.py": ["--seconds", "0.3"],
    "bench_media_postgres.py": ["--blocks", "1", "--seconds", "1", "--scale", "1"],
    "bench_overhead.py": ["--pairs", "2", "--seconds", "1"],
    "bench_probe.py": ["--seconds", "2"],
    "bench_recording.py": ["--pairs", "1", "--seconds", "1"],
    "bench_repetition.py": ["--scale", "1", "--runs", "2"],
    "bench_report.py": ["--trials", "4", "--seconds", "5"],
    "bench_scale.py": ["--trials", "10", "20", "--runs", "5", "10"],
    "bench_ssh.py": [],
    "bench_watch.py": ["--pairs", "2", "--viewers", "3", "--seconds", "1", "--trials", "10"],
    "bench_strata_disk.py": ["--seconds", "1"],
    "covariates.py": ["--runs", "4", "--seconds", "1"],
    "crash_controls.py": ["--only", "ext4@wal=*", "--lose", "4", "--hold", "4", "--transactions", "5"],
    "planted_damage.py": ["--places", "1", "--only", "sequence"],
}
MISSED_ITS_BOUND = 1
SHOWS_IN_ANY_SIZE = {"crash_controls.py"}
"""Those that measure nothing: they must pass in a tiny size, too."""

pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


def test_every_bench_has_a_tiny_size() -> None:
    assert {file.name for file in BENCHES.glob("*.py")} == set(TINY)


@pytest.mark.parametrize("name", [name for name in TINY if name.startswith("bench_")])
def test_a_bench_names_its_bound_and_ends_by_it(name: str) -> None:
    text = (BENCHES / name).read_text(encoding="utf-8")
    said = (ast.get_docstring(ast.parse(text)) or "").lower()
    assert re.search(r"bounds?:|must hold|must contain", said), said
    assert "sys.exit(main())" in text
    assert re.search(r"^def main\(\) -> int:", text, re.MULTILINE)


@pytest.mark.parametrize("name", TINY)
def test_a_bench_runs_and_prints_figures(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHES / name), *TINY[name]], capture_output=True, text=True, timeout=500, cwd="/"
    )
    assert "Traceback" not in done.stderr, done.stderr
    passed = (0,) if name in SHOWS_IN_ANY_SIZE else (0, MISSED_ITS_BOUND)
    assert done.returncode in passed, done.stdout + done.stderr
    assert re.search(r"\d", done.stdout), done.stdout
