"""`pgstrata capture`: the load of a server, from its logs or from pg_stat_statements."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pgstrata.cli.output import JsonFlag, argument, option, print_json, print_notice, print_text

SCHEMA = "pgstrata.capture/1"
LITERALS = ("keep", "text", "all")


def capture(
    logs: Annotated[
        list[Path] | None, argument("LOG", "Logs of one server: stderr, csvlog, jsonlog.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, option("--out", "Load to write; with --from-statements a new folder.", metavar="PATH")
    ] = None,
    prefix: Annotated[
        str | None, option("--prefix", "log_line_prefix of the server, if no known one fits.", metavar="TEXT")
    ] = None,
    database: Annotated[
        str | None, option("--database", "Statements of other databases are left out.", metavar="NAME")
    ] = None,
    literals: Annotated[
        str, option("--literals", "keep; text or all are replaced by others of the same form.", metavar="WHICH")
    ] = "keep",
    from_statements: Annotated[
        Path | None, option("--from-statements", "CSV of pg_stat_statements, instead of logs.", metavar="FILE")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Capture the load of a server from its logs, or make a mix from pg_stat_statements.

    What cannot be replayed is counted by reason (docs/capture.md).
    """
    from pgstrata.errors import UsageError

    if out is None or bool(logs) == (from_statements is not None):
        raise UsageError(
            "capture takes logs or --from-statements, and --out",
            hint="pgstrata capture postgresql.csv --out my.load, or --from-statements statements.csv --out my-mix",
        )
    if from_statements is not None:
        _from_statements(from_statements, out, json)
    else:
        _from_logs(logs or [], out, prefix, database, literals, json)


def _from_logs(
    logs: list[Path], out: Path, prefix: str | None, database: str | None, literals: str, json: bool
) -> None:
    from pgstrata.capture.logs import plan_capture, run_capture
    from pgstrata.errors import UsageError
    from pgstrata.host.local import LocalHost

    if literals not in LITERALS:
        raise UsageError(f"--literals: {literals!r} is not one of {', '.join(LITERALS)}", hint="--literals text")
    if not out.absolute().parent.is_dir():
        raise UsageError(f"--out: the folder {out.parent} does not exist", hint=f"mkdir -p {out.parent}")
    call = plan_capture(logs, out, prefix=prefix, database=database, literals=literals)
    captured = run_capture(LocalHost(), call)
    if json:
        print_json({"schema": SCHEMA, "load": str(out), **asdict(captured)})
        return
    print_text("\n".join(captured.lines))
    if captured.literals == "keep":
        print_notice(f"{out} holds the literals of the log, and only its owner can read it")


def _from_statements(file: Path, out: Path, json: bool) -> None:
    from pgstrata.capture.statements import make_mix, read_statements, write_mix

    mix = make_mix(read_statements(file))
    write_mix(mix, out)
    if json:
        shares = {"covered": mix.covered, "left_out": dict(mix.left_out)}
        print_json({"schema": SCHEMA, "folder": str(out), "script": mix.weighted(out), **shares})
        return
    print_text("\n".join(mix.lines(out)))


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata capture postgresql-*.csv --out my.load --database shop")(capture)
