"""What a campaign will take: the comparison and every stage that may follow it."""

from __future__ import annotations

from typing import Any

import pytest

from pgstrata.spec.campaign import Campaign
from pgstrata.spec.expand import block_trials
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.spec.quick import overhead_s
from pgstrata.trial.survey.estimate import CAPACITY_STEPS, JOINING_S, Expected, estimate_stages, estimate_trial

COPY_S = overhead_s(10, fresh=False)
LARGER_COPY_S = overhead_s(20, fresh=False)


def campaign(**stages: Any) -> Campaign:
    stacks = [{"name": kind, "data": {"fs": {"kind": kind}}} for kind in ("ext4", "xfs", "tmpfs")]
    workload = {"scale": 10, "clients": [1, 4], "duration": 30, "warmup": 5, **dict(stages.pop("workload", {}))}
    return Campaign.model_validate(
        {"name": "x", "stacks": stacks, "workload": workload, "runs": {"blocks": 4}, **stages}
    )


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ({}, {}),
        ({"latency": {"rates": [0.5, 0.7, 0.9], "blocks": 2}}, {"latency": (6, 6 * (COPY_S + 2 * 3 * 35))}),
        (
            {"latency": {"rates": [0.5], "blocks": 1, "objective_ms": 20}},
            {
                "latency": (3, 3 * (COPY_S + 2 * 35)),
                "capacity": (3 * CAPACITY_STEPS, 3 * CAPACITY_STEPS * (COPY_S + 2 * 35)),
            },
        ),
        ({"soak": {"duration": 600, "runs": 2}}, {"soak": (6, 6 * (COPY_S + 2 * 605))}),
        ({"soak": {"duration": 600, "runs": 1, "stacks": ["xfs"]}}, {"soak": (1, COPY_S + 2 * 605)}),
        (
            {"soak": {"duration": 600, "runs": 1}, "workload": {"script": ["select-only", "tpcb-like"]}},
            {"soak": (3, 3 * (COPY_S + 2 * 605))},
        ),
        (
            {"latency": {"rates": [0.5], "blocks": 2, "objective_ms": 20}, "workload": {"scale": [10, 20]}},
            {
                "latency": (12, 6 * (COPY_S + LARGER_COPY_S + 4 * 35)),
                "capacity": (6 * CAPACITY_STEPS, 3 * CAPACITY_STEPS * (COPY_S + LARGER_COPY_S + 4 * 35)),
            },
        ),
    ],
)
def test_stages_are_counted(stages: dict[str, Any], expected: dict[str, tuple[int, float]]) -> None:
    found = estimate_stages(campaign(**stages))
    assert {s.stage: s.trials for s in found} == {stage: trials for stage, (trials, _) in expected.items()}
    for stage in found:
        assert stage.estimate.duration_s == pytest.approx(expected[stage.stage][1])
    assert all(s.estimate.written_bytes > 0 for s in found)


def test_standbys_are_counted() -> None:
    def expected(nodes: str) -> Expected:
        stack = parse_stack(f"cluster({nodes})/tmpfs")
        one = Campaign.model_validate({"name": "x", "stacks": [stack.model_dump()], "workload": {"scale": 10}})
        (trial, *_) = block_trials(one, 0, (stack.name,))
        return estimate_trial(one, trial)

    alone, three = expected("1"), expected("3")
    assert three.written_bytes > 2.5 * alone.written_bytes
    assert three.duration_s >= alone.duration_s + 2 * JOINING_S
    assert expected("3,stale_reads=9s").duration_s >= three.duration_s + 9
    assert expected("3,ANY 1,acknowledgements=9s").duration_s >= three.duration_s + 9
