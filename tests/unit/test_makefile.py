"""Targets of the Makefile that stand on modelled disks build the program for them."""

from __future__ import annotations

from pathlib import Path

import pytest

MAKEFILE = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    "target",
    [
        "setup",
        "demo",
        "test",
        "test-cluster",
        "test-fleet",
        "crash",
        "crash-lab",
        "attack",
        "test-lab",
        "bench",
        "docs",
    ],
)
def test_what_cuts_power_builds_its_disks(target: str) -> None:
    (line,) = (line for line in MAKEFILE if line.startswith(f"{target}: "))
    assert "$(DISK)" in line.split("##")[0]
