"""`pgstrata clean`: undo whatever an interrupted run left."""

from __future__ import annotations

from typing import Annotated

import typer

from pgstrata.cli.output import JsonFlag, print_json, print_text


def clean(
    host: Annotated[str, typer.Option("--host", help="local, ssh://[user@]host[:port] or lab.")] = "local",
    json: JsonFlag = False,
) -> None:
    """Undo what an interrupted run left: processes, mounts, loop devices, files, settings. Idempotent."""
    from pgstrata.host.connect import connect
    from pgstrata.stack.clean import clean as clean_host

    target = connect(host)
    try:
        done = clean_host(target)
    finally:
        target.close()
    if json:
        print_json({"host": host, "done": list(done)})
    else:
        print_text("\n".join(done) if done else "nothing to clean")


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata clean")(clean)
