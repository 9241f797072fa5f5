"""Runs the campaigns of scenarios, in processes, and keeps what they claimed in a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from acceptance_table.outcome import Job, Result, simulate
from acceptance_table.scenarios import scenarios


def run_jobs(names: Iterable[str], campaigns: int, processes: int, kept: Path | None = None) -> dict[str, list[Result]]:
    """Results by scenario, in the order of the names.

    Campaigns that are in the file `kept` are not run again, the others are added to it, and what it has beyond those
    asked for counts too: pieces of a table can be run one after another, and their files be joined.
    """
    known = scenarios()
    results: dict[str, list[Result]] = {name: [] for name in names}
    if kept is not None and kept.exists():
        for result in _read(kept):
            results.get(result.name, []).append(result)
    done = {(result.name, result.number) for found in results.values() for result in found}
    jobs = [
        Job(name, known[name][0], number, known[name][1])
        for name in results
        for number in range(campaigns)
        if (name, number) not in done
    ]
    for result in _run(jobs, processes):
        results[result.name].append(result)
        if kept is not None:
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(result)) + "\n")
    return results


def _read(kept: Path) -> Iterator[Result]:
    """Each campaign once."""
    lines = (json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines())
    once = {(line["name"], line["number"]): Result(**line) for line in lines}
    yield from once.values()


def _run(jobs: list[Job], processes: int) -> Iterator[Result]:
    if processes <= 1:
        yield from map(simulate, jobs)
        return
    # Forked, so that a mutant is inherited.
    with get_context("fork").Pool(processes) as pool:
        yield from pool.imap_unordered(simulate, jobs, chunksize=8)
