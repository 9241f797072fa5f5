"""`pgstrata clean`: undo whatever an interrupted run left."""

from __future__ import annotations

from typing import Annotated

import typer

from pgstrata.cli.output import JsonFlag, end, print_json, print_text
from pgstrata.errors import ExitCode


def clean(
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="local, ssh://[user@]host[:port] or lab. Repeatable.", show_default="local"),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Undo what an interrupted run left: processes, mounts, loop devices, files, settings. Idempotent.

    Exit code 3 when something could not be undone.
    """
    from pgstrata.cli.hosts import connect_any
    from pgstrata.host.local import LocalHost
    from pgstrata.lab import machines
    from pgstrata.stack.clean import clean as clean_host

    # machines whose run was killed take what it left on them along
    done, failed = machines.clean(LocalHost()), False
    names = host or ["local"]
    for name in names:
        if name == "lab":
            continue
        target = connect_any(name)
        try:
            cleaned = clean_host(target)
        finally:
            target.close()
        where = f"{name}: " if len(names) > 1 else ""
        done, failed = (*done, *(f"{where}{line}" for line in cleaned.lines)), failed or cleaned.failed
    if json:
        print_json({"host": ", ".join(names), "done": list(done), "failed": failed})
    else:
        print_text("\n".join(done) if done else "nothing to clean")
    if failed:
        end(ExitCode.REFUSED)


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata clean")(clean)
