"""Any program as a driver. Nothing that it prints is trusted: a run without one finite figure is no run."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from pgstrata.errors import TrialError
from pgstrata.host.capabilities import Capability, Need, program_path
from pgstrata.host.protocol import Command, Completed, Host
from pgstrata.spec.drivers import Driver, Program, Result, fill_places
from pgstrata.spec.workload import Cell, Workload
from pgstrata.workload.driver import (
    DataRequest,
    LoadDriver,
    LoadTimes,
    RunOutput,
    RunRequest,
    run_timeout_s,
)
from pgstrata.workload.target import Target
from pgstrata.workload.tool_run import ToolRun

PREPARE_TIMEOUT_S = 24 * 3600.0
MOST_OUTPUT_BYTES = 64 << 20
"""Limit of one file that a program writes, its output included: beyond that the kernel ends it (RLIMIT_FSIZE)."""
BOUNDED = ("prlimit", f"--fsize={MOST_OUTPUT_BYTES}", "--core=0")
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)")
"""A number that stands by itself: a digit within a word is none."""


class ProgramDriver(LoadDriver):
    """Runs the declared commands and reads the declared figure."""

    model: ClassVar[type[Driver]] = Program

    def capabilities(self, workload: Workload) -> tuple[Capability, ...]:
        names = dict.fromkeys(words[0] for words in _commands(workload))
        return tuple(Capability(f"driver.{name}", f"run {name}", (executable(name),)) for name in names)

    def plan_load(self, request: DataRequest) -> tuple[Command, ...]:
        asked = _asked(request.workload)
        return (_command(request.target, asked.prepare, {"scale": str(request.scale)}),) if asked.prepare else ()

    def parse_load(self, done: Sequence[Completed]) -> LoadTimes:
        return LoadTimes(phases_s={"prepare": sum(one.duration_s for one in done)})

    def plan_check(self, request: DataRequest, *, fresh: bool) -> tuple[Command, ...]:
        asked = _asked(request.workload)
        return (_command(request.target, asked.check, {"scale": str(request.scale)}),) if asked.check else ()

    def plan_run(self, request: RunRequest) -> Command:
        values = {
            "scale": str(request.cell.scale),
            "clients": str(request.cell.clients),
            "seconds": f"{request.duration_s or 0:g}",
            "seed": str(request.seed),
            "folder": request.folder,
        }
        limit_s = run_timeout_s(request.duration_s, request.cell.clients)
        return _command(request.target, _asked(request.workload).run, values, BOUNDED, limit_s)

    def parse_run(self, output: RunOutput, cell: Cell) -> ToolRun:
        result = _asked(output.workload).result
        values = list(_figures(result, output.out))
        if not values:
            raise TrialError(f"the program printed no {result.metric}: {excerpt(output.out)}")
        return ToolRun(
            "program",
            cell.script,
            {result.metric: sum(values) / len(values)},
            result={"duration_s": output.asked_s or 0.0, "transactions": 0},
        )


def _asked(workload: Workload) -> Program:
    assert isinstance(workload.driver, Program)
    return workload.driver


def _commands(workload: Workload) -> Iterator[tuple[str, ...]]:
    asked = _asked(workload)
    yield from filter(None, (asked.prepare, asked.run, asked.check))


def executable(name: str) -> Need:
    """Return the need of a program by its name or path."""

    def missing(host: Host) -> str | None:
        there = host.status(name) is not None if "/" in name else program_path(host, name) is not None
        return None if there else f"{name} is not installed"

    return Need(missing, {})


def _command(
    target: Target,
    words: tuple[str, ...],
    values: dict[str, str],
    before: tuple[str, ...] = (),
    timeout_s: float = PREPARE_TIMEOUT_S,
) -> Command:
    own = {"host": target.server, "port": str(target.port), "user": target.superuser, "database": target.database}
    env = tuple((f"PG{name.upper()}", value) for name, value in own.items())
    argv = (*before, *fill_places(words, own | {"passfile": target.passfile} | values))
    return target.command(argv, timeout_s=timeout_s, env=env)


# ---------------------------------------------------------------- results


def _figures(result: Result, text: str) -> Iterator[float]:
    """Yield the figures of an output in order. TrialError for a value that is no finite number."""
    if result.json_path is not None:
        yield _finite(_at(_parsed(text), result.json_path), result.json_path)
    elif result.json_lines is not None:
        objects = (line for line in text.splitlines() if line.lstrip().startswith("{"))
        yield from (_finite(_at(_parsed(line), result.json_lines), result.json_lines) for line in objects)
    elif result.csv is not None:
        rows = csv.DictReader(io.StringIO(text))
        if result.csv not in (rows.fieldnames or ()):
            raise TrialError(f"the program printed no table with a column {result.csv!r}: {excerpt(text)}")
        yield from (_finite(row[result.csv], result.csv) for row in rows)
    else:
        last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
        is_text = last.replace("\t", " ").isprintable() and "\ufffd" not in last
        if found := _NUMBER.findall(last if is_text else ""):
            yield _finite(found[-1], "the last line")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TrialError(f"the program printed no JSON ({error}): {excerpt(text)}") from None


def _at(value: Any, path: str) -> Any:
    for step in path.split("."):
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (KeyError, IndexError, ValueError, TypeError):
            raise TrialError(f"the program's JSON has no {path!r}: {excerpt(json.dumps(value))}") from None
    return value


def _finite(value: Any, where: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise TrialError(f"the program printed {str(value)[:60]!r} for {where}, which is no finite number")
    return number


def excerpt(text: str) -> str:
    """Return the beginning of an output, for messages."""
    return repr(text[:200]) if text.strip() else "an empty output"
