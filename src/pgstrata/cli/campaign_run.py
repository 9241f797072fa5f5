"""Common part of `run` and `quick`: from a campaign to its report, with every end that it may come to."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgstrata.analyze.campaign.gate import Condition, judge_conditions, parse_condition
from pgstrata.analyze.campaign.hosts_policy import HostsPolicy
from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.campaign.later_stages import StagedPolicy
from pgstrata.analyze.campaign.metrics import Observer
from pgstrata.analyze.campaign.policy import AdaptivePolicy
from pgstrata.analyze.crash import is_incomplete
from pgstrata.analyze.findings import Findings, PublishedFinding
from pgstrata.analyze.why.medium import unlike_notices
from pgstrata.cli.forecasting import (
    WarningPolicy,
    expected_trials,
    forecast,
    gate_warnings,
    power_cut_lines,
    power_cuts_on,
)
from pgstrata.cli.kept_result import KeptResult
from pgstrata.cli.output import end, print_json, print_notice, print_text
from pgstrata.cli.overrides import require_conditions, run_command
from pgstrata.cli.progress import listening
from pgstrata.errors import ExitCode, UsageError
from pgstrata.record.decision import Policy
from pgstrata.record.reader import CampaignData, CrashData
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import Origin
from pgstrata.report.render import render, report_value
from pgstrata.report.sentences.answer import answer, reason
from pgstrata.report.sentences.markup import plain_words
from pgstrata.report.sentences.statements import uncounted_words
from pgstrata.report.tables.agreement import add_published
from pgstrata.report.terminal import print_terminal
from pgstrata.spec.campaign import Campaign, is_cluster, measures_servers
from pgstrata.studies import Study, list_studies
from pgstrata.trial.events import Notice, Tell
from pgstrata.trial.fake import are_made_up, made_up_runner
from pgstrata.trial.interruption import Interrupted, Interruption
from pgstrata.trial.scheduler import Inline, Observe, Outcome, Runners, ended, recorded_stacks, run_campaign
from pgstrata.trial.scheduling import FixedBlocks
from pgstrata.trial.undo_errors import undo_errors


def with_published(findings: Findings, data: CampaignData) -> Findings:
    """The findings with the figures of the study that the campaign repeats; as they are for any other."""
    name = data.campaign.study or data.campaign.name.split()[0]
    for study in list_studies():
        if study.name == name:
            return add_published(findings, f"{study.source}: {study.statistic}", _figures(study, data))
    return findings


def _figures(study: Study, data: CampaignData) -> Iterator[PublishedFinding]:
    for cell in data.campaign.workload.cells:
        for stack in data.campaign.stacks:
            found = study.published(stack.name, cell)
            if found is not None:
                yield PublishedFinding(study=study.title, stack=stack.name, cell=cell.id, **dict(found))


@dataclass(frozen=True)
class Gate:
    """The conditions that end a verb with exit code 5."""

    conditions: tuple[Condition, ...] = ()
    undecided_fails: bool = False
    """True if an undecided condition counts like one that holds."""


def parse_gate(fail_on: Sequence[str] | None, fail_undecided: bool = False) -> Gate:
    """The gate of the options; UsageError for a condition outside the grammar, or for none to be undecided."""
    if fail_undecided and not fail_on:
        raise UsageError("--fail-undecided is about conditions, and there is none", hint="add --fail-on CONDITION")
    return Gate(tuple(parse_condition(text) for text in fail_on or ()), fail_undecided)


@dataclass(frozen=True)
class Shown:
    """Form in which a verb wants its result."""

    json: bool = False
    quiet: bool = False
    gate: Gate = Gate()


def run_to_report(
    campaign: Campaign, out: Path, origin: Origin, shown: Shown, *, source_text: str | None = None
) -> None:
    """Runs or resumes a campaign, writes its report, prints the verdict table, ends with the exit code."""
    require_conditions(campaign, shown.gate.conditions)  # not only when hours have passed
    kept = None if shown.json or shown.gate.conditions else KeptResult(out, campaign)
    if kept is not None and kept.again():
        print_notice(f"nothing is left to run in {out}, and nothing has changed since its result")
        return
    with CampaignDirectory.create_or_open(out, campaign, origin, source_text=source_text) as directory:
        recorded = directory.data()
        stacks = recorded_stacks(campaign, recorded.trials)
        policy = choose_policy(campaign, stacks, recorded.crashes)
        outcome = ended(campaign, directory, policy, observe=_observer(campaign))
        if outcome is not None:
            print_notice(f"nothing is left to run in {out}: the report is made from its record")
        else:
            if not shown.quiet and not campaign.hosts:
                lines = forecast(campaign, expected_trials(campaign), recorded)
                told = [f"forecast: {line}" for line in lines]
                told += [f"power cuts: {line}" for line in _power_cuts_foreseen(campaign)]
                print_notice("\n".join(told))
            conditions = () if campaign.hosts else shown.gate.conditions
            for warning in gate_warnings(campaign, conditions, recorded):
                print_notice(f"warning: --fail-on: {warning}")
            del recorded  # of a fleet it is large, and the run needs none of it
            outcome = _run(campaign, directory, shown)
        interrupted = outcome.interrupted or _cut_power(campaign, directory, shown)
        left = undo_errors(out)
        data = directory.data()
    for line in left:
        print_notice(f"could not be undone: {line}; run `pgstrata clean`")
    if not outcome.counts:
        print_notice(f"no trial is finished yet in {out}")
        end(ExitCode.INTERRUPTED if outcome.interrupted else ExitCode.TRIALS_FAILED if left else ExitCode.DONE)
        return
    with nullcontext() if kept is None else kept.printing():
        code = show_report(data, out, shown, note=outcome.reason)
    if interrupted:
        print_notice(f"interrupted; the same command resumes where it ended ({out})")
        code = ExitCode.INTERRUPTED
    elif code is ExitCode.DONE and (outcome.failed or left or any(is_incomplete(crash) for crash in data.crashes)):
        code = ExitCode.TRIALS_FAILED
    if kept is not None and code is ExitCode.DONE:
        kept.keep()
    end(code)


def _run(campaign: Campaign, directory: CampaignDirectory, shown: Shown) -> Outcome:
    try:
        return _run_blocks(campaign, directory, shown)
    except Interrupted as signal:  # before the first block, or while the host was left
        counts = Counter(str(t.verdict.status) for t in directory.finished())
        return Outcome(counts, str(signal), interrupted=True)


def _run_blocks(campaign: Campaign, directory: CampaignDirectory, shown: Shown) -> Outcome:
    interruption = Interruption()
    with (
        interruption.installed(),
        listening(quiet=shown.quiet, budget_s=campaign.runs.budget) as tell,
        _opened(campaign, directory, tell, interruption) as (runners, stacks, executor),
    ):
        policy = choose_policy(campaign, stacks, directory.crash_trials())
        for line in unlike_notices(directory.media()):
            tell(Notice(line))
        return run_campaign(
            campaign,
            directory,
            runners,
            policy if campaign.hosts else WarningPolicy(policy, campaign, directory.path, tell),
            tell,
            observe=_observer(campaign),
            interruption=interruption,
            executor=executor,
        )


@contextmanager
def _opened(
    campaign: Campaign, directory: CampaignDirectory, tell: Tell, interruption: Interruption
) -> Iterator[tuple[Runners, tuple[str, ...], Executor]]:
    """The runner of each host, the stacks that they can build, and who runs them."""
    if is_cluster(campaign):
        from pgstrata.fleet.opening import opened_cluster

        with opened_cluster(campaign, directory, tell, interruption, fake=are_made_up()) as (work, hosts):
            yield hosts, tuple(s.name for s in campaign.stacks), work
        return
    with _runners(campaign, directory, tell, interruption) as (runners, stacks), _executor(campaign) as executor:
        yield runners, stacks, executor


@contextmanager
def _executor(campaign: Campaign) -> Iterator[Executor]:
    """A thread for each of several hosts; one host has this one, where signals arrive."""
    if not campaign.hosts:
        yield Inline()
        return
    with ThreadPoolExecutor(len(campaign.hosts), "pgstrata host") as executor:
        yield executor


def _power_cuts_foreseen(campaign: Campaign) -> list[str]:
    """Facts known of the crash trials before the runs; the host is looked at where there are any."""
    if are_made_up() or campaign.crash is None:
        return list(power_cut_lines(campaign, {}))
    from pgstrata.cli.hosts import inspection_host

    with inspection_host(campaign) as host:
        return list(power_cuts_on(host, campaign))


def _cut_power(campaign: Campaign, directory: CampaignDirectory, shown: Shown) -> bool:
    """Run the missing crash trials; fake campaigns have none. Return True if they were interrupted."""
    if are_made_up() or campaign.crash is None:
        return False
    from pgstrata.cli.hosts import campaign_host
    from pgstrata.crash.runner import cut_power, missing_trials

    if not missing_trials(campaign, directory):
        return False
    interruption = Interruption()
    try:
        with (
            interruption.installed(),
            listening(quiet=shown.quiet) as tell,
            campaign_host(campaign, tell, interruption.waiting) as host,
        ):
            for _ in cut_power(host, campaign, directory, tell, interruption):
                pass
    except Interrupted:
        return True
    return False


def _observer(campaign: Campaign) -> Observe:
    return Observer(campaign.goal.primary, campaign.latency.percentile if campaign.latency else "p99")


@contextmanager
def _runners(
    campaign: Campaign, directory: CampaignDirectory, tell: Tell, interruption: Interruption
) -> Iterator[tuple[Runners, tuple[str, ...]]]:
    """The runner of each host, and the stacks that they can build."""
    if are_made_up():
        runners = {name: made_up_runner(campaign) for name in campaign.hosts or ("",)}
        yield runners, tuple(s.name for s in campaign.stacks)
        return
    from pgstrata.cli.hosts import campaign_host, campaign_hosts, connected_far
    from pgstrata.trial.opening import performance_runner, performance_runners
    from pgstrata.trial.servers import server_runner

    if measures_servers(campaign):
        with (
            campaign_host(campaign, tell, interruption.waiting) as host,
            server_runner(host, campaign, directory, tell, interruption) as (server, stacks),
        ):
            yield {"": server}, stacks
        return

    if campaign.hosts:
        with (
            campaign_hosts(campaign, tell, interruption.waiting) as hosts,
            performance_runners(hosts, campaign, directory, tell, interruption) as opened,
        ):
            yield opened
        return
    with (
        campaign_host(campaign, tell, interruption.waiting) as host,
        connected_far(campaign) as far,
        performance_runner(host, campaign, directory, tell, interruption, far) as (runner, stacks),
    ):
        yield {"": runner}, stacks


def choose_policy(campaign: Campaign, stacks: tuple[str, ...], crashes: Sequence[CrashData] = ()) -> Policy:
    """A fixed design where the campaign asks for a number of blocks, else the adaptive one; then the later stages."""
    if campaign.hosts:
        return HostsPolicy.of(campaign, stacks, crashes)
    comparison: Policy = AdaptivePolicy.of(campaign, stacks, crashes)
    if campaign.runs.blocks is not None:
        comparison = FixedBlocks(stacks, campaign.runs.blocks, campaign.runs.budget)
    if campaign.latency is None and campaign.soak is None:
        return comparison
    return StagedPolicy(comparison, campaign)


def show_report(data: CampaignData, out: Path, shown: Shown, *, note: str = "") -> ExitCode:
    """Writes the page, prints the table (or JSON), judges the conditions."""
    findings = with_published(judge(data), data)
    page = render(data, findings, ["html"], out).paths[0]
    if shown.json:
        value: dict[str, Any] = report_value(findings)
        print_json(value)
    else:
        print_terminal(data, findings, sys.stdout)
        if note:
            print_text(f"ended: {note}")
        print_answer(data, findings, out)
        print_text(f"report: {page}")
    return judge_gate(shown.gate, findings)


def print_answer(data: CampaignData, findings: Findings, directory: Path) -> None:
    """The answer in one sentence, with the command that would settle what is open, and why it is."""
    text = answer(data, findings, lambda minutes, blocks: run_command(directory, minutes, blocks))
    if text:
        print_text(f"answer: {plain_words(text)}")
        why = reason(data, findings)
        if why:
            print_text(f"why: {plain_words(why)}")


def judge_gate(gate: Gate, findings: Findings) -> ExitCode:
    """CONDITION_HELD when one holds over its whole interval; an undecided one is a warning, or fails a strict gate.
    So is one of stacks of which a notable share of transactions failed, because figures are of committed ones."""
    code = ExitCode.DONE
    for judged in judge_conditions(gate.conditions, findings):
        uncounted = plain_words(uncounted_words(judged.uncounted))
        sentence = f"--fail-on: {judged.sentence}{f'.{uncounted}' if uncounted else ''}"
        if judged.outcome == "holds":
            code = ExitCode.CONDITION_HELD
            print_notice(sentence)
        elif judged.outcome == "undecided" or uncounted:
            print_notice(f"warning: {sentence}")
        if judged.outcome == "undecided" and gate.undecided_fails:
            code = ExitCode.CONDITION_HELD
    return code
