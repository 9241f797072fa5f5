"""Programs of servers that do not end in time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgstrata.crash.cluster_worker import Programs

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="runs programs as another user, which takes root")


def test_one_is_asked_to_end_so_that_it_stops_what_it_started(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    waits = f"trap 'touch {asked}; exit 0' TERM; while :; do sleep 0.05; done"
    code, _, error = Programs({"user": "root", "timeout_s": 3.0}).run(["sh", "-c", waits])
    assert (code, error) == (124, "sh did not end in time")
    assert asked.exists()


def test_others_are_not_disturbed() -> None:
    assert Programs({"user": "root", "timeout_s": 60.0}).run(["cat"], "text") == (0, "text", "")
