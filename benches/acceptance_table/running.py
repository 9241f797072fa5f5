"""Runs the campaigns of scenarios, wherever an executor has them run, and keeps what they claimed in a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, as_completed, wait
from dataclasses import asdict
from pathlib import Path

from acceptance_table.mutants import weaken
from acceptance_table.outcome import Job, Result, simulate
from acceptance_table.scenarios import scenarios

TOGETHER = 8
"""Campaigns of a scenario that are one piece of work."""
AHEAD = 256


def run_jobs(
    names: Iterable[str],
    campaigns: int,
    executor: Executor,
    kept: Path | None = None,
    *,
    mutant: str = "",
    first: int = 0,
) -> dict[str, list[Result]]:
    """Results by scenario, in the order of the names, with the rule of a mutant weakened. A campaign has its number as
    seed.

    Campaigns that are in the file `kept` are not run again, the others are added to it, and what it has beyond those
    asked for counts too: pieces of a table can be run one after another, and their files be joined.
    """
    results: dict[str, list[Result]] = {name: [] for name in names}
    if kept is not None and kept.exists():
        for result in _read(kept):
            results.get(result.name, []).append(result)
    done = {(result.name, result.number) for found in results.values() for result in found}
    pieces = []
    for name in results:
        left = [number for number in range(first, first + campaigns) if (name, number) not in done]
        pieces += [json.dumps([name, left[at : at + TOGETHER], mutant]) for at in range(0, len(left), TOGETHER)]
    for told in _completed(executor, pieces):
        found = [Result(**one) for one in json.loads(told)]
        results[found[0].name] += found
        if kept is not None:
            with kept.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(result)) + "\n" for result in found)
    return {name: sorted(found, key=lambda result: result.number) for name, found in results.items()}


def _completed(executor: Executor, pieces: Iterable[str]) -> Iterator[str]:
    """What pieces say, as soon as they do; so many are submitted ahead."""
    pending: set[Future[str]] = set()
    for piece in pieces:
        pending.add(executor.submit(simulate_piece, piece))
        done = {future for future in pending if future.done()}
        if not done and len(pending) >= AHEAD:
            done = wait(pending, return_when=FIRST_COMPLETED).done
        pending -= done
        yield from (future.result() for future in done)
    yield from (future.result() for future in as_completed(pending))


def simulate_piece(piece: str) -> str:
    """Campaigns of a scenario, by their numbers: what they claimed. Everything travels as JSON."""
    name, numbers, mutant = json.loads(piece)
    scenario, looks = scenarios()[name]
    mend = weaken(mutant) if mutant else lambda: None
    try:
        return json.dumps([asdict(simulate(Job(name, scenario, number, looks))) for number in numbers])
    finally:
        mend()


def _read(kept: Path) -> Iterator[Result]:
    """Each campaign once."""
    lines = (json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines())
    once = {(line["name"], line["number"]): Result(**line) for line in lines}
    yield from once.values()
