"""When a golden copy is worth its space."""

from __future__ import annotations

import pytest

from pgstrata.spec.campaign import Campaign
from pgstrata.trial.steps.load import copies_follow


@pytest.mark.parametrize(
    ("runs", "more", "follow"),
    [
        ({"blocks": 3}, {}, False),
        ({"blocks": 4}, {}, True),
        ({"blocks": 3}, {"latency": {}}, True),
        ({"blocks": 3}, {"soak": {}}, True),
        ({"max_blocks": 3}, {}, True),  # confirmation comes after screening
        ({"load": "fresh"}, {}, False),
    ],
)
def test_copies_follow_where_blocks_may_come(runs: dict[str, object], more: dict[str, object], follow: bool) -> None:
    asked = {"name": "x", "stacks": [{"name": "a", "data": {"fs": {"kind": "ext4"}}}], "runs": runs, **more}
    assert copies_follow(Campaign.model_validate(asked)) is follow
