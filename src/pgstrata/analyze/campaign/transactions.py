"""Outcome of the transactions of a stack's runs: throughput and latency count committed transactions only.

The shares are of all transactions of all runs that count: a run weighs by its attempts. Every verdict on a stack
reports them if one reaches `NOTABLE`; smaller shares change no throughput by more than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pgstrata.analyze.finding import Transactions, Uncounted
from pgstrata.analyze.findings import StackFinding
from pgstrata.record.schema import CellResult

NOTABLE = 0.001


def transactions_of(results: Iterable[CellResult]) -> Transactions | None:
    """Return the outcome over all runs; None if no transactions were counted."""
    counted = list(results)
    failed, skipped = sum(r.failed for r in counted), sum(r.skipped for r in counted)
    tried = sum(r.transactions for r in counted) + failed + skipped
    if not tried:
        return None
    late, retried = sum(r.late for r in counted), sum(r.retried for r in counted)
    return Transactions(
        tried=tried, failed=failed / tried, skipped=skipped / tried, late=late / tried, retried=retried / tried
    )


def notable(by_stack: Mapping[str, Transactions | None]) -> Uncounted:
    """Return the stacks that have a notable share."""
    return {name: t for name, t in by_stack.items() if t is not None and max(t.shares.values()) >= NOTABLE}


def notable_in(cell: str, stacks: Iterable[StackFinding]) -> Uncounted:
    """Return those of the stacks that have a notable share in a cell."""
    return notable({stack.name: stack.transactions for stack in stacks if stack.cell == cell})
