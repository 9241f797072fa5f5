"""Root whose /proc/sys is read-only, as in an unprivileged container: trials run with warm caches and say so."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from apart import mount_apart
from campaigning import environment, nothing_left, reachable, run_in_fork
from pgstrata.record.reader import read

READ_ONLY = "/proc/sys/vm/drop_caches cannot be written (Read-only file system)"


@contextmanager
def _read_only_proc_sys() -> Iterator[None]:
    mount_apart()
    subprocess.run(["mount", "--bind", "/proc/sys", "/proc/sys"], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", "/proc/sys"], check=True)
    yield


def test_a_trial_runs_with_warm_caches_and_says_so(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        argv = ["quick", "tmpfs", "--blocks", "1", "--duration", "3s", "--clients", "2", "--scale", "1", "--no-crash"]
        argv += ["--out", str(place / "out"), "--scratch", str(place / "scratch")]
        code = run_in_fork(argv, environment(place), place / "log.txt", _read_only_proc_sys())
        text = (place / "log.txt").read_text()
        assert code == 0, text
        assert READ_ONLY in " ".join(text.split())
        nothing_left(place)
        (trial,) = read(place / "out").trials
        assert trial.cells[0].result.transactions > 0
        facts = next((place / "out").rglob("facts.json")).read_text()
        assert f"not dropped before runs: {READ_ONLY}" in facts
        planned = next((place / "out").rglob("planned.json")).read_text()
        assert "write '3' to" not in planned
