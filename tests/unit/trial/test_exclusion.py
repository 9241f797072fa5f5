"""Runs that do not count, decided without looking at their figures."""

from __future__ import annotations

import pytest

from pgstrata.errors import TrialExcluded
from pgstrata.trial.steps.measure import refuse_throttled


def test_a_throttled_run_does_not_count() -> None:
    with pytest.raises(TrialExcluded, match="slowed down 3 times"):
        refuse_throttled(4, 7)


@pytest.mark.parametrize(("before", "after"), [(4, 4), (None, None), (None, 3), (3, None)])
def test_what_was_not_counted_excludes_nothing(before: int | None, after: int | None) -> None:
    try:
        refuse_throttled(before, after)
        excluded = False
    except TrialExcluded:
        excluded = True
    assert not excluded
