"""Runs a campaign: blocks in random order, until the policy is satisfied; resumable at any moment.

The record is the state. Finished trials are read back and replayed through the policy, so that the same command resumes
exactly where an earlier one ended, for whatever reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from itertools import groupby
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from pgstrata.host.protocol import HostLost
from pgstrata.record.decision import COMPARISON, Decision, Observation, Policy, Stage, round_trials
from pgstrata.record.reader import TrialData, place
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import DecisionRecord, TrialVerdict
from pgstrata.spec.campaign import Campaign, Slices, Trial
from pgstrata.trial.events import BlockBegun, Notice, Tell, TrialEnded, TrialSkipped
from pgstrata.trial.interruption import Interrupted, Interruption
from pgstrata.trial.outcome import exclude_cut
from pgstrata.trial.scheduling import LocalHostRunner, ScheduledHost, TrialRunner

P = ParamSpec("P")
T = TypeVar("T")

GIVE_UP_AFTER = 3
"""A stack is not tried again once its first trials, this many, have all failed."""

Observe = Callable[[Sequence[TrialData]], Sequence[Observation]]
"""Takes up the trials of one more block; returns the primary metric of every cell of the trials that count, of all
blocks so far. `analyze` knows how; the command line hands in a new one each time that a campaign is gone through."""


Runners = Mapping[str, TrialRunner | ScheduledHost]
"""By the name of the host, which is empty where there is one alone."""


class Inline(Executor):
    """Runs submitted work at once in this thread: for a single host, where signals arrive."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@dataclass(frozen=True)
class Outcome:
    """End of a campaign, for now."""

    counts: Mapping[str, int]
    """Trials by status: ok, failed, excluded, unsupported."""
    reason: str
    interrupted: bool = False

    @property
    def failed(self) -> int:
        return self.counts.get("failed", 0)


@dataclass
class _State:
    """Finished trials, and their consequences.

    Blocks are taken up one after another, in the same way whether they were read back or have just been run, so that a
    resumed campaign decides the same.
    """

    directory: CampaignDirectory
    observe: Observe
    decided: dict[int, DecisionRecord] = field(default_factory=dict)
    """By block; the end of a campaign is always decided again."""
    last: DecisionRecord | None = None
    observations: Sequence[Observation] = ()
    elapsed_s: float = 0.0
    """Machine time of the rounds that were taken up: by the record, not by the clock."""
    _blocks: dict[int, list[TrialData]] = field(default_factory=dict)
    """Blocks that were not taken up yet."""
    _counts: Counter[str] = field(default_factory=Counter)
    """Finished trials by status."""
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
        self._counts[trial.verdict.status] += 1
        self._blocks.setdefault(trial.trial.block, []).append(trial)

    @property
    def has_trials(self) -> bool:
        return bool(self._counts)

    def is_finished(self, trial: Trial, *, well: bool = False) -> bool:
        """True if the trial is finished, or finished `well`, in a block that was not taken up yet."""
        found = (done for done in self._blocks.get(trial.block, ()) if done.verdict.status == "ok" or not well)
        return any(_same_place(trial, done.trial) for done in found)

    def remember(self, record: DecisionRecord) -> None:
        self.last = record
        if record.stage != "done":
            self.decided[record.after_block] = record

    def take_up(self, blocks: Sequence[int]) -> None:
        """Takes up the finished trials of the blocks of a round, which ran in parallel: the policy sees them from now
        on.
        """
        found = [sorted(self._blocks.pop(block, ()), key=place) for block in blocks]
        trials = [trial for block in found for trial in block]
        self.observations = self.observe(trials)
        self.elapsed_s += max(sum(t.verdict.duration_s for t in block) for block in found)
        self._failed.update(t.trial.stack for t in trials if t.verdict.status == "failed")
        self._fine.update(t.trial.stack for t in trials if t.valid)

    def hopeless(self) -> tuple[str, ...]:
        """Stacks that failed every one of at least GIVE_UP_AFTER trials."""
        return tuple(s for s, n in self._failed.items() if n >= GIVE_UP_AFTER and s not in self._fine)

    def outcome(self, reason: str, *, interrupted: bool = False) -> Outcome:
        return Outcome(self._counts, reason, interrupted)


def _same_place(a: Trial, b: Trial) -> bool:
    """True where two trials of a block are the same one; an earlier version may have run it in another position."""
    return (a.stack, a.scale, a.stage) == (b.stack, b.scale, b.stage)


def run_campaign(
    campaign: Campaign,
    directory: CampaignDirectory,
    runners: TrialRunner | Runners,
    policy: Policy,
    tell: Tell,
    *,
    observe: Observe,
    interruption: Interruption,
    executor: Executor | None = None,
) -> Outcome:
    """Runs or resumes a campaign until the policy is done or a signal came.

    A round is a block of each host, all at once by the `executor`; a host runs one trial at a time. Every error of a
    single trial is recorded by the runner. What it raises ends the campaign, which stays resumable; a host that was
    lost for good is left out until the campaign is resumed. A campaign that has begun in slices or in whole runs goes
    on so.
    """
    state = _State.of(directory, observe)
    directory.forget()  # the state has them until their round is taken up
    given = runners if isinstance(runners, Mapping) else {"": runners}
    hosts = {
        name: runner if isinstance(runner, ScheduledHost) else LocalHostRunner(runner, directory, tell)
        for name, runner in given.items()
    }
    slices = next((runner.slices for runner in given.values() if not isinstance(runner, ScheduledHost)), None)
    rounds = _Rounds(campaign, hosts, executor or Inline(), state, tell, interruption)
    block = turn = 0
    try:
        while True:
            interruption.check()
            record = _decide(state, policy, block, turn, tuple(name for name in rounds.hosts if name), slices)
            if record.stage == "done":
                return state.outcome(record.reason)
            blocks = round_trials(campaign, record, turn)
            rounds.run(record, blocks)
            if not rounds.hosts:
                return state.outcome("every host was lost")
            state.take_up(tuple(blocks))
            block, turn = block + len(blocks), turn + 1
    except Interrupted as signal:
        return state.outcome(str(signal), interrupted=True)


def ended(campaign: Campaign, directory: CampaignDirectory, policy: Policy, *, observe: Observe) -> Outcome | None:
    """The outcome of a campaign with nothing left to run, from its record alone; None while anything is left."""
    state = _State.of(directory, observe)
    block = turn = 0
    while state.has_trials:
        known = state.decided.get(block)
        if known is None:
            decision = _decide_anew(state, policy, block if not campaign.hosts else turn)
            if decision.stage != "done":
                return None
            _record(state, block, decision, (), None)
            return state.outcome(decision.reason)
        blocks = round_trials(campaign, known, turn)
        if not all(state.is_finished(trial) for trials in blocks.values() for trial in trials):
            return None
        state.take_up(tuple(blocks))
        block, turn = block + len(blocks), turn + 1
    return None


def recorded_stacks(campaign: Campaign, trials: Iterable[TrialData]) -> tuple[str, ...]:
    """The stacks that the host of the recorded trials could build."""
    statuses: dict[str, set[str]] = {}
    for trial in trials:
        statuses.setdefault(trial.trial.stack, set()).add(trial.verdict.status)
    return tuple(s.name for s in campaign.stacks if statuses.get(s.name) != {"unsupported"})


def _decide(
    state: _State, policy: Policy, block: int, turn: int, hosts: tuple[str, ...], slices: Slices | None
) -> DecisionRecord:
    """The earlier decision about this block, or a new one, recorded before it is followed. With several hosts, policies
    count the blocks of each.
    """
    known = state.decided.get(block)
    if known is not None:
        return known
    decision = _decide_anew(state, policy, turn if hosts else block)
    return _record(state, block, decision, hosts if decision.stage != "done" else (), slices)


def _decide_anew(state: _State, policy: Policy, blocks_done: int) -> Decision:
    decision = policy.decide(state.observations, blocks_done, state.elapsed_s)
    decision = _without_hopeless(decision, state.hopeless())
    return decision if decision.run and decision.stage != "done" else replace(decision, stage="done", run=())


def _record(
    state: _State, block: int, decision: Decision, hosts: tuple[str, ...], slices: Slices | None
) -> DecisionRecord:
    begun = state.decided.get(0)
    record = DecisionRecord(
        after_block=block,
        stage=decision.stage,
        continue_with=decision.run,
        hosts=hosts,
        dropped=decision.dropped,
        reason=decision.reason,
        figures=decision.figures,
        cells=None if decision.cells is None else dict(decision.cells),
        duration_s=decision.duration_s,
        slices=(slices if begun is None else begun.slices) if decision.stage in COMPARISON else None,
        budget_notice=decision.budget_notice,
    )
    # The end of a finished campaign is decided again, and told once; JSON knows no nan, which is not equal to itself.
    if state.last is None or state.last.model_dump_json() != record.model_dump_json():
        state.directory.record_decision(record)
        state.remember(record)
    return record


def _without_hopeless(decision: Decision, hopeless: tuple[str, ...]) -> Decision:
    given_up = tuple(s for s in decision.run if s in hopeless)
    if not given_up:
        return decision
    going_on = tuple(s for s in decision.run if s not in hopeless)
    reason = f"given up after {GIVE_UP_AFTER} failed trials: {', '.join(given_up)}; {decision.reason}".rstrip("; ")
    pair = decision.stage == "confirm"  # one stack of a pair alone proves nothing
    stage: Stage = decision.stage if len(going_on) >= (2 if pair else 1) else "done"
    return replace(decision, stage=stage, run=going_on, dropped=(*decision.dropped, *given_up), reason=reason)


def _turns(trials: Sequence[Trial]) -> list[tuple[Trial, ...]]:
    """The trials that stand at once, in their order: of slices those of one scale, else each one alone."""
    together = groupby(trials, key=lambda trial: (trial.scale, "" if trial.slices else trial.id))
    return [tuple(group) for _, group in together]


@dataclass
class _UnderWay:
    """Trials that were submitted, by those that stand at once. Whatever has ended waits in a queue: to look at all of
    them for each one that ends would take a time that grows with the square of the hosts."""

    trials: dict[Future[Any], tuple[Trial, ...]] = field(default_factory=dict)
    done: SimpleQueue[Future[Any]] = field(default_factory=SimpleQueue)

    def add(self, future: Future[Any], trials: tuple[Trial, ...]) -> None:
        self.trials[future] = trials
        future.add_done_callback(self.done.put)


@dataclass
class _Rounds:
    """Runs the blocks of a round side by side, one trial of each host at a time."""

    campaign: Campaign
    hosts: dict[str, ScheduledHost]
    """Hosts that are there: one that is lost for good is taken out."""
    executor: Executor
    state: _State
    tell: Tell
    interruption: Interruption

    def run(self, record: DecisionRecord, blocks: Mapping[int, Sequence[Trial]]) -> None:
        """Returns when every trial of the round is recorded, those of lost hosts apart."""
        count = sum(len(trials) for trials in blocks.values())
        spent_s = self.state.elapsed_s
        self.tell(
            BlockBegun(
                self.campaign.name, record.after_block, count, record.stage, record.reason, spent_s, hosts=len(blocks)
            )
        )
        left = {}
        for block, trials in blocks.items():
            for trial in trials:
                if self.state.is_finished(trial):
                    self.tell(TrialSkipped(self.campaign.name, trial))
            unfinished = [t for t in trials if not self.state.is_finished(t) and t.host in self.hosts]
            left[block] = _turns([t for t in unfinished if not self._is_cut(t, trials)])
        under_way = _UnderWay()
        try:
            for block in left:
                self._begin(under_way, left, block, first=True)
            while under_way.trials:
                with self.interruption.waiting():
                    future = under_way.done.get()
                taken = under_way.trials.pop(future)
                if self._take(future, taken):
                    self._begin(under_way, left, taken[0].block, first=False)
        except BaseException:
            self.interruption.await_ends(under_way.trials)
            raise

    def _is_cut(self, trial: Trial, block: Sequence[Trial]) -> bool:
        """True if trials that stood beside this one are finished: it cannot stand beside them any more. It is recorded
        as excluded."""
        beside = [t for t in block if t.scale == trial.scale and self.state.is_finished(t, well=True)]
        if trial.slices is None or not beside:
            return False
        self._add(trial, exclude_cut(self.state.directory, trial, beside))
        return True

    def _begin(self, under_way: _UnderWay, left: dict[int, list[tuple[Trial, ...]]], block: int, first: bool) -> None:
        """The next trials of a block; where there is one host, they have ended when this returns."""
        if not left[block]:
            return
        self.interruption.check()
        trials = left[block].pop(0)
        under_way.add(self.hosts[trials[0].host].submit(self.executor, trials, begins_block=first), trials)

    def _take(self, future: Future[Any], trials: tuple[Trial, ...]) -> bool:
        """Takes trials up; False where their host is lost, and others are left."""
        host = trials[0].host
        try:
            verdicts = self.hosts[host].take(future.result(), trials)
        except HostLost as error:
            if not host:
                raise
            self.hosts.pop(host).give_up(trials)
            self.tell(Notice(f"{host} is left out until the campaign is resumed: {error.message}"))
            return False
        for trial, verdict in zip(trials, verdicts, strict=True):
            self._add(trial, verdict)
        return True

    def _add(self, trial: Trial, verdict: TrialVerdict) -> None:
        self.state.add(self.state.directory.finished_trial(trial.id))
        self.tell(TrialEnded(self.campaign.name, trial, verdict))
