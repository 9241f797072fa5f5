"""The probes of a run: started before pgbench, stopped after it, their files brought into the record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pgstrata.spec.workload import Cell
from pgstrata.trial.bench import Bench


@contextmanager
def probing(bench: Bench, cell: Cell, folder: str) -> Iterator[None]:
    """Samples host and server while the block runs; what they write lies in `folder`."""
    yield
