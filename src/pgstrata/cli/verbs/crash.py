"""`pgstrata crash`: power-cut verdicts only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    argument,
    end,
    option,
    print_json,
    print_notice,
    print_text,
)
from pgstrata.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from pgstrata.crash.remote_workers import RemoteWorkers
    from pgstrata.record.reader import CampaignData
    from pgstrata.record.recorder import CampaignDirectory
    from pgstrata.spec.campaign import Campaign, Trial
    from pgstrata.spec.crash_request import CrashRequest

EXAMPLE = "Example: pgstrata crash ext4 xfs --states 200 --scratch /var/tmp"
FILES = (".yaml", ".yml")

What = Annotated[list[str], argument("FILE|STACK", "A campaign's file, or stacks in short notation.")]


def _option(name: str, text: str, shown: str | bool = False, **limits: Any) -> Any:
    """An option whose default, shown in the help, is that of the request."""
    return option(name, text, show_default=shown, **limits)


_STATES = "Number of crash states per stack (cluster: of node failures)."
States = Annotated[int | None, _option("--states", _STATES, "100 for each recording", min=1, max=100_000)]
Minutes = Annotated[float | None, _option("--minutes", "Time limit for the states of each stack.", min=0.1)]
_SEED = "Random seed for the choice of states and for the transactions."
Seed = Annotated[int, _option("--seed", _SEED, True, min=0)]
_TRANSACTIONS = "Transactions of each of 8 sessions, in up to 5 recordings of 100 or more."
Transactions = Annotated[
    int | None, _option("--transactions", _TRANSACTIONS, "1,000; 100 of clusters or with a fault", min=1, max=100_000)
]
_WORKERS = "Number of states checked in parallel."
Workers = Annotated[int | None, _option("--workers", _WORKERS, "one per processor", min=1, max=64)]
_NESTED = "Interrupt recovery with another power cut in N states."
Nested = Annotated[int | None, _option("--nested", _NESTED, "one of 100", min=0, max=10_000, metavar="N")]
_MINIMISE = "Most states tried when minimising a failure; 0 disables."
Minimise = Annotated[int | None, _option("--minimise", _MINIMISE, "100", min=0, max=100_000, metavar="N")]
_KEEP = "Keep the event log of a held verdict up to this packed size, for `crash verify`; 0 disables."
KeepLog = Annotated[int | None, _option("--keep-log-mib", _KEEP, "64", min=0, max=100_000, metavar="N")]
_IGNORED = "Simulate a disk that ignores all flushes, or always its last N."
Ignored = Annotated[str | None, _option("--ignore-flushes", _IGNORED, "0", metavar="all|N")]
_FAULT = "Disk fault injected in the middle of the transactions."
_FAULTS = "flush-error|write-error|gone|slow-flush|full"
FaultOption = Annotated[str | None, _option("--fault", _FAULT, "none", metavar=_FAULTS)]
_SCRIPT = (
    "What is written: the ledger, pgbench's own transactions, the ledger beside the file's workload, "
    "or the ledger beside this script: tpcc, oltp_read_write, mine.sql, a@9+b@1."
)
ScriptOption = Annotated[str | None, _option("--script", _SCRIPT, "ledger", metavar="ledger|tpcb-like|workload|SCRIPT")]
Lost = Annotated[int | None, _option("--lost", "Cluster: number of nodes lost at once.", "1", min=1, max=16)]
_PROMOTE = (
    "Cluster: promote the node with the most WAL; by mistake the one with the least, or one that lost its memory."
)
Promote = Annotated[str | None, _option("--promote", _PROMOTE, "most", metavar="most|least|forgetful")]
_REJOIN = "Cluster: rejoin the lost primary to the promoted node, by pg_rewind or a new base backup."
RejoinBy = Annotated[str | None, _option("--rejoin", _REJOIN, metavar="rewind|backup")]
_POWER = "Cluster: cut the power of all nodes at once; they come back with the content of their disks."
Power = Annotated[bool, _option("--power", _POWER)]
_GONE = "With --power: a node that stays lost. Repeatable."
Gone = Annotated[list[str] | None, _option("--gone", _GONE, metavar="NODE")]


def crash(
    what: What,
    states: States = None,
    minutes: Minutes = None,
    seed: Seed = 1,
    transactions: Transactions = None,
    workers: Workers = None,
    on: OnCluster = None,
    nested: Nested = None,
    minimise: Minimise = None,
    keep_log_mib: KeepLog = None,
    ignore_flushes: Ignored = None,
    fault: FaultOption = None,
    script: ScriptOption = None,
    lost: Lost = None,
    promote: Promote = None,
    rejoin: RejoinBy = None,
    power: Power = False,
    gone: Gone = None,
    out: OutDirectory = None,
    scratch: ScratchDirectory = None,
    host: OtherHost = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Cut power (clusters: lose nodes) in many ways, recover PostgreSQL, check for lost acknowledged transactions."""
    from pgstrata.fleet.work import refuse_both
    from pgstrata.spec.crash import are_clusters
    from pgstrata.spec.expand import slug

    refuse_both(workers, on)
    asked_for, script = _with_load(_campaign(what, seed, scratch, host), script)
    given = {
        "states": states, "time": None if minutes is None else minutes * 60, "transactions": transactions,
        "workers": workers, "nested": nested, "minimise": minimise, "ignore_flushes": ignore_flushes, "fault": fault,
        "keep_log_mib": keep_log_mib, "script": script, "lost": lost, "promote": promote, "rejoin": rejoin,
        "power": power or None, "gone": gone or None,
    }  # fmt: skip
    request = _request(asked_for, {name: value for name, value in given.items() if value is not None})
    _refuse_together(request, on, cluster=are_clusters(asked_for))
    campaign = _on_recorded_disks(_tested(asked_for, request) if _is_file(what) else asked_for, request)
    _test(campaign, out or Path("out") / slug(campaign.name), request, on, json=json, quiet=quiet)


def _with_load(campaign: Campaign, script: str | None) -> tuple[Campaign, str | None]:
    """Return the campaign with the load of a script that a crash trial does not know by itself, and what is written."""
    from pgstrata.spec.crash_request import BESIDE, SHOWN
    from pgstrata.spec.quick import checked_campaign

    if script is None or script in SHOWN:
        return campaign, script
    workload = {"script": script, "scale": 1, "clients": 4, "warmup": 0}
    loaded = checked_campaign({"name": campaign.name, "stacks": campaign.stacks, "workload": workload})
    return campaign.model_copy(update={"workload": loaded.workload}), BESIDE


def _request(campaign: Campaign, given: dict[str, Any]) -> CrashRequest:
    """Return the request of a campaign's file, overridden by options; UsageError for an invalid value."""
    from pydantic import ValidationError

    from pgstrata.spec.crash_request import CrashRequest, as_option
    from pgstrata.spec.file.problems import explain

    said = {} if campaign.crash is None else campaign.crash.model_dump(exclude_unset=True)
    try:
        return CrashRequest.model_validate({**said, **given})
    except ValidationError as error:
        problem = explain(error, CrashRequest, given)[0]
        raise UsageError(f"{as_option(problem.path)}: {problem.text}", hint=problem.hint) from None


def _refuse_together(request: CrashRequest, on: str | None, *, cluster: bool) -> None:
    """Raise UsageError if options exclude each other."""
    from pgstrata.spec.crash_request import as_option, refuse_together
    from pgstrata.spec.model import Refused

    try:
        refuse_together((*request.given, *(("on",) if on else ())), as_option, cluster=cluster)
    except Refused as error:
        raise UsageError(str(error), hint=error.hint) from None


def _on_recorded_disks(campaign: Campaign, request: CrashRequest) -> Campaign:
    """Return the campaign of the crash trials; UsageError names the first stack that does not support them."""
    from pgstrata.crash.cluster_program import failures_problem
    from pgstrata.spec.crash import cluster_crash_campaign, cluster_power_campaign, crash_campaign, power_problem
    from pgstrata.spec.crash_request import BESIDE, fault_problem

    clusters = any(stack.topology is not None for stack in campaign.stacks)
    make = crash_campaign if not clusters else cluster_power_campaign if request.power else cluster_crash_campaign
    made = crash_campaign(campaign, loaded=True) if request.script == BESIDE and not clusters else make(campaign)
    for stack in made.stacks:
        if problem := fault_problem(stack, request):
            raise UsageError(f"--fault {request.fault}: {problem}", hint=f"pgstrata crash ext4 --fault {request.fault}")
        if problem := power_problem(stack, request.gone) if clusters and request.power else "":
            raise UsageError(
                f"power cannot be cut below {stack.name}: {problem}",
                hint="put a standby or the archive on a disk: 'cluster(3,ANY 1)/tmpfs@archive=ext4'",
            )
        if problem := failures_problem(stack, request) if clusters and not request.power else "":
            raise UsageError(
                f"there are no such crash trials for stack {stack.name}: {problem}",
                hint="lose fewer nodes, or give it standbys or an archive",
            )
    return made


def _test(campaign: Campaign, place: Path, request: CrashRequest, on: str | None, *, json: bool, quiet: bool) -> None:
    """Run the trials that the folder lacks, print all verdicts, and end with the exit code."""
    from pgstrata.record.recorder import CampaignDirectory

    with CampaignDirectory.create_or_open(place, campaign, "crash") as directory:
        left = _unfinished(campaign, directory, request)
        if left:
            _run(campaign, left, directory, request, on, quiet=quiet)
        else:
            print_notice(f"nothing is left to run in {place}: its verdicts are shown")
        data = directory.data()
    _show(campaign, data, json=json)
    end(_exit_code(data, place))


def _campaign(what: list[str], seed: int, scratch: Path | None, host: str | None) -> Campaign:
    from pgstrata.cli.overrides import changed
    from pgstrata.spec.crash import named_stacks
    from pgstrata.spec.file.campaign import load_campaign

    campaign = load_campaign(Path(what[0])) if _is_file(what) else named_stacks(what)
    campaign = changed(campaign, scratch=scratch, host=host).model_copy(update={"seed": seed})
    if campaign.hosts:
        raise UsageError("a crash trial runs on one host", hint="name it: --host HOST")
    return campaign


def _tested(campaign: Campaign, request: CrashRequest) -> Campaign:
    """Return a file's campaign without the stacks that do not support such crash trials; a notice names them."""
    from pgstrata.spec.crash import without_untested

    tested, left_out = without_untested(campaign, request)
    for name, problem in left_out.items():
        print_notice(f"{name} is not tested: {problem}")
    return tested


def _is_file(what: list[str]) -> bool:
    return len(what) == 1 and what[0].endswith(FILES)


def _unfinished(campaign: Campaign, directory: CampaignDirectory, request: CrashRequest) -> tuple[Trial, ...]:
    """Return the trials that the folder lacks; UsageError if it has trials of another request."""
    from pgstrata.crash.runner import crash_trials, same_request

    finished = directory.data().crashes
    if not all(same_request(crash.found, campaign, request) for crash in finished):
        raise UsageError(
            f"{directory.path} has crash trials with other options: two requests do not go into one folder",
            hint="repeat the options of then, or choose another folder with --out DIR",
        )
    done = {crash.id for crash in finished}
    return tuple(trial for trial in crash_trials(campaign) if trial.id not in done)


def _run(
    campaign: Campaign,
    trials: Sequence[Trial],
    directory: CampaignDirectory,
    request: CrashRequest,
    on: str | None,
    *,
    quiet: bool,
) -> None:
    """Run the trials; exit if a signal interrupts them: the same command resumes."""
    from pgstrata.cli.hosts import campaign_host
    from pgstrata.cli.progress import listening
    from pgstrata.crash.runner import open_crash_runner
    from pgstrata.trial.interruption import Interrupted, Interruption

    interruption = Interruption()
    try:
        with (
            interruption.installed(),
            listening(quiet=quiet) as tell,
            campaign_host(campaign, tell, interruption.waiting) as host,
            _remote_workers(on) as remote,
        ):
            runner = open_crash_runner(host, campaign, directory, request, tell, interruption, remote)
            for trial in trials:
                runner.run(trial, directory, tell)
    except Interrupted:
        print_notice(f"interrupted; the same command resumes it ({directory.path})")
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None


@contextmanager
def _remote_workers(on: str | None) -> Iterator[RemoteWorkers | None]:
    """Open the workers of a Dask cluster; None without --on."""
    if on is None:
        yield None
        return
    from pgstrata.crash.remote_workers import RemoteWorkers
    from pgstrata.fleet.work import opened_cluster_work

    with opened_cluster_work(on) as work:
        yield RemoteWorkers(work, work.width, work.backend.ask_each)


def _exit_code(data: CampaignData, place: Path) -> ExitCode:
    from pgstrata.analyze.crash import is_incomplete
    from pgstrata.trial.undo_errors import undo_errors

    incomplete = any(is_incomplete(crash) for crash in data.crashes) or undo_errors(place)
    return ExitCode.TRIALS_FAILED if incomplete else ExitCode.DONE


def _show(campaign: Campaign, data: CampaignData, *, json: bool) -> None:
    from pgstrata.analyze.crash import durability_found
    from pgstrata.report.sentences.crash import crash_lines, stories
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
