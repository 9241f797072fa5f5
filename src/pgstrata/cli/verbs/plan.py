"""`pgstrata plan`: everything that a campaign would do; touches nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgstrata.cli.output import (
    Blocks,
    CampaignFile,
    FailOn,
    JsonFlag,
    Minutes,
    OtherHost,
    OutDirectory,
    ScratchDirectory,
    end,
    option,
    print_result,
)
from pgstrata.errors import ExitCode
from pgstrata.spec.printable import summarise_names

if TYPE_CHECKING:
    from pgstrata.analyze.campaign.gate import Condition
    from pgstrata.record.schema import PlannedRecord
    from pgstrata.spec.campaign import Campaign, Slices, Trial
    from pgstrata.spec.stack import Stack
    from pgstrata.stack.plan import StackPlan
    from pgstrata.trial.survey.estimate import Expected
    from pgstrata.trial.survey.host_survey import Site


def plan(
    file: CampaignFile,
    out: OutDirectory = None,
    blocks: Blocks = None,
    minutes: Minutes = None,
    scratch: ScratchDirectory = None,
    host: OtherHost = None,
    commands: Annotated[bool, option("--commands", "Show every step and command in order.")] = False,
    fail_on: FailOn = None,
    json: JsonFlag = False,
) -> None:
    """Show trials, bytes, time, host-wide changes, what the budget can prove, and on request every command.

    --fail-on warns about conditions that `run` could hardly decide; `plan` judges none.
    """
    from pgstrata.cli.campaign_run import parse_gate
    from pgstrata.cli.overrides import asked_campaign

    asked = asked_campaign(file, minutes, blocks=blocks, scratch=scratch, host=host)
    conditions = parse_gate(fail_on).conditions
    show_plan(asked.campaign, out or asked.out, conditions, commands=commands, json=json)


def show_plan(
    campaign: Campaign, out: Path, conditions: Sequence[Condition] = (), *, commands: bool = False, json: bool = False
) -> None:
    """Print the actions of a run of the campaign into that directory; touch nothing. UsageError for a condition on a
    stack or metric that the campaign does not have."""
    from pgstrata.cli.hosts import connected_far, inspection_host
    from pgstrata.cli.overrides import require_conditions
    from pgstrata.spec.campaign import measures_servers
    from pgstrata.spec.hosts.lab import LAB
    from pgstrata.trial.servers import servers_site
    from pgstrata.trial.survey.remote_nodes import add_remote_nodes
    from pgstrata.trial.survey.survey import REMOTE_SCRATCH, survey

    require_conditions(campaign, conditions)
    if campaign.hosts:
        _show_plans(campaign, out, commands=commands, json=json)
        return
    if campaign.host == LAB and campaign.scratch is None:
        campaign = campaign.model_copy(update={"scratch": REMOTE_SCRATCH})
    with inspection_host(campaign) as found, connected_far(campaign) as far:
        if measures_servers(campaign):
            site = servers_site(found, campaign, out)
        else:
            site = add_remote_nodes(survey(found, campaign, out), far, out)
        value = _describe(campaign, site, conditions)
    print_result(value, lambda: _render(value, commands=commands), json=json)
    _end([value])


def _end(values: Sequence[dict[str, Any]]) -> None:
    """End with the exit code of the run if the run would be refused."""
    end(ExitCode.REFUSED if any(value["refused"] is not None for value in values) else ExitCode.DONE)


def _show_plans(campaign: Campaign, out: Path, *, commands: bool, json: bool) -> None:
    """Print the plan of each host: `blocks` and time are those of one host, and all run in parallel. For a cluster,
    whose machines are known only during a run, print the plan of this machine."""
    from pgstrata.cli.hosts import named_host
    from pgstrata.spec.campaign import is_cluster
    from pgstrata.trial.survey.survey import survey

    values = []
    forecast = [_LIKE_THIS_MACHINE, _OVER_HOSTS] if is_cluster(campaign) else [_OVER_HOSTS]
    for name in ("local",) if is_cluster(campaign) else campaign.hosts:
        own = campaign.model_copy(update={"host": name})
        with named_host(name) as found:
            values.append({**_describe(own, survey(found, own, out)), "forecast": forecast})
    print_result(
        {"hosts": values}, lambda: "\n\n".join(_render(value, commands=commands) for value in values), json=json
    )
    _end(values)


_LIKE_THIS_MACHINE = "the machines of the Dask cluster are known when it runs: this is the plan of this one"
_OVER_HOSTS = (
    "the verdict is about the kind of machine: its intervals have as many degrees of freedom as hosts, less one"
)


def _describe(campaign: Campaign, site: Site, conditions: Sequence[Condition] = ()) -> dict[str, Any]:
    from pgstrata.cli.forecasting import forecast, gate_warnings, power_cuts_on
    from pgstrata.spec.campaign import measures_servers
    from pgstrata.spec.expand import block_trials, planned_slices
    from pgstrata.spec.hosts.lab import LAB
    from pgstrata.trial.survey.estimate import NOTHING, estimate_stages, estimate_trial
    from pgstrata.trial.survey.remote_nodes import far_notices

    servers = measures_servers(campaign)
    preflight, lacking, no_slices = _preflight(site)
    built = _without(campaign, {*lacking, *site.unserved})
    names = tuple(s.name for s in campaign.stacks if s.name not in site.unserved)  # others have no program to show
    planned_blocks = campaign.runs.blocks or campaign.runs.max_blocks
    slices = planned_slices(campaign) if not no_slices else None
    trials = [t for block in range(planned_blocks) for t in block_trials(campaign, block, names, slices=slices)]
    estimates = {t.id: estimate_trial(campaign, t) for t in trials}
    counted = [t for t in trials if t.stack in {s.name for s in built.stacks}]
    stages = estimate_stages(built)
    whole = sum((*(estimates[t.id] for t in counted), *(stage.estimate for stage in stages)), NOTHING)
    return {
        "campaign": campaign.name,
        "host": campaign.host,
        "scratch": site.scratch,
        "medium": "" if campaign.host == LAB else site.medium,
        "fixed": campaign.runs.blocks is not None,
        "goes_on": _goes_on(built),
        "blocks": planned_blocks,
        "budget_s": campaign.runs.budget,
        "at_most": {"written_bytes": whole.written_bytes, "duration_s": whole.duration_s},
        "built": [s.name for s in built.stacks],
        "first_block_s": sum(estimates[t.id].duration_s for t in counted if t.block == 0),
        "stages": [{"stage": s.stage, "trials": s.trials, "duration_s": s.estimate.duration_s} for s in stages],
        "host_wide": [] if servers else _host_wide(campaign, site, [t for t in trials if t.block == 0]),
        "left_out": {name: dict(given.left_out) for name, given in site.given_conf.items() if given.left_out},
        **preflight,
        "notes": [
            *_lab_notes(campaign, site),
            *_layout_notes(campaign, slices, no_slices),
            *_media_notes(campaign),
            *far_notices(site),
            *sorted({n for t in trials if t.block == 0 and not servers for n in _plan_of(site, t).notes}),
        ],
        "power_cuts": list(power_cuts_on(site.host, campaign)),
        "forecast": list(forecast(built, [estimates[t.id] for t in counted])),
        "gate": list(gate_warnings(built, conditions)),
        "trials": list(_describe_trials(trials, estimates, (_server_programs if servers else _programs)(site, trials))),
    }


def _goes_on(campaign: Campaign) -> str:
    """Number of blocks that an adaptive campaign may have besides those that are planned, in words."""
    from pgstrata.analyze.campaign.policy import MAX_PAIRS
    from pgstrata.cli.forecasting import screens

    if campaign.runs.blocks is not None:
        return ""
    most = f"up to {MAX_PAIRS}" if campaign.runs.budget is None else "as far as the budget goes"
    if screens(campaign):
        return f" at most, then pairs of the leaders {most}"
    return f", fewer where every pair has its verdict, more {most}"


def _without(campaign: Campaign, lacking: Set[str]) -> Campaign:
    """The campaign of the stacks that can be built; the whole one where none can, which is refused."""
    from pgstrata.analyze.stats.comparison import goal_within

    stacks = tuple(s for s in campaign.stacks if s.name not in lacking)
    if not stacks or len(stacks) == len(campaign.stacks):
        return campaign
    soak = campaign.soak
    if soak is not None:
        soak = soak.model_copy(update={"stacks": tuple(name for name in soak.stacks if name not in lacking)})
    goal = goal_within(campaign.goal, [s.name for s in stacks])
    return campaign.model_copy(update={"stacks": stacks, "goal": goal, "soak": soak})


def _layout_notes(campaign: Campaign, slices: Slices | None, no_slices: str) -> Iterator[str]:
    """Yield the layout of the runs of a block, and the reason for whole runs."""
    from pgstrata.spec.expand import WHOLE_RUN_EVERY, why_whole

    if slices is not None:
        yield (
            f"slices: the stacks of a block stand side by side and take {slices.count} turns of {slices.length:g} s "
            f"each; in every {WHOLE_RUN_EVERY}th block, the first included, a whole run of each follows"
        )
    elif len(campaign.stacks) > 1:
        yield f"whole runs, one after the other: {no_slices or why_whole(campaign)}"


def _preflight(site: Site) -> tuple[dict[str, Any], frozenset[str], str]:
    """Return the refusal of `run`, the stacks that it would leave out, in words and by name, and why this host cannot
    have slices; not known of a machine that is not there yet."""
    from pgstrata.errors import PreflightError
    from pgstrata.spec.campaign import measures_servers
    from pgstrata.spec.hosts.lab import LAB
    from pgstrata.trial.servers import require_servers
    from pgstrata.trial.survey.preflight import asking_user, check_servers, render_unsupported, require_some
    from pgstrata.trial.survey.remote_nodes import run_preflights
    from pgstrata.trial.survey.side_by_side import choose_slices

    if site.campaign.host == LAB:
        return {"refused": None, "unsupported": []}, frozenset(), ""
    try:
        if measures_servers(site.campaign):
            require_servers(site)
            return {"refused": None, "unsupported": []}, frozenset(), ""
        found = run_preflights(site)
        lacking = {u.stack for u in found.unsupported}
        others = [s.name for s in site.campaign.stacks if s.name not in lacking]
        unsupported = (*found.unsupported, *check_servers(site, others, asking_user(site)))
        require_some(site, unsupported)
        built = [s.name for s in site.campaign.stacks if s.name not in {u.stack for u in unsupported}]
        slices = choose_slices(site, built, found)
    except PreflightError as error:
        return {"refused": str(error), "unsupported": []}, frozenset(), ""
    told = [render_unsupported(u) for u in unsupported]
    return {"refused": None, "unsupported": told}, frozenset(u.stack for u in unsupported), slices.refused


def _lab_notes(campaign: Campaign, site: Site) -> list[str]:
    from pgstrata.spec.hosts.lab import LAB

    if campaign.host != LAB:
        return []
    return [
        "planned without its lab machine: programs are those of this host; what can be built is found out by run",
        *(f"trials of {name} are not shown: {lacking.reason}" for name, lacking in site.unserved.items()),
    ]


def _media_notes(campaign: Campaign) -> list[str]:
    from pgstrata.spec.hosts.lab import LAB
    from pgstrata.spec.layers.media import UNTIMED
    from pgstrata.trial.survey.media_range import media_of

    models = dict.fromkeys(device.model for device in media_of(campaign) if device.model != UNTIMED)
    if not models:
        return []
    where = "" if campaign.host == "local" else f" --host {shlex.quote(campaign.host)}"
    by = "run" if campaign.host == LAB else f"pgstrata doctor{where} --media"
    return [
        f"whether the host can give modelled media ({', '.join(models)}) is not checked by `plan`; {by} measures it"
    ]


def _plan_of(site: Site, trial: Trial) -> Any:
    from pgstrata.stack.plan import plan_stack

    return plan_stack(site.campaign.stack(trial.stack), site.context(trial))


def _programs(site: Site, trials: list[Trial]) -> Iterator[PlannedRecord]:
    """Yield the program of every trial, as it will be when those before it have ended well."""
    from pgstrata.trial.program import make_program
    from pgstrata.trial.steps.load import Present
    from pgstrata.trial.survey.survey import planned_site

    site = planned_site(site)
    golden: frozenset[str] = frozenset()
    kept: dict[tuple[str, int], StackPlan] = {}
    for trial in trials:
        program = make_program(site, trial, Present(golden, kept.get((trial.stack, trial.scale))))
        golden |= program.keeps
        if trial.load == "keep":
            kept[trial.stack, trial.scale] = program.stack_plan
        yield program.planned


def _server_programs(site: Site, trials: list[Trial]) -> Iterator[PlannedRecord]:
    """Yield the program of every trial on a running server; its run gives the database another random name."""
    from pgstrata.trial.servers import planned_record, planned_trial, server_steps

    for setup in (planned_trial(site, trial) for trial in trials):
        yield planned_record(setup, server_steps(setup))


def _describe_trials(
    trials: list[Trial], estimates: Mapping[str, Expected], programs: Iterator[PlannedRecord]
) -> Iterator[dict[str, Any]]:
    for trial, planned in zip(trials, programs, strict=True):
        estimate = estimates[trial.id]
        yield {
            "id": trial.id,
            "stack": trial.stack,
            "block": trial.block,
            "scale": trial.scale,
            "load": trial.load,
            "written_bytes": estimate.written_bytes,
            "duration_s": estimate.duration_s,
            "steps": [step.model_dump() for step in planned.steps],
        }


def _host_wide(campaign: Campaign, site: Site, trials: list[Trial]) -> list[str]:
    """Changes that others on the host notice; `trials` has every stack whose server is here."""
    from pgstrata.postgres.user import plan_user

    lines = []
    user = plan_user(site.host)
    if user is not None:
        lines.append(f"make the OS user that servers run as: {user.text}")
    if not site.caches_kept:
        lines.append("before every measured run: sync, and drop the page cache of the whole host (vm.drop_caches)")
    else:
        lines.append(f"caches are not dropped, so figures are those of warm caches: {site.caches_kept}")
    first = {t.stack: t for t in reversed(trials)}
    changes: dict[str, list[str]] = {}
    for stack in (stack for stack in campaign.stacks if stack.name in first):
        settings = _host_wide_settings(stack)
        if settings:
            changes.setdefault(f"{', '.join(settings)} (put back afterwards)", []).append(stack.name)
        steps = [s.name for s in _plan_of(site, first[stack.name]).steps if s.host_wide and s.commands]
        if steps:
            changes.setdefault(", ".join(steps), []).append(stack.name)
    return [*lines, *(f"during trials of {summarise_names(stacks)}: {change}" for change, stacks in changes.items())]


def _host_wide_settings(stack: Stack) -> list[str]:
    settings = [f"{key} = {value}" for key, value in stack.kernel.sysctl.items()]
    if stack.kernel.transparent_hugepage is not None:
        settings.append(f"transparent_hugepage = {stack.kernel.transparent_hugepage}")
    layers = [v.fs.host_settings for v in stack.volumes.values()]
    return [*settings, *(f"{key} = {value}" for changed in layers for key, value in changed.items())]


def _render(value: dict[str, Any], *, commands: bool = False) -> str:
    from pgstrata.report.sentences.figures import render_count
    from pgstrata.spec.units import render_duration, render_size

    most = value["at_most"]
    counted = [trial for trial in value["trials"] if trial["stack"] in value["built"]]
    lines = [
        f"{value['campaign']} on {value['host']}, {value['medium'] or 'scratch'}: {value['scratch']}",
        f"{render_count(len(counted), 'trial')} in {render_count(value['blocks'], 'block')}{value['goes_on']}",
        f"time: about {render_duration(most['duration_s'])}, of it {render_duration(value['first_block_s'])} for the "
        f"first block{_render_budget(value['budget_s'], most['duration_s'])}",
        *_render_stages(value["stages"]),
        f"bytes written: about {render_size(most['written_bytes'])} (load, copies, and runs at an assumed 1000 "
        "transactions a second of 16 KiB)",
        "",
        "Changes that others on the host notice:",
        *(f"  {line}" for line in value["host_wide"]),
        *_render_left_out(value["left_out"]),
        *(f"note: {note}" for note in value["notes"]),
        *([f"`run` would refuse this: {value['refused']}"] if value["refused"] else []),
        *value["unsupported"],
        *(f"power cuts: {line}" for line in value["power_cuts"]),
        "",
        "What this can prove:",
        *(f"  {line}" for line in value["forecast"]),
        *(f"  warning: --fail-on: {line}" for line in value["gate"]),
        "",
        *(_render_programs(value["trials"]) if commands else _render_kinds(counted)),
    ]
    return "\n".join(lines)


def _render_budget(budget_s: float | None, most_s: float) -> str:
    from pgstrata.spec.units import render_duration

    if budget_s is None:
        return ""
    return f"; budget {render_duration(budget_s)}" + (", which ends it earlier" if budget_s < most_s else "")


def _render_stages(stages: list[dict[str, Any]]) -> Iterator[str]:
    from pgstrata.report.sentences.figures import render_count
    from pgstrata.spec.units import render_duration

    for stage in stages:
        trials = render_count(stage["trials"], "trial")
        yield f"after the comparison, {stage['stage']}: at most {trials}, about {render_duration(stage['duration_s'])}"


def _render_left_out(left_out: dict[str, dict[str, str]]) -> Iterator[str]:
    for stack, settings in left_out.items():
        yield f"Left out of the postgresql.conf of {stack}:"
        yield from (f"  {name}: {why}" for name, why in settings.items())


def _render_kinds(trials: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each scale and way of loading, so that many stacks fit a screen, too."""
    from pgstrata.report.sentences.figures import render_count
    from pgstrata.spec.units import render_duration

    kinds: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for trial in trials:
        kinds.setdefault((trial["scale"], trial["load"]), []).append(trial)
    yield "Trials (`pgstrata plan FILE --commands` shows every step and command of each kind in order):"
    for (scale, load), alike in kinds.items():
        stacks = summarise_names(list(dict.fromkeys(trial["stack"] for trial in alike)))
        steps = _range([str(n) for n in sorted(len(trial["steps"]) for trial in alike)])
        times = _range([render_duration(s) for s in sorted(trial["duration_s"] for trial in alike)])
        count = render_count(len(alike), "trial")
        yield f"  scale {scale}, load {load}: {count} of {steps} steps, about {times} each ({stacks})"


def _range(texts: Sequence[str]) -> str:
    """The first and the last of what is sorted, once where they read alike."""
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def _render_programs(trials: list[dict[str, Any]]) -> Iterator[str]:
    """Every step of the first trial of a kind; others differ in their names alone."""
    from pgstrata.spec.units import render_duration

    seen: dict[tuple[str, int, tuple[str, ...]], str] = {}
    for trial in trials:
        head = f"{trial['id']}: {trial['stack']}, {trial['load']}, about {render_duration(trial['duration_s'])}"
        kind = (trial["stack"], trial["scale"], tuple(step["name"] for step in trial["steps"]))
        if kind in seen:
            yield f"{head}: the same commands as {seen[kind]}"
            continue
        seen[kind] = trial["id"]
        yield head
        for step in trial["steps"]:
            yield f"  {step['name']}{' (host-wide)' if step['host_wide'] else ''}"
            yield from (f"    # {told}" for told in step["tells"])
            hosts = step["hosts"] or ("",) * len(step["commands"])
            for host, command in zip(hosts, map(_on_one_line, step["commands"]), strict=True):
                yield f"    [{host}] {command}" if host else f"    {command}"


def _on_one_line(command: str) -> str:
    """The command as bash reads it too, where an argument has lines."""
    if "\n" not in command:
        return command
    return " ".join(_quoted(argument) for argument in shlex.split(command))


def _quoted(argument: str) -> str:
    if "\n" not in argument:
        return shlex.quote(argument)
    escaped = argument.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"$'{escaped}'"


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata plan campaigns/demo.yaml")(plan)
