"""Every importer by its verb, and the one that recognises a file."""

from __future__ import annotations

from pgstrata.importers import benchbase, go_tpc, hammerdb, lkp, mmtests, phoronix, sysbench
from pgstrata.importers.tool import Importer, Recogniser

TOOLS: tuple[Importer, ...] = tuple(
    module.IMPORTER for module in (sysbench, hammerdb, benchbase, go_tpc, phoronix, mmtests, lkp)
)
_OTHERS = (
    Recogniser("pgbench", lambda text: "transaction type: " in text),
    Recogniser("csv", lambda text: text.lstrip("\ufeff").lower().startswith(("stack,", "stack;", "stack\t"))),
)


def recognised(text: str) -> str:
    """Return the verb that imports a text; empty if none recognises it."""
    return next((one.name for one in (*TOOLS, *_OTHERS) if one.recognises(text)), "")


def hint_for(text: str, otherwise: str) -> str:
    """Return the import that takes a text, as a hint for a refused file."""
    name = recognised(text)
    return f"the file is of another tool: pgstrata import {name}" if name else otherwise
