"""Values and rules that several packages need are written in one of them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pgstrata
from pgstrata.host.agent.processes import MARKER
from pgstrata.record.schema import Moment, Origin

SOURCE = Path(pgstrata.__file__).parent


def modules_with(node_text: str) -> list[str]:
    """Modules in whose code a text stands, as `ast.unparse` writes it."""
    found = []
    for module in sorted(SOURCE.rglob("*.py")):
        nodes = ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if any(isinstance(n, ast.expr) and ast.unparse(n) == node_text for n in nodes):
            found.append(module.relative_to(SOURCE).as_posix())
    return found


@pytest.mark.parametrize(
    ("text", "module"),
    [
        (repr(MARKER), "host/agent/processes.py"),
        (str(Origin).removeprefix("typing."), "record/schema.py"),
        (str(Moment).removeprefix("typing."), "record/schema.py"),
        ("16 * 2 ** 20", "spec/workload.py"),
    ],
    ids=["marker", "origin", "moment", "bytes per scale"],
)
def test_written_once(text: str, module: str) -> None:
    assert modules_with(text) == [module]
