"""The first of many by name, the others by their number."""

from __future__ import annotations

import pytest

from pgstrata.spec.printable import summarise_names


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, ""), (1, "a"), (2, "a, b"), (3, "a, b, c"), (4, "a, b and 2 more"), (26, "a, b and 24 more")],
)
def test_all_are_named_or_counted(count: int, shown: str) -> None:
    assert summarise_names("abcdefghijklmnopqrstuvwxyz"[:count], 2) == shown


def test_what_they_are_and_what_is_between_them_can_be_said() -> None:
    assert summarise_names(list("abcd"), 2, noun="stacks", joint=" | ") == "a | b and 2 more stacks"
    assert summarise_names(list("abc"), 2, noun="stacks", joint=" | ") == "a | b | c"
