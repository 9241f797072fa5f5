"""Runs a campaign: blocks in random order, until the policy has seen enough; resumable at any moment.

The record is the state. Whatever was finished is read back and replayed through the policy, so that the same command
goes on exactly where an earlier one ended, for whatever reason it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pgstrata.record.decision import Decision, Observation, Policy, Stage
from pgstrata.record.reader import TrialData
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import DecisionRecord, TrialVerdict
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.expand import block_trials
from pgstrata.trial.interruption import Interrupted, Interruption
from pgstrata.trial.progress import Progress

GIVE_UP_AFTER = 3
"""A stack whose first trials all fail, this many of them, is not tried again."""

Observe = Callable[[Sequence[TrialData]], Iterable[Observation]]
"""The primary metric of every cell of the trials that count; `analyze` knows how, and the command line hands it in."""


class TrialRunner(Protocol):
    """Runs one trial to its verdict; everything that it built is gone when it returns or raises."""

    def run(self, trial: Trial, directory: CampaignDirectory, progress: Progress) -> TrialVerdict:
        """Records the trial. Raises `Interrupted` or an error that no further trial could survive."""
        ...


@dataclass(frozen=True)
class Outcome:
    """How a campaign ended, for now."""

    counts: Mapping[str, int]
    """Trials by status: ok, failed, excluded, unsupported."""
    reason: str
    interrupted: bool = False

    @property
    def failed(self) -> int:
        return self.counts.get("failed", 0)


@dataclass
class _State:
    """What is finished, and what follows from it."""

    finished: dict[str, TrialData] = field(default_factory=dict)

    def observations(self, observe: Observe, before_block: int) -> list[Observation]:
        """Of the blocks before that one: what the policy saw, or sees, when it decides about that block."""
        before = [t for t in self.finished.values() if t.trial.block < before_block]
        return list(observe(sorted(before, key=_place)))

    def elapsed_s(self, before_block: int) -> float:
        """Machine time by the record, not by the clock, so that a resumed campaign decides the same."""
        return sum(t.verdict.duration_s for t in self.finished.values() if t.trial.block < before_block)

    def hopeless(self, before_block: int) -> tuple[str, ...]:
        """Stacks that failed every one of at least GIVE_UP_AFTER trials."""
        failed: dict[str, int] = {}
        fine: set[str] = set()
        for trial in self.finished.values():
            if trial.trial.block < before_block and trial.verdict.status == "failed":
                failed[trial.trial.stack] = failed.get(trial.trial.stack, 0) + 1
            elif trial.valid:
                fine.add(trial.trial.stack)
        return tuple(s for s, n in failed.items() if n >= GIVE_UP_AFTER and s not in fine)


def _place(trial: TrialData) -> tuple[int, int]:
    return trial.trial.block, trial.trial.position


def run_campaign(
    campaign: Campaign,
    directory: CampaignDirectory,
    runner: TrialRunner,
    policy: Policy,
    progress: Progress,
    *,
    observe: Observe,
    interruption: Interruption,
) -> Outcome:
    """Runs or resumes a campaign until the policy is done or a signal came.

    Every error of a single trial is recorded by the runner. What it raises ends the campaign, which stays
    resumable.
    """
    state = _State({t.id: t for t in directory.finished()})
    block = 0
    try:
        while True:
            interruption.check()
            decision = _decide(directory, state, policy, observe, block)
            if decision.stage == "done":
                return _outcome(state, decision.reason)
            _run_block(campaign, directory, runner, progress, state, decision, block, interruption)
            block += 1
    except Interrupted as signal:
        # The block's own trials are read back at its end, which this one did not reach.
        state.finished = {t.id: t for t in directory.finished()}
        return _outcome(state, str(signal), interrupted=True)


def ended(campaign: Campaign, directory: CampaignDirectory, policy: Policy, *, observe: Observe) -> Outcome | None:
    """How a campaign with nothing left to run ended, by its record alone; None while anything is left."""
    state = _State({t.id: t for t in directory.finished()})
    block = 0
    while state.finished:
        decision = _known(directory, block)
        if decision is None:
            decision = _decide_anew(state, policy, observe, block)
            if decision.stage != "done":
                return None
            _record(directory, block, decision)
            return _outcome(state, decision.reason)
        if any(trial.id not in state.finished for trial in _trials(campaign, block, decision)):
            return None
        block += 1
    return None


def recorded_stacks(campaign: Campaign, trials: Iterable[TrialData]) -> tuple[str, ...]:
    """The stacks that the host of the recorded trials could build."""
    statuses: dict[str, set[str]] = {}
    for trial in trials:
        statuses.setdefault(trial.trial.stack, set()).add(trial.verdict.status)
    return tuple(s.name for s in campaign.stacks if statuses.get(s.name) != {"unsupported"})


def _decide(directory: CampaignDirectory, state: _State, policy: Policy, observe: Observe, block: int) -> Decision:
    """What was decided about this block before, or a new decision, recorded before it is followed."""
    decision = _known(directory, block)
    if decision is None:
        decision = _decide_anew(state, policy, observe, block)
        _record(directory, block, decision)
    return decision


def _known(directory: CampaignDirectory, block: int) -> Decision | None:
    """What was decided about this block before; the end of a campaign is always decided again."""
    for record in reversed(directory.decisions()):
        if record.after_block == block and record.stage != "done":
            return _decision(record)
    return None


def _decide_anew(state: _State, policy: Policy, observe: Observe, block: int) -> Decision:
    decision = policy.decide(state.observations(observe, block), block, state.elapsed_s(block))
    decision = _without_hopeless(decision, state.hopeless(block))
    return decision if decision.run and decision.stage != "done" else replace(decision, stage="done", run=())


def _record(directory: CampaignDirectory, block: int, decision: Decision) -> None:
    known = directory.decisions()
    record = DecisionRecord(
        after_block=block,
        stage=decision.stage,
        continue_with=decision.run,
        dropped=decision.dropped,
        reason=decision.reason,
        figures=decision.figures,
        cells=None if decision.cells is None else dict(decision.cells),
        duration_s=decision.duration_s,
    )
    if not known or known[-1] != record:  # the end of a finished campaign is decided again, and told once
        directory.record_decision(record)


def _decision(record: DecisionRecord) -> Decision:
    """What was decided, from its record: also the cells and the length of a stage that brings its own."""
    return Decision(
        record.stage,
        record.continue_with,
        record.dropped,
        record.reason,
        record.figures,
        cells=record.cells,
        duration_s=record.duration_s,
    )


def _without_hopeless(decision: Decision, hopeless: tuple[str, ...]) -> Decision:
    given_up = tuple(s for s in decision.run if s in hopeless)
    if not given_up:
        return decision
    going_on = tuple(s for s in decision.run if s not in hopeless)
    reason = f"given up after {GIVE_UP_AFTER} failed trials: {', '.join(given_up)}; {decision.reason}".rstrip("; ")
    pair = decision.stage == "confirm"  # one stack of a pair alone proves nothing
    stage: Stage = decision.stage if len(going_on) >= (2 if pair else 1) else "done"
    return replace(decision, stage=stage, run=going_on, dropped=(*decision.dropped, *given_up), reason=reason)


def _run_block(
    campaign: Campaign,
    directory: CampaignDirectory,
    runner: TrialRunner,
    progress: Progress,
    state: _State,
    decision: Decision,
    block: int,
    interruption: Interruption,
) -> None:
    trials = _trials(campaign, block, decision)
    progress.block(block, len(trials), decision.stage, decision.reason)
    for trial in trials:
        if trial.id in state.finished:
            progress.skipped(trial)
            continue
        interruption.check()
        progress.trial(trial)
        verdict = runner.run(trial, directory, progress)
        progress.finished(trial, verdict)
    state.finished = {t.id: t for t in directory.finished()}


def _trials(campaign: Campaign, block: int, decision: Decision) -> tuple[Trial, ...]:
    assert decision.stage != "done"
    return block_trials(
        campaign, block, decision.run, decision.stage, cells=decision.cells, duration_s=decision.duration_s
    )


def _outcome(state: _State, reason: str, *, interrupted: bool = False) -> Outcome:
    counts: dict[str, int] = {}
    for trial in state.finished.values():
        counts[trial.verdict.status] = counts.get(trial.verdict.status, 0) + 1
    return Outcome(counts, reason, interrupted)
