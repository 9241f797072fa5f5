"""Replay as a driver: strata-load, sent to the host with the load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from pgstrata.errors import PgstrataError, parser_of
from pgstrata.host.capabilities import Capability, Need
from pgstrata.host.delivery import BUILDING, LOAD_PROGRAM, OWN
from pgstrata.host.protocol import Command, Host
from pgstrata.spec.drivers import Driver, Replay
from pgstrata.spec.workload import Cell, Workload
from pgstrata.workload.driver import DataRequest, LoadDriver, RunOutput, RunRequest, run_timeout_s
from pgstrata.workload.tool_run import ToolRun

PROGRAM = str(OWN.with_name(LOAD_PROGRAM))
"""On this machine; it is static, and runs on every host with the same processor."""
LOAD_NAME = "my.load"
_PERCENTILES = ("p50", "p95", "p99")
_LATENESS = ("lateness_driver", "lateness_server")
MOST_STATEMENTS = 20
"""Statements whose figures become part of a run's result: those that took the most time."""
LONGEST_NAME = 80


def _lacking(host: Host) -> str | None:
    return None if OWN.with_name(LOAD_PROGRAM).exists() else f"{LOAD_PROGRAM} is not built ({BUILDING})"


class ReplayDriver(LoadDriver):
    """Runs a load on the user's own database."""

    model: ClassVar[type[Driver]] = Replay

    def capabilities(self, workload: Workload) -> tuple[Capability, ...]:
        return (Capability("replay", "replay loads", (Need(_lacking),)),)

    def plan_load(self, request: DataRequest) -> tuple[Command, ...]:
        raise PgstrataError("a replay has no data of its own", hint="workload: {pg_restore: my.dump}")

    def files(self, workload: Workload, cell: Cell) -> Mapping[str, str]:
        return {_asked(workload).load: LOAD_NAME, PROGRAM: LOAD_PROGRAM}

    def plan_run(self, request: RunRequest) -> Command:
        asked, target = _asked(request.workload), request.target
        argv = (
            request.files[PROGRAM], "replay", request.files[asked.load],
            "--host", target.server,
            "--port", str(target.port),
            "--username", target.superuser,
            "--dbname", target.database,
            "--speed", asked.speed,
        )  # fmt: skip
        seconds = () if request.duration_s is None else ("--seconds", f"{request.duration_s:g}")
        return target.command((*argv, *seconds), timeout_s=run_timeout_s(request.duration_s, request.cell.clients))

    @parser_of("strata-load")
    def parse_run(self, output: RunOutput, cell: Cell) -> ToolRun:
        """Return the run: percentiles are those of the time from when a statement was due to its answer."""
        *seconds, found = map(json.loads, output.out.splitlines())
        lateness = {f"{which}_p99_ms": found[which]["p99_ms"] for which in _LATENESS}
        return ToolRun(
            LOAD_PROGRAM,
            cell.script,
            {
                "tps": found["tps"],
                "latency_avg_ms": found["response"]["mean_ms"],
                "statements_per_s": found["statements_per_s"],
                **lateness,
            },
            result={
                "duration_s": found["seconds"],
                "transactions": found["transactions"],
                "failed": sum(found["errors"].values()),
                "percentiles_ms": {name: found["response"][f"{name}_ms"] for name in _PERCENTILES},
                "scripts": [_statement(one, found["seconds"]) for one in found["digests"][:MOST_STATEMENTS]],
            },
            progress=[(float(one["second"]), float(one["transactions"]), 0.0, 0.0) for one in seconds],
            incomplete=_incomplete(found),
        )


def _statement(one: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """The figures of a statement in the form of a script's; the digest keeps names apart that are cut."""
    answered = one["count"] - one["errors"]
    return {
        "name": f"{one['statement'][:LONGEST_NAME]} ({one['digest'][:8]})",
        "transactions": answered,
        "tps": answered / seconds if seconds else 0.0,
        "failed": one["errors"],
        "latency_avg_ms": one["mean_ms"],
        "percentiles_ms": {name: one[f"{name}_ms"] for name in _PERCENTILES},
    }


def _incomplete(found: Mapping[str, Any]) -> str:
    if found["lost_connections"]:
        return f"{found['lost_connections']} connections broke: {found.get('lost_because', '')}"
    return "no answer came any more" if found["gave_up"] else ""


def _asked(workload: Workload) -> Replay:
    if not isinstance(workload.driver, Replay):
        raise TypeError(f"{workload.driver.kind} is not a replay")
    return workload.driver
