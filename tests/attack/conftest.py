"""Attacks: many inputs, kills and signals. `make attack` runs them; PGSTRATA_ATTACK_SCALE makes them fewer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that need root are skipped without it, and say so."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root"))
