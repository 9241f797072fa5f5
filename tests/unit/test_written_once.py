"""Values and rules that several packages need are written in one of them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pgstrata
from pgstrata.host.agent.processes import MARKER
from pgstrata.record.schema import Moment, Origin

SOURCE = Path(pgstrata.__file__).parent


@pytest.fixture(scope="module")
def expressions() -> dict[str, frozenset[str]]:
    """By module, every expression of its code as `ast.unparse` writes it."""
    return {module.relative_to(SOURCE).as_posix(): _expressions(module) for module in sorted(SOURCE.rglob("*.py"))}


def _expressions(module: Path) -> frozenset[str]:
    nodes = ast.walk(ast.parse(module.read_text(encoding="utf-8")))
    return frozenset(ast.unparse(node) for node in nodes if isinstance(node, ast.expr))


@pytest.mark.parametrize(
    ("text", "module"),
    [
        (repr(MARKER), "host/agent/processes.py"),
        (str(Origin).removeprefix("typing."), "record/schema.py"),
        (str(Moment).removeprefix("typing."), "record/schema.py"),
        ("16 * 2 ** 20", "spec/drivers.py"),
    ],
    ids=["marker", "origin", "moment", "bytes per scale"],
)
def test_written_once(expressions: dict[str, frozenset[str]], text: str, module: str) -> None:
    assert [name for name, found in expressions.items() if text in found] == [module]
