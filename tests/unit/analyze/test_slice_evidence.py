"""What a campaign's slices show of order, age and builds: tested, told where it fails, in page and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.campaign.statements import AgeingBuilds, TurnOrder, UnlikeBuilds
from pgstrata.analyze.findings import Findings
from pgstrata.analyze.stats.slice_effects import Turns, place_effect, predecessor_effects
from pgstrata.record.reader import CampaignData, TrialData, read
from pgstrata.record.schema import SliceResult
from pgstrata.report.html import html_text
from pgstrata.report.render import render_json
from pgstrata.report.sentences.statements import sentence
from pgstrata.report.terminal import render_terminal
from pgstrata.spec.expand import turn_order
from pgstrata_fake.campaigns import Shape, write_campaign

NAMES = ("ext4", "xfs", "btrfs")
ROUNDS = 8


class Load:
    """Turns of a block one after the other, with the effects under test."""

    def __init__(self, *, age: float = 0.0, first: float = 0.0, after: float = 0.0, builds: float = 0.0) -> None:
        self.age, self.first, self.after, self.builds = age, first, after, builds
        self._rng = np.random.default_rng(1)

    def block(self, trials: list[TrialData]) -> Iterator[TrialData]:
        """The trials of a block with turns, of which btrfs has the effects."""
        order = [trial.trial.stack for trial in trials]
        before, clock_s = order[0], 0.0
        level = {name: self._rng.normal(0, self.builds) for name in order}
        turns: dict[str, list[SliceResult]] = {name: [] for name in order}
        for turn in range(ROUNDS):
            for place, name in enumerate(turn_order(order, turn)):
                y = level[name] + self._rng.normal(0, 0.02) + self.age * turn * (name == "btrfs")
                y += self.first * (place == 0) + self.after * (before == "btrfs")
                done, clock_s, before = round(2000 * math.exp(y)), clock_s + 2.0, name
                turns[name].append(SliceResult(began_epoch_s=clock_s, transactions=done, measured_s=2.0, sync_s=0.01))
        for trial in trials:
            yield _with_turns(trial, turns[trial.trial.stack])


def _with_turns(trial: TrialData, turns: list[SliceResult]) -> TrialData:
    done, seconds = sum(t.transactions for t in turns), sum(t.measured_s + t.sync_s for t in turns)
    update = {"slices": tuple(turns), "transactions": done, "tps": done / seconds, "duration_s": 2.0 * len(turns)}
    return replace(trial, cells=tuple(replace(c, result=c.result.model_copy(update=update)) for c in trial.cells))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> CampaignData:
    shape = Shape(stacks=NAMES, blocks=6, duration_s=16, incidents=False)
    return read(write_campaign(tmp_path_factory.mktemp("slices") / "c", shape))


def judged(data: CampaignData, load: Load, blocks: int = 6) -> tuple[CampaignData, Findings]:
    trials: list[TrialData] = []
    for block in range(blocks):
        trials += load.block([t for t in data.trials if t.trial.block == block])
    sliced = replace(data, trials=tuple(trials))
    return sliced, judge(sliced)


def told(findings: Findings) -> list[AgeingBuilds | TurnOrder | UnlikeBuilds]:
    return [s for s in findings.cells[0].statements if isinstance(s, AgeingBuilds | TurnOrder | UnlikeBuilds)]


def test_quiet_slices_have_a_table_and_no_sentence(recorded: CampaignData) -> None:
    data, findings = judged(recorded, Load())
    assert told(findings) == []
    (found,) = findings.slices
    assert (found.blocks, found.slices, found.next_reading) == (6, 8, 12)
    assert [e.what for e in found.effects] == ["age"] * 3 + ["place"] + ["predecessor"] * 3 + ["memory"] * 3
    assert found.within == pytest.approx(0.02 * math.sqrt(2), rel=0.3)
    shown = json.loads(render_json(findings))["slices"][0]
    assert {"age", "place", "predecessor", "memory"} == {one["what"] for one in shown["effects"]}
    page = html_text(data, findings)
    assert "Checks of the slices" in page
    assert "First slice of a round against the last" in page
    assert page.count('<td class="num">not shown</td>') == len(found.effects)
    assert "slice" not in render_terminal(data, findings)


def test_a_stack_that_ages_is_named(recorded: CampaignData) -> None:
    data, findings = judged(recorded, Load(age=0.03))
    (one,) = told(findings)
    assert isinstance(one, AgeingBuilds)
    assert (one.subject, one.slices) == ("btrfs", ROUNDS)
    assert one.ratio == pytest.approx(math.exp(0.03), abs=0.005)
    assert "becomes **faster while a build of it is used**" in sentence(one)
    assert "faster while a build of it is used" in render_terminal(data, findings)


def test_the_first_turn_of_a_round_is_told(recorded: CampaignData) -> None:
    (one,) = told(judged(recorded, Load(first=0.05))[1])
    assert isinstance(one, TurnOrder)
    assert (one.effect, one.subject) == ("place", "")
    assert one.ratio == pytest.approx(math.exp(0.05), abs=0.02)
    assert "the first slice of a round is faster than the last one, by" in sentence(one)


def test_the_predecessor_is_named(recorded: CampaignData) -> None:
    (one,) = told(judged(recorded, Load(after=-0.08))[1])
    assert isinstance(one, TurnOrder)
    assert (one.effect, one.subject) == ("predecessor", "btrfs")
    assert one.ratio == pytest.approx(math.exp(-0.08), abs=0.015)
    assert "slices right after one of `btrfs` are slower than the others, by" in sentence(one)


def test_builds_that_differ_are_told(recorded: CampaignData) -> None:
    (one,) = told(judged(recorded, Load(builds=0.3))[1])
    assert isinstance(one, UnlikeBuilds)
    assert one.low < one.between < one.high
    assert one.low > one.most
    assert "More blocks help; more slices in a block do not." in sentence(one)


def test_nothing_is_tested_before_the_sixth_block(recorded: CampaignData) -> None:
    data, findings = judged(recorded, Load(age=0.2, after=-0.3), blocks=5)
    assert told(findings) == []
    (found,) = findings.slices
    assert found.next_reading == 6
    assert {effect.p for effect in found.effects} == {None}
    assert "tested after 6 blocks" in html_text(data, findings)


def test_a_single_block_says_little(recorded: CampaignData) -> None:
    data, findings = judged(recorded, Load(), blocks=1)
    (found,) = findings.slices
    assert (found.between, found.within) == (None, None)
    assert all(effect.amount is None for effect in found.effects if effect.what == "age")
    page = html_text(data, findings)
    assert "None" not in page.split("Checks of the slices</summary>")[1].split("</table>")[0]


def test_turns_without_transactions_or_out_of_order_do_not_count(recorded: CampaignData) -> None:
    trials = list(Load().block([t for t in recorded.trials if t.trial.block == 0]))
    first = trials[0].cells[0].result
    idle = (first.slices[0].model_copy(update={"transactions": 0}), *first.slices[1:])
    late = (first.slices[0].model_copy(update={"began_epoch_s": 9e9}), *first.slices[1:])
    for changed in (idle, late):
        broken = [_with_turns(trials[0], list(changed)), *trials[1:]]
        assert judge(replace(recorded, trials=tuple(broken))).slices == ()
    assert judge(recorded).slices == (), "whole runs"


def test_two_stacks_show_no_predecessor() -> None:
    """Both follow the same stack in every round."""
    rng = np.random.default_rng(2)
    rounds = np.array([[0, 1], [1, 0]] * 4)
    blocks = [Turns(rounds if n % 2 else rounds[:, ::-1], rng.normal(7, 0.05, rounds.shape)) for n in range(6)]
    for one in predecessor_effects(blocks, 2):
        assert math.isnan(one.value)
        assert one.p is None
    assert place_effect(blocks, 2).p is not None
