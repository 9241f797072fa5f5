"""A stack that stands while a test runs, and what does not hold of it; on this machine and on lab machines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgstrata.host.protocol import Host
from pgstrata.stack.build import Built, build
from pgstrata.stack.journal import Journal, failures
from pgstrata.stack.plan import StackPlan
from pgstrata.stack.step import Attested

TESTS_IMPORTABLE = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
"""The environment of programs that import this module outside pytest."""


@contextmanager
def standing(host: Host, plan: StackPlan) -> Iterator[Built]:
    """A built stack; taken down at the end, which must succeed completely."""
    journal = Journal.create(host, plan.context.trial_id)
    built = build(host, plan, journal)
    try:
        yield built
    finally:
        left = failures(journal.undo_all())
        assert left == (), left


def differences(attested: tuple[Attested, ...]) -> dict[str, tuple[str, str]]:
    """What does not hold: what -> (expected, actual)."""
    return {row.what: (row.expected, row.actual) for row in attested if not row.holds}
