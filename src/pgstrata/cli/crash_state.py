"""`pgstrata crash replay` and `pgstrata crash minimise`: a state that failed, again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgstrata.cli.output import JsonFlag, print_json, print_text

if TYPE_CHECKING:
    from pgstrata.crash.named_state import NamedState
    from pgstrata.crash.replay import Replayed

SCRATCH = Path("/var/tmp")

StateName = Annotated[
    str,
    typer.Argument(metavar="STATE", help="DIR/crash/TRIAL/STATE, as reports print it; or a file with one state."),
]
Scratch = Annotated[Path, typer.Option("--scratch", metavar="DIR", help="Folder of the event log meanwhile.")]
BundleFile = Annotated[
    Path | None,
    typer.Option("--bundle", metavar="FILE", help="Write the state to one file for others.", show_default=False),
]


def replay(
    state: StateName,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export", metavar="FILE", help="Write its disk in the format of dm-log-writes.", show_default=False
        ),
    ] = None,
    bundle: BundleFile = None,
    scratch: Scratch = SCRATCH,
    json: JsonFlag = False,
) -> None:
    """Make a state again that a power cut could have left, and leave it mounted until `pgstrata clean`.

    With --export or --bundle a file is written instead, and nothing is mounted.
    """
    from pgstrata.crash.named_state import named_state
    from pgstrata.crash.replay import export_state, write_state
    from pgstrata.host.local import LocalHost

    named = named_state(state)
    written: list[Path] = []
    if bundle is not None:
        write_state(named, bundle)
        written.append(bundle)
    if export is not None:
        written += export_state(LocalHost(), named, export)
    if not written:
        _show(state, _replayed(named, scratch), json=json)
        return
    if json:
        print_json({"state": state, "files": [str(file) for file in written]})
    else:
        print_text("\n".join(f"wrote {file}" for file in written))


def _replayed(named: NamedState, scratch: Path) -> Replayed:
    from pgstrata.crash.replay import open_replay_site, replay, replay_campaign
    from pgstrata.host.local import LocalHost
    from pgstrata.trial.interruption import Interruption

    interruption, host = Interruption(), LocalHost()
    with interruption.installed():
        campaign = replay_campaign(named, scratch.resolve())
        return replay(open_replay_site(host, named, campaign, interruption), named)


def _show(state: str, found: Replayed, *, json: bool) -> None:
    if json:
        print_json({"state": state, "mounts": list(found.mount_points), "data_directory": found.data_directory})
        return
    print_text(f"{state} is mounted at {' and '.join(found.mount_points)}")
    print_text("It is a copy in memory: the record stays as it is, whatever is done to it.")
    print_text(f"recover it: runuser -u {found.user} -- {found.server} --single -D {found.data_directory} postgres")
    print_text("take it away: pgstrata clean")


def register(app: typer.Typer) -> None:
    app.command("crash replay", epilog="Example: pgstrata crash replay out/crash-ext4/crash/ext4-0/1.17")(replay)
