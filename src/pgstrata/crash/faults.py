"""Faults beyond a power cut: errors, delays and a full disk while the ledger is written. Pure.

A fault comes into force in the middle of the transactions and the ledger goes on as far as the server does. What a
disk refused is not in its event log, so the states of that log are what a power cut after it could have left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pgstrata.crash.ledger import LedgerSize
from pgstrata.crash.script import SCRIPTS
from pgstrata.errors import UsageError
from pgstrata.spec.crash_trials import ScriptName
from pgstrata.spec.stack import Stack
from pgstrata.stack.block.media import recorded_disk, recorded_names
from pgstrata.stack.plan import StackPlan

RELATION = "ledger.account"
"""Its pages are written anew again and again."""
REFUSED_ACCOUNTS = 120_000
"""Where its pages are refused: on 650 pages, so that the transactions after the failed checkpoint (half a ledger of 100
a session touches 800 times a page) leave some of those alone that it was to write: what is touched is whole again."""
SLOW_FLUSH_MS = 20
FILLER = "pgstrata-filler"


@dataclass(frozen=True)
class Fault:
    """What is asked of the daemon, of each disk of the volume with the WAL, or what else is done on the host."""

    about: str
    request: Mapping[str, Any] | None = None
    refuses_relation: bool = False
    fills: bool = False


def _on_flush(effect: object, **more: int) -> dict[str, Any]:
    return {"op": "fault", "fault": {"on": "flush", "effect": effect, **more}}


FAULTS: Mapping[str, Fault] = {
    "flush-error": Fault("the disk with the WAL refuses one flush", _on_flush("error", count=1)),
    "write-error": Fault("the disk refuses a table's pages until a checkpoint has failed", refuses_relation=True),
    "gone": Fault("the disk with the WAL is gone", {"op": "pull"}),
    "slow-flush": Fault("every flush takes longer", _on_flush({"delay_ms": SLOW_FLUSH_MS})),
    "full": Fault("the filesystem with the WAL is full", fills=True),
}


def refuse_fault(name: str, stack: Stack, script: ScriptName = "ledger") -> None:
    """UsageError for a fault that there is not, or that this stack or what is written on it cannot have."""
    if name not in FAULTS:
        raise UsageError(f"--fault: there is no fault {name!r}", hint=f"one of: {', '.join(FAULTS)}")
    if FAULTS[name].refuses_relation and script != "ledger":
        raise UsageError(
            f"--fault {name}: the disk refuses the pages of a table of the ledger, which {SCRIPTS[script].shown} "
            "does not have",
            hint=f"leave --script {script} out, or choose another fault",
        )
    data = stack.data
    moves = data.fs.copy_on_write or data.device.count > 1 or data.layers or data.fs.stores is not data.fs
    if FAULTS[name].refuses_relation and moves:
        raise UsageError(
            f"--fault {name}: where the pages of a table lie is known on one disk that is overwritten in place, "
            f"which {stack.name} has not",
            hint=f"pgstrata crash ext4 --fault {name}",
        )


def ledger_size(transactions: int, fault: str, script: ScriptName) -> LedgerSize:
    """A ledger in which the fault shows, or what pgbench writes."""
    size = LedgerSize(transactions=transactions, script=SCRIPTS[script])
    shows = fault and FAULTS[fault].refuses_relation
    return replace(size, accounts=REFUSED_ACCOUNTS) if shows else size


def filler(plan: StackPlan) -> str:
    """The file that fills the filesystem with the WAL."""
    return f"{plan.wal_directory or plan.data_directory}/{FILLER}"


def render_fault(name: str, plan: StackPlan, size: LedgerSize) -> str:
    """The fault as the ledger's client is told; nothing where there is none."""
    if not name:
        return ""
    fault = FAULTS[name]
    with_wal = next((v for v in plan.volumes if v.role == "wal"), plan.volumes[0])
    disks = recorded_names(with_wal.media).values()
    requests = [{**fault.request, "disk": disk} for disk in disks] if fault.request else []
    told: dict[str, Any] = {"after": (size.transactions + 1) // 2, "requests": requests}
    if fault.refuses_relation:
        refuse = {"on": "write", "effect": "error"}
        told |= {"relation": RELATION, "data": plan.data_directory, "disk": recorded_disk("data", 0), "refuse": refuse}
    if fault.fills:
        told |= {"filler": filler(plan)}
    return json.dumps(told)
