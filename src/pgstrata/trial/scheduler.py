"""Runs a campaign: blocks in random order, until the policy has seen enough; resumable at any moment.

The record is the state. Whatever was finished is read back and replayed through the policy, so that the same command
goes on exactly where an earlier one ended, for whatever reason it ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pgstrata.record.decision import Decision, Observation, Policy, Stage
from pgstrata.record.reader import TrialData, place
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import DecisionRecord, TrialVerdict
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.expand import block_trials
from pgstrata.trial.events import BlockBegun, Tell, TrialBegun, TrialEnded, TrialSkipped
from pgstrata.trial.interruption import Interrupted, Interruption

GIVE_UP_AFTER = 3
"""A stack is not tried again once its first trials, this many, have all failed."""

Observe = Callable[[Sequence[TrialData]], Sequence[Observation]]
"""Takes up the trials of one more block; returns the primary metric of every cell of the trials that count, of all
blocks so far. `analyze` knows how; the command line hands in a new one each time that a campaign is gone through."""


class TrialRunner(Protocol):
    """Runs one trial to its verdict; everything that it built is gone when it returns or raises."""

    def begin_block(self, block: int, directory: CampaignDirectory) -> None:
        """Records what is looked at before the trials of a block. Raises as `run` does."""
        ...

    def run(self, trial: Trial, directory: CampaignDirectory, tell: Tell) -> TrialVerdict:
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
    """What is finished, and what follows from it.

    Blocks are taken up one after another, in the same way whether they were read back or have just been run, so that
    a resumed campaign decides the same.
    """

    directory: CampaignDirectory
    observe: Observe
    finished: set[str] = field(default_factory=set)
    decided: dict[int, DecisionRecord] = field(default_factory=dict)
    """By block; the end of a campaign is always decided again."""
    last: DecisionRecord | None = None
    observations: Sequence[Observation] = ()
    elapsed_s: float = 0.0
    """Machine time of the blocks that were taken up: by the record, not by the clock."""
    _blocks: dict[int, list[TrialData]] = field(default_factory=dict)
    """Blocks that were not taken up yet."""
    _failed: Counter[str] = field(default_factory=Counter)
    _fine: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, directory: CampaignDirectory, observe: Observe) -> _State:
        state = cls(directory, observe)
        for trial in directory.finished():
            state.add(trial)
        for record in directory.decisions():
            state.remember(record)
        return state

    def add(self, trial: TrialData) -> None:
        self.finished.add(trial.id)
        self._blocks.setdefault(trial.trial.block, []).append(trial)

    def remember(self, record: DecisionRecord) -> None:
        self.last = record
        if record.stage != "done":
            self.decided[record.after_block] = record

    def take_up(self, block: int) -> None:
        """Whatever is finished of that block: from now on the policy sees it."""
        trials = sorted(self._blocks.pop(block, ()), key=place)
        self.observations = self.observe(trials)
        self.elapsed_s += sum(t.verdict.duration_s for t in trials)
        self._failed.update(t.trial.stack for t in trials if t.verdict.status == "failed")
        self._fine.update(t.trial.stack for t in trials if t.valid)

    def hopeless(self) -> tuple[str, ...]:
        """Stacks that failed every one of at least GIVE_UP_AFTER trials."""
        return tuple(s for s, n in self._failed.items() if n >= GIVE_UP_AFTER and s not in self._fine)

    def outcome(self, reason: str, *, interrupted: bool = False) -> Outcome:
        counts = Counter(str(t.verdict.status) for t in self.directory.finished())
        return Outcome(counts, reason, interrupted)


def run_campaign(
    campaign: Campaign,
    directory: CampaignDirectory,
    runner: TrialRunner,
    policy: Policy,
    tell: Tell,
    *,
    observe: Observe,
    interruption: Interruption,
) -> Outcome:
    """Runs or resumes a campaign until the policy is done or a signal came.

    Every error of a single trial is recorded by the runner. What it raises ends the campaign, which stays
    resumable.
    """
    state = _State.of(directory, observe)
    block = 0
    try:
        while True:
            interruption.check()
            decision = _decide(state, policy, block)
            if decision.stage == "done":
                return state.outcome(decision.reason)
            _run_block(campaign, runner, tell, state, decision, block, interruption)
            state.take_up(block)
            block += 1
    except Interrupted as signal:
        return state.outcome(str(signal), interrupted=True)


def ended(campaign: Campaign, directory: CampaignDirectory, policy: Policy, *, observe: Observe) -> Outcome | None:
    """How a campaign with nothing left to run ended, by its record alone; None while anything is left."""
    state = _State.of(directory, observe)
    block = 0
    while state.finished:
        known = state.decided.get(block)
        if known is None:
            decision = _decide_anew(state, policy, block)
            if decision.stage != "done":
                return None
            _record(state, block, decision)
            return state.outcome(decision.reason)
        if any(trial.id not in state.finished for trial in _trials(campaign, block, _decision(known))):
            return None
        state.take_up(block)
        block += 1
    return None


def recorded_stacks(campaign: Campaign, trials: Iterable[TrialData]) -> tuple[str, ...]:
    """The stacks that the host of the recorded trials could build."""
    statuses: dict[str, set[str]] = {}
    for trial in trials:
        statuses.setdefault(trial.trial.stack, set()).add(trial.verdict.status)
    return tuple(s.name for s in campaign.stacks if statuses.get(s.name) != {"unsupported"})


def _decide(state: _State, policy: Policy, block: int) -> Decision:
    """What was decided about this block before, or a new decision, recorded before it is followed."""
    known = state.decided.get(block)
    if known is not None:
        return _decision(known)
    decision = _decide_anew(state, policy, block)
    _record(state, block, decision)
    return decision


def _decide_anew(state: _State, policy: Policy, block: int) -> Decision:
    decision = policy.decide(state.observations, block, state.elapsed_s)
    decision = _without_hopeless(decision, state.hopeless())
    return decision if decision.run and decision.stage != "done" else replace(decision, stage="done", run=())


def _record(state: _State, block: int, decision: Decision) -> None:
    record = DecisionRecord(
        after_block=block,
        stage=decision.stage,
        continue_with=decision.run,
        dropped=decision.dropped,
        reason=decision.reason,
        figures=decision.figures,
        cells=None if decision.cells is None else dict(decision.cells),
        duration_s=decision.duration_s,
        budget_notice=decision.budget_notice,
    )
    # The end of a finished campaign is decided again, and told once; JSON knows no nan, which is not equal to itself.
    if state.last is None or state.last.model_dump_json() != record.model_dump_json():
        state.directory.record_decision(record)
        state.remember(record)


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
        budget_notice=record.budget_notice,
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
    runner: TrialRunner,
    tell: Tell,
    state: _State,
    decision: Decision,
    block: int,
    interruption: Interruption,
) -> None:
    trials = _trials(campaign, block, decision)
    tell(BlockBegun(campaign.name, block, len(trials), decision.stage, decision.reason))
    if any(trial.id not in state.finished for trial in trials):
        runner.begin_block(block, state.directory)
    for trial in trials:
        if trial.id in state.finished:
            tell(TrialSkipped(campaign.name, trial))
            continue
        interruption.check()
        tell(TrialBegun(campaign.name, trial))
        verdict = runner.run(trial, state.directory, tell)
        state.add(state.directory.finished_trial(trial.id))
        tell(TrialEnded(campaign.name, trial, verdict))


def _trials(campaign: Campaign, block: int, decision: Decision) -> tuple[Trial, ...]:
    assert decision.stage != "done"
    return block_trials(
        campaign, block, decision.run, decision.stage, cells=decision.cells, duration_s=decision.duration_s
    )
