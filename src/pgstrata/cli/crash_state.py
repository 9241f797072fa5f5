"""`pgstrata crash replay` and `pgstrata crash minimise`: a state that failed, again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgstrata.cli.output import JsonFlag, QuietFlag, print_json, print_text
from pgstrata.errors import ExitCode

if TYPE_CHECKING:
    from pgstrata.crash.named_state import NamedState
    from pgstrata.crash.reduction import Patience
    from pgstrata.crash.replay import Replayed
    from pgstrata.record.schema import MinimalRecord
    from pgstrata.report.crash_story import Story

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
        write_state(named, bundle, {})
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
    from pgstrata.trial.interruption import Interrupted, Interruption

    interruption, host = Interruption(), LocalHost()
    campaign = replay_campaign(named, scratch.resolve())
    try:
        with interruption.installed():
            return replay(open_replay_site(host, named, campaign, interruption), named)
    except Interrupted:
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None


def _show(state: str, found: Replayed, *, json: bool) -> None:
    if json:
        print_json({"state": state, "mounts": list(found.mount_points), "data_directory": found.data_directory})
        return
    print_text(f"{state} is mounted at {' and '.join(found.mount_points)}")
    print_text("It is a copy in memory: the record stays as it is, whatever is done to it.")
    print_text(f"recover it: runuser -u {found.user} -- {found.server} --single -D {found.data_directory} postgres")
    print_text("take it away: pgstrata clean")


def minimise(
    state: StateName,
    states: Annotated[int, typer.Option("--states", min=1, max=100_000, help="Tried at most.")] = 500,
    minutes: Annotated[float, typer.Option("--minutes", min=0.1, help="Time for them.")] = 5.0,
    bundle: BundleFile = None,
    scratch: Scratch = SCRATCH,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Find the fewest lost writes with which a state still fails, and tell its story. The record stays as it is."""
    from pgstrata.crash.minimised import refuse_small
    from pgstrata.crash.named_state import named_state
    from pgstrata.crash.reduction import Patience
    from pgstrata.crash.replay import refuse_existing, write_state

    named = named_state(state)
    refuse_small(named)
    if bundle is not None:
        refuse_existing(bundle)
    record, files = _minimised(named, scratch, Patience(states, minutes * 60), quiet=quiet)
    if bundle is not None:
        write_state(named, bundle, files)
    if json:
        print_json(record.model_dump(mode="json"))
        return
    story = _story(named, record, bundle or Path("FILE"))
    print_text("\n".join(story.told))
    print_text(f"See it: {story.command}" if bundle else "To see it, write it to a file: --bundle FILE")


def _minimised(
    named: NamedState, scratch: Path, patience: Patience, *, quiet: bool
) -> tuple[MinimalRecord, dict[str, bytes]]:
    from pgstrata.cli.progress import listening
    from pgstrata.crash.minimised import minimise_state
    from pgstrata.crash.replay import open_replay_site, replay_campaign
    from pgstrata.host.local import LocalHost
    from pgstrata.trial.interruption import Interrupted, Interruption

    interruption, host = Interruption(), LocalHost()
    campaign = replay_campaign(named, scratch.resolve())
    try:
        with interruption.installed(), listening(quiet=quiet) as tell:
            site = open_replay_site(host, named, campaign, interruption)
            return minimise_state(site, named, patience, tell, interruption)
    except Interrupted:
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None


def _story(named: NamedState, record: MinimalRecord, place: Path) -> Story:
    from pgstrata.analyze.crash import durability_found
    from pgstrata.report.crash_story import tell_state
    from pgstrata.spec.durability import durability_class

    promised = durability_found(durability_class(named.planned.stack), named.trial.found)
    return tell_state(named.trial, record, promised, str(place))


def register(app: typer.Typer) -> None:
    example = "Example: pgstrata crash minimise out/crash-ext4/crash/ext4-0/1.17 --minutes 10"
    app.command("crash minimise", epilog=example)(minimise)
    app.command("crash replay", epilog="Example: pgstrata crash replay out/crash-ext4/crash/ext4-0/1.17")(replay)
