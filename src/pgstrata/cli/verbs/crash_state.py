"""`pgstrata crash replay`, `crash minimise` and `crash verify`: recorded states, again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgstrata.cli.output import JsonFlag, QuietFlag, argument, end, option, print_json, print_result, print_text
from pgstrata.errors import ExitCode

if TYPE_CHECKING:
    from pgstrata.crash.named_state import NamedState
    from pgstrata.crash.reduction import Patience
    from pgstrata.crash.replay import Replayed, ReplayedNode
    from pgstrata.record.crash import MinimalRecord
    from pgstrata.report.sentences.crash_timeline import Story
    from pgstrata.trial.interruption import Interruption
    from pgstrata.trial.survey.host_survey import Site

SCRATCH = Path("/var/tmp")

StateName = Annotated[str, argument("STATE", "DIR/crash/TRIAL/STATE, as reports print it; or a file with one state.")]
Scratch = Annotated[Path, option("--scratch", "Folder for the unpacked event log.", metavar="DIR")]
WhereHost = Annotated[
    str, option("--host", "local, ssh://[user@]host[:port], exec:... or lab/NAME: one whose kernel has every layer.")
]
Trust = Annotated[
    bool, option("--trust", "Allow a state recorded by someone else: its settings and functions run here.")
]
StateFile = Annotated[Path | None, option("--out", "Write the state to one file for others.", metavar="FILE")]


def replay(
    state: StateName,
    export: Annotated[
        Path | None, option("--export", "Write its disk in the format of dm-log-writes.", metavar="FILE")
    ] = None,
    out: StateFile = None,
    scratch: Scratch = SCRATCH,
    host: WhereHost = "local",
    trust: Trust = False,
    json: JsonFlag = False,
) -> None:
    """Recreate a state that a power cut could have left, and leave it mounted until `pgstrata clean`.

    --export and --out write a file instead and mount nothing.
    """
    from pgstrata.crash.named_state import named_state
    from pgstrata.crash.replay import export_state, write_state
    from pgstrata.host.local import LocalHost

    named = named_state(state)
    written: list[Path] = []
    if out is not None:
        write_state(named, out, {})
        written.append(out)
    if export is not None:
        written += export_state(LocalHost(), named, export)
    if not written:
        _show(state, _replayed(named, scratch, host, trust=trust), host, json=json)
        return
    print_result(
        {"state": state, "files": [str(file) for file in written]},
        lambda: "\n".join(f"wrote {file}" for file in written),
        json=json,
    )


@contextmanager
def _opened(named: NamedState, scratch: Path, where: str) -> Iterator[tuple[Site, str, Interruption]]:
    """Open a host for the state, with who else may have recorded it; an interruption ends the verb."""
    from pgstrata.cli.hosts import named_host
    from pgstrata.crash.replay import open_replay_site, replay_campaign
    from pgstrata.trial.interruption import Interrupted, Interruption

    interruption = Interruption()
    campaign = replay_campaign(named, scratch.resolve())
    try:
        with interruption.installed(), named_host(where) as host:
            yield *open_replay_site(host, named, campaign, interruption), interruption
    except Interrupted:
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None


def _replayed(named: NamedState, scratch: Path, where: str, *, trust: bool) -> Replayed:
    from pgstrata.crash.replay import refuse_to_mount, replay

    with _opened(named, scratch, where) as (site, strange, _):
        if not trust:
            refuse_to_mount(named, strange)
        return replay(site, named, strange)


def _show(state: str, found: Replayed, where: str, *, json: bool) -> None:
    if json:
        value = {"state": state, "mounts": list(found.mount_points), "data_directory": found.data_directory}
        commands = {"recover": found.recovery, "start": found.start, "look": found.look}
        print_json({**value, "nodes": [asdict(node) for node in found.nodes], **commands})
        return
    print_text(f"{state} is mounted at {' and '.join(found.mount_points)}{_on(where)}")
    for node in found.nodes:
        print_text(f"  {_node_words(node)}")
    print_text("It is a copy in memory: the record stays as it is, whatever is done to it.")
    if found.strange:
        print_text(
            f"It may be somebody else's ({found.strange}): a server that is started on it runs what its author put "
            "into its settings, libraries and functions."
        )
    print_text(f"{'bring up what is left' if found.nodes else 'recover it'}: {found.recovery}")
    if found.start:
        print_text(f"or start its server: {found.start}")
        print_text(f"and look at it: {found.look}")
    print_text("take it away: pgstrata clean" + ("" if where == "local" else f" --host {shlex.quote(where)}"))


def _on(where: str) -> str:
    return "" if where == "local" else f" on {where}"


def _node_words(node: ReplayedNode) -> str:
    """`standby1: /.../pgdata; it went on`."""
    if node.data_directory is None:
        part = "a part of it was in memory, and nobody uses its disks" if node.mount_points else "it was in memory"
        return f"{node.name}: nothing is left: {part}"
    absent = "; it did not come back" if node.fate == "did not come back" else ""
    went_on = "; it went on when the trial looked at this state" if node.went_on else ""
    return f"{node.name}: {node.data_directory}{absent}{went_on}"


def minimise(
    state: StateName,
    states: Annotated[int, option("--states", "Maximum number of states tried.", min=1, max=100_000)] = 500,
    minutes: Annotated[float, option("--minutes", "Time limit.", min=0.1)] = 5.0,
    out: StateFile = None,
    scratch: Scratch = SCRATCH,
    host: WhereHost = "local",
    trust: Trust = False,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Find the fewest lost writes with which a state still fails, and describe them. The record is not changed."""
    from pgstrata.crash.named_state import named_state
    from pgstrata.crash.reduction import Patience, refuse_small
    from pgstrata.crash.replay import refuse_existing, write_state

    named = named_state(state)
    refuse_small(named)
    if out is not None:
        refuse_existing(out)
    record, files = _minimised(named, scratch, host, Patience(states, minutes * 60), quiet=quiet, trust=trust)
    if out is not None:
        write_state(named, out, files)
    if json:
        print_json(record.model_dump(mode="json"))
        return
    story = _story(named, record, out or Path("FILE"))
    print_text("\n".join(story.told))
    print_text(f"See it: {story.command}" if out else "To see it, write it to a file: --out FILE")


def _minimised(
    named: NamedState, scratch: Path, where: str, patience: Patience, *, quiet: bool, trust: bool
) -> tuple[MinimalRecord, dict[str, bytes]]:
    from pgstrata.cli.progress import listening
    from pgstrata.crash.reduction import minimise_state
    from pgstrata.crash.replay import refuse_to_run

    with listening(quiet=quiet) as tell, _opened(named, scratch, where) as (site, strange, interruption):
        if not trust:
            refuse_to_run(named, strange, site.user)
        return minimise_state(site, named, patience, tell, interruption)


def _story(named: NamedState, record: MinimalRecord, place: Path) -> Story:
    from pgstrata.analyze.crash import durability_found
    from pgstrata.report.sentences.crash_timeline import tell_state
    from pgstrata.spec.durability import durability_class

    promised = durability_found(durability_class(named.planned.stack), named.trial.found)
    return tell_state(named.trial, record, promised, str(place))


def verify(
    directory: Annotated[Path, argument("DIR", "A record with crash trials, or a zip of one.")], json: JsonFlag = False
) -> None:
    """Recreate the states of crash trials from their kept event logs and compare digests; exit 4 if one differs."""
    from contextlib import closing

    from pgstrata.crash.named_state import refuse_other_version
    from pgstrata.crash.replay import verify_trial
    from pgstrata.errors import UsageError
    from pgstrata.host.delivery import deliver
    from pgstrata.host.local import LocalHost
    from pgstrata.record.reader import read

    data = read(directory)
    trials = [trial for trial in data.crashes if trial.found.states]
    if not trials:
        raise UsageError(
            f"{directory} has no crash trial with states of disks", hint="pgstrata crash ext4 --scratch /var/tmp"
        )
    refuse_other_version(str(directory), data)
    with closing(LocalHost()) as host:
        deliver(host)
        found = [verify_trial(host, data.source, trial) for trial in trials]
    if json:
        print_json({"trials": [asdict(one) for one in found]})
    for one in () if json else found:
        nested = f"; {one.nested} of interrupted recoveries are not compared" if one.nested else ""
        print_text(f"{one.stack}: {one.states} states are made as recorded{nested}")
        for problem in one.problems:
            print_text(f"  {problem}")
    end(ExitCode.TRIALS_FAILED if any(one.problems for one in found) else ExitCode.DONE)


def register(app: typer.Typer) -> None:
    example = "Example: pgstrata crash minimise out/crash-ext4/crash/ext4-0/1.17 --minutes 10"
    app.command("crash minimise", epilog=example)(minimise)
    app.command("crash replay", epilog="Example: pgstrata crash replay out/crash-ext4/crash/ext4-0/1.17")(replay)
    app.command("crash verify", epilog="Example: pgstrata crash verify out/crash-ext4")(verify)
