"""The conclusion about one metric follows the design that was run."""

from __future__ import annotations

import pytest

from pgstrata.analyze.conclude import conclude
from pgstrata.analyze.simulate import CELL
from pgstrata.analyze.stages import Design
from pgstrata.record.decision import Observation
from pgstrata.spec.campaign import Goal

NAMES = ("a", "b", "c")


def unlucky_first() -> list[Observation]:
    """a is far behind in the first three of twelve blocks, and the best in all others."""
    level = {"a": 1000.0, "b": 950.0, "c": 900.0}
    return [
        Observation(name, block, CELL, (level[name] - (200 if name == "a" and block < 3 else 0)) * _noise(at, block))
        for block in range(12)
        for at, name in enumerate(NAMES)
    ]


def _noise(stack: int, block: int) -> float:
    return 1 + 0.002 * ((3 * stack + 5 * block) % 7 - 3)


@pytest.mark.parametrize(("fixed", "chosen"), [(True, "a"), (False, "b")])
def test_a_fixed_design_drops_nothing(fixed: bool, chosen: str) -> None:
    found = conclude(Design(NAMES, (CELL,), Goal(), 12, fixed=fixed), unlucky_first(), CELL)
    assert found.chosen == chosen
    assert found.own["a"].level > found.own["b"].level
