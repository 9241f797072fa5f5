"""`pgstrata crash`: power-cut verdicts only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgstrata.cli.output import (
    JsonFlag,
    OnCluster,
    OtherHost,
    OutDirectory,
    QuietFlag,
    ScratchDirectory,
    end,
    print_json,
    print_notice,
    print_text,
)
from pgstrata.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from pgstrata.crash.cluster_program import FailuresAsked
    from pgstrata.crash.elsewhere import Elsewhere
    from pgstrata.crash.program import CrashAsked
    from pgstrata.record.reader import CampaignData
    from pgstrata.record.recorder import CampaignDirectory
    from pgstrata.spec.campaign import Campaign
    from pgstrata.spec.crash_trials import ScriptName

EXAMPLE = "Example: pgstrata crash ext4 xfs --states 200 --scratch /var/tmp"
FILES = (".yaml", ".yml")
CLUSTERS = "Clusters"

What = Annotated[
    list[str], typer.Argument(metavar="FILE|STACK", help="A campaign's file, or stacks in short notation.")
]
States = Annotated[
    int | None,
    typer.Option(
        "--states", min=1, max=100_000, help="States of each stack; of a cluster failures.", show_default="100"
    ),
]
Minutes = Annotated[
    float | None, typer.Option("--minutes", min=0.1, help="Time for the states of each stack.", show_default=False)
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the choice of states and of the transactions.")]
Transactions = Annotated[
    int, typer.Option("--transactions", min=1, max=100_000, help="Recorded in each of 8 sessions.")
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, max=64, help="States looked at at once.", show_default="one a processor"),
]
Nested = Annotated[
    int | None,
    typer.Option(
        "--nested", min=0, max=10_000, metavar="N", help="Of N states the recovery is interrupted by further cuts.",
        show_default="one of 100",
    ),
]  # fmt: skip
Minimise = Annotated[
    int,
    typer.Option(
        "--minimise", min=0, max=100_000, metavar="N", help="States tried to make one that failed smaller; 0: none."
    ),
]
Ignored = Annotated[
    str,
    typer.Option(
        "--ignore-flushes", metavar="all|N", help="As a disk that ignores all flushes, or always the last N of them."
    ),
]
FaultName = Annotated[
    str,
    typer.Option(
        "--fault",
        metavar="flush-error|write-error|gone|slow-flush|full",
        help="Of the disk, in the middle of the transactions.",
        show_default="none",
    ),
]
ScriptOption = Annotated[
    str | None,
    typer.Option(
        "--script", metavar="ledger|tpcb-like", help="What is written: the ledger, or pgbench's own transactions.",
        show_default="ledger",
    ),
]  # fmt: skip
Lost = Annotated[
    int, typer.Option("--lost", min=1, max=16, help="Of a cluster: nodes lost at once.", rich_help_panel=CLUSTERS)
]
Promote = Annotated[
    str,
    typer.Option(
        "--promote",
        metavar="most|least|forgetful",
        help="Of a cluster: the node that reaches furthest; by mistake the one that reaches least far, or one that came"
        " back without its memory.",
        rich_help_panel=CLUSTERS,
    ),
]
RejoinBy = Annotated[
    str | None,
    typer.Option(
        "--rejoin",
        metavar="rewind|backup",
        help="Of a cluster: a lost primary then follows the promoted node, by pg_rewind or a new base backup.",
        show_default=False,
        rich_help_panel=CLUSTERS,
    ),
]
Power = Annotated[
    bool,
    typer.Option(
        "--power",
        help="Of a cluster: all nodes lose power at once, and come back with what their disks kept.",
        rich_help_panel=CLUSTERS,
    ),
]
Gone = Annotated[
    list[str] | None,
    typer.Option(
        "--gone",
        metavar="NODE",
        help="With --power: a node that does not come back; may be repeated.",
        show_default=False,
        rich_help_panel=CLUSTERS,
    ),
]


def crash(
    what: What,
    states: States = None,
    minutes: Minutes = None,
    seed: Seed = 1,
    transactions: Transactions = 100,
    workers: Workers = None,
    on: OnCluster = None,
    nested: Nested = None,
    minimise: Minimise = 100,
    ignore_flushes: Ignored = "0",
    fault: FaultName = "",
    script: ScriptOption = None,
    lost: Lost = 1,
    promote: Promote = "most",
    rejoin: RejoinBy = None,
    power: Power = False,
    gone: Gone = None,
    out: OutDirectory = None,
    scratch: ScratchDirectory = None,
    host: OtherHost = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Cut power (of clusters: lose nodes) in many ways, recover PostgreSQL, and look for what was acknowledged."""
    from pgstrata.cli.crash_clusters import asked_failures, refuse_failing, refuse_power, refuse_wishes
    from pgstrata.crash.faults import ledger_size, refuse_fault
    from pgstrata.crash.program import CrashAsked, asked_of_nodes
    from pgstrata.record.recorder import CampaignDirectory
    from pgstrata.spec.cluster_crash import are_clusters, cluster_crash_campaign, cluster_power_campaign
    from pgstrata.spec.crash import crash_campaign
    from pgstrata.spec.expand import slug

    _refuse(ignore_flushes, workers, on)
    asked_for = _campaign(what, seed, scratch, host)
    clusters, file = are_clusters(asked_for), _said_in_file(asked_for)
    power, written = power or file.get("power", False), _script(script or file.get("script", "ledger"))
    nodes = gone or list(file.get("gone", ()))
    rejoin, states = rejoin or file.get("rejoin"), states or file.get("states")
    if minutes is None and "time" in file and (power or not clusters):
        minutes = file["time"] / 60
    wishes = {
        "power": power, "gone": nodes, "rejoin": rejoin, "lost": lost != 1, "promote": promote != "most",
        "minutes": minutes, "ignore-flushes": ignore_flushes != "0", "fault": fault, "nested": nested, "on": on,
        "script": written != "ledger",
    }  # fmt: skip
    refuse_wishes(wishes, cluster=clusters)
    asked_for = _tested(asked_for, power=power, gone=nodes) if _is_file(what) else asked_for
    asked: CrashAsked | FailuresAsked
    if clusters and not power:
        campaign = cluster_crash_campaign(asked_for)
        asked = asked_failures(states, lost, promote, seed, rejoin)
        refuse_failing(campaign, asked)
    else:
        campaign = cluster_power_campaign(asked_for) if clusters else crash_campaign(asked_for)
        for stack in campaign.stacks if fault else ():
            refuse_fault(fault, stack, written)
        size = ledger_size(transactions, fault, written)
        asked = CrashAsked(states, minutes, seed, ignore_flushes, size, fault, workers, nested, minimise)
        if clusters:
            refuse_power(campaign, nodes)
            asked = asked_of_nodes(asked, nodes)
    place = out or Path("out") / slug(campaign.name)
    with CampaignDirectory.create_or_open(place, campaign, "crash") as directory:
        _refuse_finished(directory)
        failed = _run(campaign, directory, asked, on, quiet=quiet)
        data = directory.data()
    _show(campaign, data, json=json)
    end(ExitCode.TRIALS_FAILED if failed else ExitCode.DONE)


def _campaign(what: list[str], seed: int, scratch: Path | None, host: str | None) -> Campaign:
    from pgstrata.cli.changes import changed
    from pgstrata.spec.campaign_file import load_campaign
    from pgstrata.spec.crash import named_stacks

    campaign = load_campaign(Path(what[0])) if _is_file(what) else named_stacks(what)
    campaign = changed(campaign, scratch=scratch, host=host).model_copy(update={"seed": seed})
    if campaign.hosts:
        raise UsageError("a crash trial runs on one host", hint="name it: --host HOST")
    return campaign


def _tested(campaign: Campaign, *, power: bool, gone: list[str]) -> Campaign:
    """A file's campaign without the stacks that have no such crash trials, which is told."""
    from pgstrata.spec.cluster_crash import without_untested
    from pgstrata.spec.crash_trials import CrashTrials

    tested, left_out = without_untested(campaign, CrashTrials(power=power, gone=tuple(gone)))
    for name, problem in left_out.items():
        print_notice(f"{name} is not tested: {problem}")
    return tested


def _refuse(ignore_flushes: str, workers: int | None, on: str | None) -> None:
    """UsageError for what no crash trial can be asked."""
    from pgstrata.fleet.work import refuse_both

    if ignore_flushes != "all" and not ignore_flushes.isdecimal():
        raise UsageError(f"--ignore-flushes: {ignore_flushes!r} is neither all nor a number", hint="for example: 3")
    refuse_both(workers, on)


def _script(name: str) -> ScriptName:
    from pgstrata.crash.script import SCRIPTS
    from pgstrata.spec.nearest import render_nearest

    script = next((one for one in SCRIPTS if one == name), None)
    if script is None:
        raise UsageError(
            f"--script: {name!r} is none of {', '.join(SCRIPTS)}", hint=render_nearest(name, list(SCRIPTS))
        )
    return script


def _is_file(what: list[str]) -> bool:
    return len(what) == 1 and what[0].endswith(FILES)


def _said_in_file(campaign: Campaign) -> dict[str, Any]:
    """What a campaign's file says of its crash trials, without defaults; an option says it otherwise."""
    return {} if campaign.crash is None else campaign.crash.model_dump(exclude_unset=True)


def _refuse_finished(directory: CampaignDirectory) -> None:
    """What was asked of states and transactions is no part of the campaign: two requests do not go into one folder."""
    if directory.crashes():
        raise UsageError(f"{directory.path} has finished crash trials", hint="choose another folder with --out DIR")


def _run(
    campaign: Campaign, directory: CampaignDirectory, asked: CrashAsked | FailuresAsked, on: str | None, *, quiet: bool
) -> bool:
    """Whether a trial failed."""
    from pgstrata.cli.hosts import campaign_host
    from pgstrata.cli.progress import listening
    from pgstrata.crash.opening import crash_trials, open_crash_runner
    from pgstrata.trial.interruption import Interrupted, Interruption

    interruption = Interruption()
    try:
        with (
            interruption.installed(),
            listening(quiet=quiet) as tell,
            campaign_host(campaign, tell, interruption.waiting) as host,
            _elsewhere(on) as elsewhere,
        ):
            runner = open_crash_runner(host, campaign, directory, asked, tell, interruption, elsewhere)
            trials = crash_trials(campaign, asked.seed)
            verdicts = [runner.run(trial, directory, tell) for trial in trials]
            return any(verdict.status != "ok" for verdict in verdicts)
    except Interrupted:
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None


@contextmanager
def _elsewhere(on: str | None) -> Iterator[Elsewhere | None]:
    """The workers of a cluster, where one is named."""
    if on is None:
        yield None
        return
    from pgstrata.crash.elsewhere import Elsewhere
    from pgstrata.fleet.work import opened_cluster_work

    with opened_cluster_work(on) as (work, way):
        yield Elsewhere(work, way.width, way.ask_each)


def _show(campaign: Campaign, data: CampaignData, *, json: bool) -> None:
    from pgstrata.analyze.crash import durability_found
    from pgstrata.report.crash import crash_lines, stories
    from pgstrata.spec.durability import durability_class

    found = [crash.found for crash in data.crashes]
    tested = {one.stack: durability_found(durability_class(campaign.stack(one.stack)), one) for one in found}
    if json:
        stacks = [{"name": name, "durability": d.model_dump(mode="json", by_alias=True)} for name, d in tested.items()]
        print_json({"stacks": stacks})
        return
    for line in crash_lines(tested, stories(data, tested, data.source.text)):
        print_text(line)
    print_text(f"record: {data.source.text}")


def register(app: typer.Typer) -> None:
    app.command(epilog=EXAMPLE)(crash)
