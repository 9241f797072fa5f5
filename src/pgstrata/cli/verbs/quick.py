"""`pgstrata quick`: the main job without a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from pgstrata.cli.output import (
    Blocks,
    FailOn,
    FailUndecided,
    JsonFlag,
    OutDirectory,
    QuietFlag,
    ScratchDirectory,
    argument,
    option,
    parse_margin,
    parsed,
)
from pgstrata.errors import UsageError

EXAMPLE = "Example: pgstrata quick ext4 xfs:noatime btrfs:nodatacow tmpfs --minutes 20 --scratch /var/tmp"


Stacks = Annotated[list[str], argument("STACK", "Short notation, e.g. xfs:noatime.", show_default=False)]
Minutes = Annotated[float | None, option("--minutes", "Time budget.", metavar="N", min=0.1, show_default="10")]
Scale = Annotated[int | None, option("--scale", "pgbench scale; by default as fits.", min=1)]
Clients = Annotated[int | None, option("--clients", "pgbench clients.", min=1, show_default="8")]
Duration = Annotated[str | None, option("--duration", "Length of a run, e.g. 60s; by default as fits.", metavar="TIME")]
Script = Annotated[
    list[str] | None,
    option(
        "--script",
        "A script of pgbench's, an SQL file, or a mix: tpcb-like@9+mine.sql@1; repeatable with weights.",
        metavar="NAME",
        show_default="tpcb-like",
    ),
]
Define = Annotated[list[str] | None, option("--define", "A variable of the script; repeatable.", metavar="NAME=VALUE")]
Protocol = Annotated[
    str | None,
    option("--protocol", "Query protocol of pgbench.", metavar="simple|extended|prepared", show_default="simple"),
]
Database = Annotated[Path | None, option("--sql", "A database to load instead of pgbench's.", metavar="FILE")]
Archive = Annotated[Path | None, option("--pg-restore", "A dump of pg_dump to restore instead.", metavar="FILE")]
ReplayOf = Annotated[
    Path | None, option("--replay", "Replay a load of `pgstrata capture` on that database.", metavar="LOAD")
]
Speed = Annotated[str | None, option("--speed", "Speed of the replay.", metavar="FACTOR|max", show_default="1")]
Conf = Annotated[Path | None, option("--postgresql-conf", "Settings of the servers.", metavar="FILE")]
Disks = Annotated[list[str] | None, option("--device", "Stable id of a real disk; repeatable.", metavar="ID")]
Erase = Annotated[list[str] | None, option("--erase", "A disk whose content may be destroyed.", metavar="ID")]
OnServers = Annotated[
    list[str] | None,
    option(
        "--on-server",
        "A running server (server:postgresql://...) on which databases may be made; repeatable.",
        metavar="HOST",
    ),
]
Media = Annotated[
    str | None, option("--media", "Put stacks on modelled disks: hdd-7200, ./mine.toml.", metavar="MODEL")
]
Seed = Annotated[int, option("--seed", "Seed of the order of runs and of pgbench.")]
Margin = Annotated[str, option("--margin", "Differences below it do not matter.")]
Aa = Annotated[bool, option("--aa", "Run the first stack under two names, as a check.")]
OnHost = Annotated[str, option("--host", "local, ssh://[user@]host[:port], exec:... or lab.")]
Crash = Annotated[bool, option("--crash/--no-crash", "Also cut power: a short crash trial of each stack.")]
PlanOnly = Annotated[bool, option("--plan", "Show the plan and change nothing.")]


def quick_workload(
    scripts: Sequence[str],
    definitions: list[str],
    protocol: str | None,
    sql: Path | None = None,
    pg_restore: Path | None = None,
    replay: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the keys of `workload:` that were given as options; `replay` has those of that driver."""
    from pgstrata.spec.workload import parse_definitions

    data = {name: str(path) for name, path in (("sql", sql), ("pg_restore", pg_restore)) if path}
    asked = {"script": _one_cell(scripts), "protocol": protocol, **data, **(replay or {})}
    given = {name: value for name, value in asked.items() if value is not None}
    return {**given, "variables": parse_definitions(definitions)}


def _replay_keys(load: Path | None, speed: str | None) -> dict[str, Any]:
    """Return the keys of `workload:` of a replay; UsageError for a speed alone."""
    if load is None and speed is not None:
        raise UsageError("--speed is the speed of a replay", hint="--replay my.load")
    driver = {"kind": "replay", "load": str(load), "speed": speed or "1"}
    return {} if load is None else {"driver": driver, "warmup": 0}


def replay_length_s(load: Path | None, speed: str | None) -> float | None:
    """Return the seconds of the whole load at its speed; None without one, at full speed, and for a file that is no
    load, which is refused later."""
    from pgstrata.capture.logs import summary_of

    captured = None if load is None else summary_of(load)
    try:
        factor = float((speed or "1").removesuffix("x"))
    except ValueError:
        return None
    return max(1.0, math.ceil(captured.duration_s / factor)) if captured and factor > 0 else None


def _one_cell(scripts: Sequence[str]) -> str | None:
    """Return the script or mix of the options; UsageError for several scripts that are no mix."""
    from pgstrata.spec.scripts import joined

    found = joined(scripts)
    if len(found) > 1:
        weighted = " ".join(f"--script {name}@1" for name in found)
        raise UsageError(
            f"quick runs one script or one mix, and {' and '.join(found)} are given",
            hint=f"a weight for each: {weighted}; a campaign file may have a grid",
        )
    return found[0] if found else None


def quick(
    stacks: Stacks,
    minutes: Minutes = None,
    scale: Scale = None,
    clients: Clients = None,
    duration: Duration = None,
    blocks: Blocks = None,
    script: Script = None,
    define: Define = None,
    protocol: Protocol = None,
    sql: Database = None,
    pg_restore: Archive = None,
    replay: ReplayOf = None,
    speed: Speed = None,
    postgresql_conf: Conf = None,
    out: OutDirectory = None,
    scratch: ScratchDirectory = None,
    device: Disks = None,
    erase: Erase = None,
    on_server: OnServers = None,
    media: Media = None,
    seed: Seed = 1,
    margin: Margin = "2%",
    aa: Aa = False,
    host: OnHost = "local",
    crash: Crash = True,
    plan: PlanOnly = False,
    fail_on: FailOn = None,
    fail_undecided: FailUndecided = False,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Compare stacks named on the command line: build each, run PostgreSQL and pgbench on it, report."""
    from pgstrata.analyze.stats.detectable_difference import smallest_shown
    from pgstrata.cli.campaign_run import Shown, parse_gate, run_to_report
    from pgstrata.cli.overrides import begun_quick, require_known
    from pgstrata.cli.verbs.plan import show_plan
    from pgstrata.spec.quick import quick_campaign, quick_directory
    from pgstrata.spec.units import parse_duration_s

    directory = out or quick_directory(stacks)
    length_s = parsed("--duration", duration, parse_duration_s, "60s") if duration else replay_length_s(replay, speed)
    campaign = quick_campaign(
        stacks,
        partial(smallest_shown, fixed=blocks is not None),
        minutes=minutes,
        scale=scale,
        clients=clients,
        scratch=str(scratch.resolve()) if scratch else None,
        devices=device or (),
        erase=erase or (),
        on_servers=on_server or (),
        media=media,
        seed=seed,
        host=host,
        margin=parse_margin(margin),
        aa=aa,
        duration_s=length_s,
        blocks=blocks,
        workload=quick_workload(script or (), define or [], protocol, sql, pg_restore, _replay_keys(replay, speed)),
        postgresql={"postgresql_conf": str(postgresql_conf)} if postgresql_conf else None,
        crash=crash,
        begun=begun_quick(directory),
    )
    require_known(campaign)
    gate = parse_gate(fail_on, fail_undecided)
    if plan:
        show_plan(campaign, directory, gate.conditions, json=json)
    else:
        run_to_report(campaign, directory, "quick", Shown(json=json, quiet=quiet, gate=gate))


def register(app: typer.Typer) -> None:
    app.command(epilog=EXAMPLE)(quick)
