"""`pgstrata tune`: which settings matter here, and by how much."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from pgstrata.cli.output import OutDirectory, QuietFlag, ScratchDirectory, argument, option, parse_margin, print_text
from pgstrata.cli.verbs.quick import Clients, Crash, Margin, OnHost, PlanOnly, Scale, Script, Seed, quick_workload
from pgstrata.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgstrata.cli.campaign_run import Shown
    from pgstrata.record.reader import CampaignData
    from pgstrata.spec.stack import Stack

EXAMPLE = "Example: pgstrata tune ext4 --over postgres-io --minutes 45"
Over = Annotated[
    str,
    option(
        "--over",
        "Factors with two levels: a YAML file, or postgres-io, ext4, xfs, btrfs, zfs, linux-vm.",
        metavar="FILE|PRESET",
        show_default=False,
    ),
]
Budget = Annotated[float, option("--minutes", "Time budget, without power cuts.", metavar="N", min=1)]


def tune(
    stack: Annotated[str, argument("STACK", "Short notation, e.g. xfs:noatime.", show_default=False)],
    over: Over,
    minutes: Budget = 45.0,
    scale: Scale = None,
    clients: Clients = None,
    script: Script = None,
    out: OutDirectory = None,
    scratch: ScratchDirectory = None,
    seed: Seed = 1,
    margin: Margin = "2%",
    host: OnHost = "local",
    crash: Crash = True,
    plan: PlanOnly = False,
    quiet: QuietFlag = False,
) -> None:
    """Measure which of many settings matter on a stack and by how much, choose, and confirm with fresh runs.

    The screening's campaign is in OUT/screening, the confirmation in another folder of OUT. The same command resumes
    both; with more --minutes it gives both more runs.
    """
    from pgstrata.cli.campaign_run import Shown, run_to_report
    from pgstrata.cli.overrides import begun_record
    from pgstrata.cli.verbs.plan import show_plan
    from pgstrata.spec.expand import slug
    from pgstrata.spec.tune import tune_campaign

    directory = out or Path("out") / slug(f"tune {stack}")
    begun = begun_record(directory / "screening")
    campaign = tune_campaign(
        stack,
        over,
        minutes=minutes,
        scale=scale,
        clients=clients,
        scratch=str(scratch.resolve()) if scratch else None,
        seed=seed,
        host=host,
        margin=parse_margin(margin),
        workload=quick_workload(script or (), [], None, None),
        begun=begun.campaign if begun is not None else None,
    )
    if plan:
        show_plan(campaign, directory / "screening")
        return
    shown = Shown(quiet=quiet)
    try:
        run_to_report(campaign, directory / "screening", "run", shown)
    except typer.Exit as ended:
        if ended.exit_code not in (ExitCode.DONE, ExitCode.TRIALS_FAILED):
            raise
    _confirm(directory, minutes, shown, crash=crash)


def _confirm(directory: Path, minutes: float, shown: Shown, *, crash: bool) -> None:
    """Run the chosen combination and the start anew, and print what to paste."""
    from pgstrata.analyze.campaign.judge import judge
    from pgstrata.analyze.campaign.tuning import chosen_levels
    from pgstrata.analyze.stats.detectable_difference import smallest_shown
    from pgstrata.cli.campaign_run import run_to_report
    from pgstrata.cli.overrides import begun_record
    from pgstrata.record.reader import read
    from pgstrata.report.sentences.markup import plain_words
    from pgstrata.report.sentences.tuning import confirmed_words, paste_lines, tuning_answer
    from pgstrata.spec.tune import SCREENING_SHARE, confirmation_name, confirming_campaign

    data = read(directory / "screening")
    found = judge(data)
    levels = chosen_levels(found)
    if data.campaign.tuning is None or not any(levels):
        print_text("nothing to confirm: no change is chosen")
        return
    folder = directory / confirmation_name(data.campaign.tuning, levels)
    begun = begun_record(folder)
    campaign = confirming_campaign(
        data.campaign,
        levels,
        (1 - SCREENING_SHARE) * minutes,
        smallest_shown,
        crash=crash,
        begun=begun.campaign if begun is not None else None,
    )
    print_text("\nthe start and the chosen combination, fresh runs:")
    try:
        run_to_report(campaign, folder, "run", shown)
    finally:
        if found.tuning is not None:
            told = tuning_answer(found.tuning, data.campaign.goal.margin, confirmed_words(judge(read(folder))))
            print_text(f"\nanswer: {plain_words(told)}")
            print_text(f"recovery after a power cut, median of the states: {', '.join(_recovery_times(read(folder)))}")
        paste = [*paste_lines(*campaign.stacks), *_filesystem_commands(*campaign.stacks)]
        print_text("\n".join(["to paste:", *(f"  {line}" for line in paste)]))


def _recovery_times(data: CampaignData) -> Iterator[str]:
    """Yield how long the server of each stack that lost power took to recover."""
    from pgstrata.crash.named_state import recorded_states

    for crash in data.crashes:
        parts = [state.parts_s.get("recover") for state in recorded_states(data.source, crash).values()]
        if known := [seconds for seconds in parts if seconds is not None]:
            yield f"{crash.trial.stack} {median(known):.2g} s"


def _filesystem_commands(start: Stack, tuned: Stack) -> Iterator[str]:
    """Yield the commands that make and mount the filesystems of the tuned stack and not those of the start."""
    from pgstrata.stack.plan import PlanContext, plan_stack

    context = PlanContext("tuned", "/SCRATCH", 2**32, mount_root="/MOUNT")
    had, has = (
        [line for step in plan_stack(stack, context).steps for line in step.shown_commands] for stack in (start, tuned)
    )
    made = (line for line in has if line not in had)
    yield from (line.replace("/MOUNT/pgstrata-tuned", "MOUNT").replace("pgstrata-tuned", "POOL") for line in made)


def register(app: typer.Typer) -> None:
    app.command(epilog=EXAMPLE)(tune)
