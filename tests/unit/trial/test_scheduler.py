"""The scheduler: replays what was finished, decides from the record alone, gives hopeless stacks up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pgstrata.analyze.campaign.metrics import Observer
from pgstrata.analyze.campaign.policy import AdaptivePolicy
from pgstrata.record import recorder
from pgstrata.record.decision import Decision, Observation
from pgstrata.record.reader import TrialData, read, read_trial
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import DecisionRecord, PlannedRecord, TrialVerdict
from pgstrata.record.source import Source
from pgstrata.spec import expand
from pgstrata.spec.campaign import Campaign, Slices, Trial
from pgstrata.spec.workload import Cell
from pgstrata.stack.preflight import Unsupported
from pgstrata.trial.events import Tell, silent
from pgstrata.trial.interruption import Interrupted, Interruption
from pgstrata.trial.opening import record_unsupported
from pgstrata.trial.scheduler import GIVE_UP_AFTER, Outcome, ended, run_campaign
from pgstrata.trial.scheduling import FixedBlocks, OneByOne, TrialRunner
from pgstrata_fake.runner import FakeRunner

pytestmark = pytest.mark.slow

STACKS = ("ext4", "tmpfs", "xfs")


def campaign(**runs: object) -> Campaign:
    return Campaign.model_validate(
        {
            "name": "small",
            "stacks": [{"name": name, "data": {"fs": {"kind": name}}} for name in STACKS],
            "workload": {"scale": 1, "clients": 2, "duration": 5},
            "runs": runs or {"blocks": 3},
        }
    )


@dataclass
class Observed:
    """The throughput of every valid trial so far."""

    observations: list[Observation] = field(default_factory=list)

    def __call__(self, trials: Sequence[TrialData]) -> Sequence[Observation]:
        valid = [t for t in trials if t.valid]
        self.observations += [
            Observation(t.trial.stack, t.trial.block, c.id, c.result.tps or 0.0) for t in valid for c in t.cells
        ]
        return self.observations


@dataclass
class Spy:
    """A policy that remembers what it was asked."""

    blocks: int
    asked: list[tuple[int, float, tuple[Observation, ...]]] = field(default_factory=list)

    def decide(self, observations: Sequence[Observation], blocks_done: int, elapsed_s: float) -> Decision:
        self.asked.append((blocks_done, elapsed_s, tuple(observations)))
        return FixedBlocks(STACKS, self.blocks).decide(observations, blocks_done, elapsed_s)


@dataclass
class Stopping(OneByOne):
    """Runs so many trials and is then interrupted in the middle of one."""

    inner: TrialRunner
    trials: int
    ran: list[str] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)

    def begin_block(self, block: int, directory: CampaignDirectory) -> None:
        self.begun.append(block)
        self.inner.begin_block(block, directory)

    def run(self, trial: Trial, directory: CampaignDirectory, tell: Tell) -> TrialVerdict:
        if len(self.ran) == self.trials:
            recorder = directory.start_trial(
                trial, PlannedRecord(trial=trial, stack=directory.campaign.stack(trial.stack), steps=())
            )
            directory.set_aside(recorder)
            raise Interrupted("SIGINT")
        self.ran.append(trial.id)
        return self.inner.run(trial, directory, tell)


@dataclass
class Failing(OneByOne):
    """Fails every trial of one stack."""

    inner: TrialRunner
    stack: str

    def begin_block(self, block: int, directory: CampaignDirectory) -> None:
        self.inner.begin_block(block, directory)

    def run(self, trial: Trial, directory: CampaignDirectory, tell: Tell) -> TrialVerdict:
        if trial.stack != self.stack:
            return self.inner.run(trial, directory, tell)
        planned = PlannedRecord(trial=trial, stack=directory.campaign.stack(trial.stack), steps=())
        verdict = TrialVerdict(trial_id=trial.id, status="failed", reason="it never works", duration_s=1.0)
        directory.start_trial(trial, planned).finish(verdict)
        return verdict


def run(out: Path, asked: Campaign, policy: object = None, runner: TrialRunner | None = None) -> Outcome:
    with CampaignDirectory.create_or_open(out, asked) as directory:
        return run_campaign(
            asked,
            directory,
            runner or FakeRunner(asked),
            policy or FixedBlocks(STACKS, asked.runs.blocks or 3),  # type: ignore[arg-type]
            silent,
            observe=Observed(),
            interruption=Interruption(),
        )


def test_runs_every_block_in_its_own_order(tmp_path: Path) -> None:
    outcome = run(tmp_path / "c", campaign())
    assert outcome.counts == {"ok": 9}
    data = read(tmp_path / "c")
    orders = [[t.trial.stack for t in data.trials if t.trial.block == block] for block in range(3)]
    assert all(sorted(order) == sorted(STACKS) for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    assert [d.stage for d in data.decisions] == ["screen", "screen", "screen", "done"]


@pytest.mark.parametrize("after", [0, 4, 9])
def test_resumed_at_any_trial_it_ends_the_same(tmp_path: Path, after: int) -> None:
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    run(whole, campaign())
    first = Stopping(FakeRunner(campaign()), after)
    outcome = run(resumed, campaign(), runner=first)
    assert outcome.interrupted is (after < 9)
    second = Stopping(FakeRunner(campaign()), 99)
    run(resumed, campaign(), runner=second)
    assert not set(first.ran) & set(second.ran), "a finished trial was run again"
    ours, theirs = read(resumed), read(whole)
    assert [t.trial for t in ours.trials] == [t.trial for t in theirs.trials]
    assert [c.result for c in ours.cells()] == [c.result for c in theirs.cells()]
    assert [d.continue_with for d in ours.decisions] == [d.continue_with for d in theirs.decisions]


@dataclass(frozen=True)
class Latency:
    """One block of a stage that brings cells and a duration of its own."""

    def decide(self, observations: Sequence[Observation], blocks_done: int, elapsed_s: float) -> Decision:
        if blocks_done:
            return Decision("done", ())
        cell = Cell(script="tpcb-like", scale=1, clients=2, rate_tps=70.0)
        return Decision("latency", STACKS, cells=dict.fromkeys(STACKS, (cell,)), duration_s=9.0)


def test_a_resumed_block_keeps_the_cells_and_the_duration_that_were_decided(tmp_path: Path) -> None:
    asked = campaign()
    assert run(tmp_path / "c", asked, Latency(), Stopping(FakeRunner(asked), 1)).interrupted
    run(tmp_path / "c", asked, Latency())
    trials = [t.trial for t in read(tmp_path / "c").trials]
    assert len(trials) == 3
    assert {c.rate_tps for t in trials for c in t.cells} == {70.0}
    assert {t.duration_s for t in trials} == {9.0}


def test_a_block_is_begun_again_only_while_trials_of_it_are_left(tmp_path: Path) -> None:
    asked = campaign()
    size = len(STACKS)
    first, second = (Stopping(FakeRunner(asked), trials) for trials in (2 * size + 1, 99))
    run(tmp_path / "c", asked, runner=first)
    run(tmp_path / "c", asked, runner=second)
    assert (first.begun, second.begun) == ([0, 1, 2], [2])


def test_the_policy_sees_the_same_after_a_resume(tmp_path: Path) -> None:
    whole, first, second = Spy(3), Spy(3), Spy(3)
    run(tmp_path / "whole", campaign(), policy=whole)
    run(tmp_path / "c", campaign(), policy=first, runner=Stopping(FakeRunner(campaign()), 5))
    run(tmp_path / "c", campaign(), policy=second)
    assert first.asked + second.asked == whole.asked
    assert [elapsed_s for _, elapsed_s, _ in whole.asked] == [0.0, 180.0, 360.0, 540.0]


def adaptive(out: Path, runner: TrialRunner | None = None) -> Outcome:
    asked = campaign(max_blocks=5)
    with CampaignDirectory.create_or_open(out, asked) as directory:
        return run_campaign(
            asked,
            directory,
            runner or FakeRunner(asked),
            AdaptivePolicy.of(asked),
            silent,
            observe=Observer(asked.goal.primary),
            interruption=Interruption(),
        )


def test_the_decisions_of_a_run_are_those_replayed_from_its_record(tmp_path: Path) -> None:
    adaptive(tmp_path / "c")
    data = read(tmp_path / "c")
    assert {"screen", "confirm", "done"} == {d.stage for d in data.decisions}
    for recorded in data.decisions:
        before = [t for t in data.trials if t.trial.block < recorded.after_block]
        spent_s = sum(t.verdict.duration_s for t in before)
        observations = Observer(data.campaign.goal.primary)(before)
        again = AdaptivePolicy.of(data.campaign).decide(observations, recorded.after_block, spent_s)
        replayed = recorded.model_copy(
            update={
                "stage": again.stage,
                "continue_with": again.run,
                "dropped": again.dropped,
                "reason": again.reason,
                "figures": again.figures,
            }
        )
        assert replayed.model_dump_json() == recorded.model_dump_json()


@pytest.fixture(scope="module")
def adaptive_decisions(tmp_path_factory: pytest.TempPathFactory) -> tuple[DecisionRecord, ...]:
    """Those of a campaign that was never interrupted."""
    whole = tmp_path_factory.mktemp("adaptive") / "whole"
    adaptive(whole)
    return read(whole).decisions


@pytest.mark.parametrize("after", [1, 7, 12])
def test_an_adaptive_campaign_decides_the_same_when_it_is_resumed(
    tmp_path: Path, adaptive_decisions: tuple[DecisionRecord, ...], after: int
) -> None:
    asked = campaign(max_blocks=5)
    assert adaptive(tmp_path / "c", Stopping(FakeRunner(asked), after)).interrupted
    adaptive(tmp_path / "c")
    assert read(tmp_path / "c").decisions == adaptive_decisions


def test_every_trial_is_read_once_while_it_runs_and_when_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def counting(source: Source, name: str) -> TrialData:
        names.append(name)
        return read_trial(source, name)

    monkeypatch.setattr(recorder, "read_trial", counting)
    run(tmp_path / "c", campaign(blocks=4), runner=Stopping(FakeRunner(campaign()), 8))
    assert len(names) == len(set(names)) == 8
    names.clear()
    run(tmp_path / "c", campaign(blocks=4))
    assert len(names) == len(set(names)) == 12


def test_a_finished_campaign_can_be_extended(tmp_path: Path) -> None:
    run(tmp_path / "c", campaign(blocks=2))
    runner = Stopping(FakeRunner(campaign(blocks=4)), 99)
    outcome = run(tmp_path / "c", campaign(blocks=4), runner=runner)
    assert outcome.counts == {"ok": 12}
    assert len(runner.ran) == 6


@pytest.mark.parametrize(("trials", "blocks", "over"), [(0, 2, False), (4, 2, False), (6, 2, True), (6, 3, False)])
def test_a_campaign_is_over_when_nothing_is_left_to_run(tmp_path: Path, trials: int, blocks: int, over: bool) -> None:
    run(tmp_path / "c", campaign(blocks=2), runner=Stopping(FakeRunner(campaign()), trials))
    asked = campaign(blocks=blocks)
    with CampaignDirectory.create_or_open(tmp_path / "c", asked) as directory:
        outcome = ended(asked, directory, FixedBlocks(STACKS, blocks), observe=Observed())
    assert (outcome == Outcome({"ok": 6}, f"blocks done: {blocks}, as planned")) is over
    assert (outcome is not None) is over


def test_blocks_in_an_order_of_an_earlier_version_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions are part of the names of trials; which stacks a block still needs does not depend on them."""
    with monkeypatch.context() as earlier:
        earlier.setattr(expand, "following", lambda last, order: sorted(order, reverse=True))
        run(tmp_path / "c", campaign(blocks=2), runner=Stopping(FakeRunner(campaign()), 5))
    before = {t.trial.id for t in read(tmp_path / "c").trials}
    assert run(tmp_path / "c", campaign(blocks=2)).counts == {"ok": 6}
    trials = read(tmp_path / "c").trials
    assert before < {t.trial.id for t in trials}
    assert sorted((t.trial.block, t.trial.stack) for t in trials) == [(b, s) for b in range(2) for s in STACKS]


def test_the_limit_of_a_trial_may_be_raised_as_its_hint_says(tmp_path: Path) -> None:
    run(tmp_path / "c", campaign(blocks=1))
    assert run(tmp_path / "c", campaign(blocks=1, max_trial_duration="9h")).counts == {"ok": 3}


def test_a_failing_trial_does_not_stop_the_campaign(tmp_path: Path) -> None:
    asked = campaign(blocks=6)
    outcome = run(tmp_path / "c", asked, runner=Failing(FakeRunner(asked), "xfs"))
    assert outcome.counts == {"ok": 12, "failed": GIVE_UP_AFTER}
    given_up = read(tmp_path / "c").decisions[GIVE_UP_AFTER]
    assert given_up.dropped == ("xfs",)
    assert "given up" in given_up.reason


def test_a_campaign_ends_when_every_stack_is_hopeless(tmp_path: Path) -> None:
    asked = campaign(blocks=9)
    runner = Failing(Failing(Failing(FakeRunner(asked), "xfs"), "ext4"), "tmpfs")
    outcome = run(tmp_path / "c", asked, runner=runner)
    assert outcome.counts == {"failed": 3 * GIVE_UP_AFTER}
    assert read(tmp_path / "c").decisions[-1].stage == "done"


@dataclass
class Pair:
    """Asks for pairs of two stacks."""

    def decide(self, observations: Sequence[Observation], blocks_done: int, elapsed_s: float) -> Decision:
        return Decision("confirm" if blocks_done < 20 else "done", ("ext4", "xfs") if blocks_done < 20 else ())


def test_one_stack_of_a_pair_does_not_run_on_alone(tmp_path: Path) -> None:
    asked = campaign()
    outcome = run(tmp_path / "c", asked, policy=Pair(), runner=Failing(FakeRunner(asked), "xfs"))
    assert outcome.counts == {"ok": GIVE_UP_AFTER, "failed": GIVE_UP_AFTER}
    assert "given up" in read(tmp_path / "c").decisions[-1].reason


def test_a_stack_that_ran_and_can_no_longer_be_built_does_not_keep_a_campaign_from_going_on(tmp_path: Path) -> None:
    asked = campaign()
    run(tmp_path / "c", asked, runner=Stopping(FakeRunner(asked), 3))
    with CampaignDirectory.create_or_open(tmp_path / "c", asked) as directory:
        record_unsupported(directory, [Unsupported("xfs", "mkfs.xfs is missing", ("install xfsprogs",))])
    assert [t.verdict.status for t in read(tmp_path / "c").trials] == ["ok", "ok", "ok"]


class TestFixedBlocks:
    def test_stops_when_another_block_would_exceed_the_budget(self) -> None:
        policy = FixedBlocks(STACKS, 10, budget_s=100.0)
        assert policy.decide((), 0, 0.0).stage == "screen"
        assert policy.decide((), 1, 45.0).stage == "screen"
        assert policy.decide((), 2, 90.0).stage == "done"


TWO = Slices(count=2)


@dataclass
class SideBySide(OneByOne):
    """Runs blocks in slices, and notes which trials stood at once; may die between two of their ends."""

    campaign: Campaign
    slices: Slices | None = TWO
    dies_after: int = 99
    stood: list[tuple[str, ...]] = field(default_factory=list)

    def begin_block(self, block: int, directory: CampaignDirectory) -> None:
        pass

    def run(self, trial: Trial, directory: CampaignDirectory, tell: Tell) -> TrialVerdict:
        if self.dies_after == 0:
            raise Interrupted("SIGKILL")
        self.dies_after -= 1
        return FakeRunner(self.campaign).run(trial, directory, tell)

    def run_together(
        self, trials: Sequence[Trial], directory: CampaignDirectory, tell: Tell
    ) -> tuple[TrialVerdict, ...]:
        self.stood.append(tuple(trial.stack for trial in trials))
        return super().run_together(trials, directory, tell)


def test_in_slices_the_stacks_of_a_block_stand_at_once_at_each_scale(tmp_path: Path) -> None:
    asked = campaign(blocks=2)
    asked = asked.model_copy(update={"workload": asked.workload.model_copy(update={"scale": (1, 2)})})
    runner = SideBySide(asked)
    run(tmp_path / "c", asked, runner=runner)
    assert [sorted(names) for names in runner.stood] == [sorted(STACKS)] * 4
    data = read(tmp_path / "c")
    assert {t.trial.slices for t in data.trials} == {TWO}
    assert [d.slices for d in data.decisions] == [TWO, TWO, None]


def test_a_campaign_goes_on_as_it_began(tmp_path: Path) -> None:
    asked = campaign(blocks=2)
    run(tmp_path / "c", asked, runner=SideBySide(asked, dies_after=3))
    whole = SideBySide(asked, slices=None)
    run(tmp_path / "c", asked, runner=whole)
    assert [len(names) for names in whole.stood] == [3], "the memory that is short today does not change the layout"
    assert [d.slices for d in read(tmp_path / "c").decisions][:2] == [TWO] * 2


@dataclass
class FailsEarly(SideBySide):
    """The first stack fails while the others stand, then the campaign is interrupted."""

    def run(self, trial: Trial, directory: CampaignDirectory, tell: Tell) -> TrialVerdict:
        if self.dies_after == 0:
            raise Interrupted("SIGINT")
        self.dies_after -= 1
        planned = PlannedRecord(trial=trial, stack=directory.campaign.stack(trial.stack), steps=())
        verdict = TrialVerdict(trial_id=trial.id, status="failed", reason="disk full")
        directory.start_trial(trial, planned).finish(verdict)
        return verdict


def test_a_stack_that_failed_early_cuts_no_block(tmp_path: Path) -> None:
    asked = campaign(blocks=1)
    assert run(tmp_path / "c", asked, runner=FailsEarly(asked, dies_after=1)).interrupted
    resumed = SideBySide(asked)
    assert run(tmp_path / "c", asked, runner=resumed).counts == {"failed": 1, "ok": 2}
    assert [len(names) for names in resumed.stood] == [2]


def test_a_stack_whose_neighbours_have_ended_does_not_run_alone(tmp_path: Path) -> None:
    asked = campaign(blocks=2)
    assert run(tmp_path / "c", asked, runner=SideBySide(asked, dies_after=2)).interrupted
    resumed = SideBySide(asked)
    assert run(tmp_path / "c", asked, runner=resumed).counts == {"ok": 5, "excluded": 1}
    assert [len(names) for names in resumed.stood] == [3]
    (cut,) = (t for t in read(tmp_path / "c").trials if t.verdict.status == "excluded")
    assert cut.trial.block == 0
    assert "beside which it stood" in cut.verdict.reason
