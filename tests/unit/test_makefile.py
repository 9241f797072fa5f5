"""Targets of the Makefile that stand on modelled disks build the program for them, and every test has its target."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
MAKEFILE = (TOP / "Makefile").read_text(encoding="utf-8").splitlines()
CI = (TOP / ".ci" / "run").read_text(encoding="utf-8").splitlines()


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
    assert {"$(DISK)", "$(CRATES)"} & set(line.split("##")[0].split())


def commands() -> list[list[Path]]:
    """What each command of pytest is to collect."""
    lines = [line for line in (*MAKEFILE, *CI) if "pytest " in line]
    return [[TOP / word for word in line.split() if word.startswith("tests/")] for line in lines]


def test_no_command_names_a_file_beside_its_folder() -> None:
    """pytest 8 collects the file then, and nothing else of the folder."""
    assert len(commands()) > 5
    for paths in commands():
        assert len(set(paths)) == len(paths)
        assert not [(a, b) for a in paths for b in paths if a != b and a.is_relative_to(b)]


def test_every_folder_of_tests_is_run_by_some_target() -> None:
    folders = {file.relative_to(TOP / "tests").parts[0] for file in (TOP / "tests").rglob("test_*.py")}
    whole = {path.name for paths in commands() for path in paths if path.is_dir()}
    assert folders == whole


def test_ci_calls_every_target_of_tests() -> None:
    targets = [line.split(":")[0] for line in MAKEFILE if line.startswith(("test:", "test-", "attack:", "crash:"))]
    called = {word for line in CI for word in line.replace('"', "").split() if f"make {word}" in line}
    assert set(targets) <= called, set(targets) - called


def test_the_workflows_call_targets_that_exist() -> None:
    files = sorted((TOP / ".github" / "workflows").glob("*.yml"))
    called = {word for file in files for word in re.findall(r"\bmake ([a-z][a-z-]*)$", file.read_text(), re.MULTILINE)}
    assert called == {"check", "test", "test-browser", "check-dist", "dist"}
    assert all(any(line.startswith(f"{target}: ") for line in MAKEFILE) for target in called)
