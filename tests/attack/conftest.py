"""Attacks: many damaged and hostile inputs, the same in every run. `PGSTRATA_ATTACK_SCALE` sets how many."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def scale() -> float:
    """Of the number of inputs: 1 by default."""
    return float(os.environ.get("PGSTRATA_ATTACK_SCALE", "1"))
