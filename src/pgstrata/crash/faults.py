"""Faults beyond a power cut: errors, delays and a full disk while the ledger is written. Pure.

A fault comes into force in the middle of the transactions, and the ledger continues as far as the server does. Refused
requests of a disk are not in its event log. The states of that log are therefore those that a power cut after it could
have left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pgstrata.crash.ledger import LedgerSize
from pgstrata.crash.script import SCRIPTS
from pgstrata.spec.crash_request import BESIDE, OF_PAGES, CrashRequest, FaultName
from pgstrata.stack.block.media import recorded_disk, recorded_names
from pgstrata.stack.plan import StackPlan

RELATION = "ledger.account"
"""Table whose pages are rewritten repeatedly."""
REFUSED_ACCOUNTS = 120_000
"""Accounts when pages are refused: 650 pages, so that transactions after the failed checkpoint (half a ledger of 100 a
session touches 800 times a page) leave some of those alone that it was to write: what is touched is whole again."""
SLOW_FLUSH_MS = 20
LOAD_S = 5.0
"""Time of a load beside the ledger."""
FILLER = "pgstrata-filler"


@dataclass(frozen=True)
class Fault:
    """The request to the daemon for each disk of the volume with the WAL, or another action on the host."""

    about: str
    request: Mapping[str, Any] | None = None
    fills: bool = False


def _on_flush(effect: object, **more: int) -> dict[str, Any]:
    return {"op": "fault", "fault": {"on": "flush", "effect": effect, **more}}


FAULTS: Mapping[FaultName, Fault] = {
    "flush-error": Fault("the disk with the WAL refuses one flush", _on_flush("error", count=1)),
    OF_PAGES: Fault("the disk refuses a table's pages until a checkpoint has failed"),
    "gone": Fault("the disk with the WAL is gone", {"op": "pull"}),
    "slow-flush": Fault("every flush takes longer", _on_flush({"delay_ms": SLOW_FLUSH_MS})),
    "full": Fault("the filesystem with the WAL is full", fills=True),
}


def ledger_size(request: CrashRequest) -> LedgerSize:
    """A ledger large enough to show the fault, the size of pgbench's, or one that lasts as long as a load beside it."""
    spread_s = LOAD_S if request.script == BESIDE else 0.0
    size = LedgerSize(
        transactions=request.recorded,
        recordings=request.recordings,
        script=SCRIPTS[request.script],
        spread_s=spread_s,
    )
    return replace(size, accounts=REFUSED_ACCOUNTS) if request.fault == OF_PAGES else size


def filler(plan: StackPlan) -> str:
    """The file that fills the filesystem with the WAL."""
    return f"{plan.wal_directory or plan.data_directory}/{FILLER}"


def render_fault(name: FaultName | None, plan: StackPlan, size: LedgerSize) -> str:
    """The fault as passed to the ledger's client; empty if there is none."""
    if name is None:
        return ""
    fault = FAULTS[name]
    with_wal = next((v for v in plan.volumes if v.role == "wal"), plan.volumes[0])
    disks = recorded_names(with_wal.media).values()
    requests = [{**fault.request, "disk": disk} for disk in disks] if fault.request else []
    told: dict[str, Any] = {"after": (size.transactions + 1) // 2, "requests": requests}
    if name == OF_PAGES:
        refuse = {"on": "write", "effect": "error"}
        told |= {"relation": RELATION, "data": plan.data_directory, "disk": recorded_disk("data", 0), "refuse": refuse}
    if fault.fills:
        told |= {"filler": filler(plan)}
    return json.dumps(told)
