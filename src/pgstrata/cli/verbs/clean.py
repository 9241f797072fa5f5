"""`pgstrata clean`: undo whatever an interrupted run left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pgstrata.cli.output import JsonFlag, end, option, print_error, print_json, print_text
from pgstrata.errors import ExitCode, PreflightError

if TYPE_CHECKING:
    from pgstrata.stack.block.loop import LoopState


def clean(
    host: Annotated[
        list[str] | None,
        option("--host", "local, ssh://[user@]host[:port], exec:... or lab. Repeatable.", show_default="local"),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Undo what an interrupted run left: processes, mounts, loop devices, files, settings. Idempotent.

    Exit code 3 when something could not be undone, or a loop device whose filesystem has ended is left.
    """
    from pgstrata.cli.hosts import named_host
    from pgstrata.host.local import LocalHost
    from pgstrata.lab import machines
    from pgstrata.stack.block.loop import lost_loops
    from pgstrata.stack.journal import clean as clean_host

    # machines whose run was killed take what it left on them along
    done, failed, left = machines.clean(LocalHost()), False, list[PreflightError]()
    names = host or ["local"]
    for name in names:
        if name == "lab":
            continue
        with named_host(name) as target:
            cleaned = clean_host(target)
            left += [_left(target.name, loop) for loop in lost_loops(target)]
        where = f"{name}: " if len(names) > 1 else ""
        done, failed = (*done, *(f"{where}{line}" for line in cleaned.lines)), failed or cleaned.failed
    if json:
        told = [{"problem": one.message, "hint": one.hint} for one in left]
        print_json({"host": ", ".join(names), "done": list(done), "left": told, "failed": failed})
    elif done or not left:
        print_text("\n".join(done) if done else "nothing to clean")
    for one in left:
        print_error(one)
    if failed or left:
        end(ExitCode.REFUSED)


def _left(host: str, loop: LoopState) -> PreflightError:
    return PreflightError(
        f"{loop.node} on {host} is left attached: the filesystem of its file {loop.backing_file} has ended, as when "
        "strata-disk is killed, and nothing shows that the device is pgstrata's",
        hint=f"losetup --detach {loop.node}",
    )


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata clean")(clean)
