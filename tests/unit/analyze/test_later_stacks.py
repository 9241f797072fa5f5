"""Which stacks go on to the stages after the comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgstrata.analyze.campaign.later_stages import StagedPolicy
from pgstrata.analyze.campaign.policy import AdaptivePolicy
from pgstrata.record.decision import Decision, Observation, Policy, Stage
from pgstrata.spec.campaign import Campaign, Goal, Latency, Runs
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.spec.workload import Workload
from pgstrata.trial.scheduling import FixedBlocks

CELL = "tpcb-like-s10-c4"
NAMES = ("ext4", "xfs", "btrfs")


def campaign(goal: Goal, blocks: int | None = None) -> Campaign:
    stacks = tuple(parse_stack(name) for name in NAMES)
    workload = Workload(scale=(10,), clients=(4,))
    return Campaign(
        name="n", stacks=stacks, workload=workload, goal=goal, runs=Runs(blocks=blocks), latency=Latency(rates=(0.5,))
    )


def observed(blocks_of: Mapping[str, Sequence[int]], stage: Stage) -> list[Observation]:
    """Valid runs of each stack in those blocks: ext4 at 1000 TPS, xfs at 800, btrfs at 500, with a little noise."""
    level = {"ext4": 1000.0, "xfs": 800.0, "btrfs": 500.0}
    return [
        Observation(name, block, CELL, level[name] * (1 + 0.001 * ((block * 7 + len(name)) % 5)), stage)
        for name, blocks in blocks_of.items()
        for block in blocks
    ]


def latency_run(main: Policy, asked: Campaign, seen: list[Observation]) -> set[str]:
    blocks_done = 1 + max(o.block for o in seen)
    decision = StagedPolicy(main, asked).decide(seen, blocks_done, 0.0)
    assert decision.stage == "latency"
    return set(decision.run)


def test_without_screening_a_stack_whose_verdict_came_early_goes_on() -> None:
    asked = campaign(Goal(kind="all-pairs"))
    seen = observed({"ext4": range(9), "xfs": range(12), "btrfs": range(12)}, "confirm")
    assert latency_run(AdaptivePolicy.of(asked), asked, seen) == set(NAMES)


def test_a_trial_that_failed_in_the_last_block_puts_no_stack_out() -> None:
    asked = campaign(Goal(), blocks=4)
    seen = observed({"ext4": range(3), "xfs": range(4), "btrfs": range(4)}, "screen")
    assert latency_run(FixedBlocks(NAMES, 4), asked, seen) == set(NAMES)


@dataclass(frozen=True)
class Dropping:
    """Four blocks of screening; btrfs is dropped before the last."""

    def decide(self, observations: Sequence[Observation], blocks_done: int, elapsed_s: float) -> Decision:
        if blocks_done == 4:
            return Decision("done", ())
        return Decision("screen", NAMES if blocks_done < 3 else ("ext4", "xfs"))


def test_a_stack_that_screening_dropped_stays_out() -> None:
    seen = observed({"ext4": range(3), "xfs": range(4), "btrfs": range(3)}, "screen")
    assert latency_run(Dropping(), campaign(Goal()), seen) == {"ext4", "xfs"}
