"""The types that the page's script is checked against are those of the payload that it is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pgstrata.report.pictures.drawing import Drawing

COMMITTED = Path(__file__).parents[3] / ".ci" / "page" / "payload.d.ts"
PLAIN = {int: "number", float: "number", str: "string", bool: "boolean", NoneType: "null"}


def interfaces(root: type[Any]) -> str:
    """TypeScript interfaces of a dataclass and of those that it refers to."""
    found = [root]
    for model in found:
        hints = get_type_hints(model)
        found += [m for f in fields(model) for m in dataclasses_in(hints[f.name]) if m not in found]
    return "\n".join(interface(model) for model in found)


def dataclasses_in(hint: Any) -> Iterator[type[Any]]:
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for part in get_args(hint):
        yield from dict.fromkeys(dataclasses_in(part))


def interface(model: type[Any]) -> str:
    hints = get_type_hints(model)
    lines = [f"  {f.name}: {typescript(hints[f.name])};" for f in fields(model)]
    return "\n".join([f"interface {model.__name__} {{", *lines, "}", ""])


def typescript(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " | ".join(dict.fromkeys(typescript(a) for a in arguments))
    if origin is Literal:
        return " | ".join(f'"{a}"' for a in arguments)
    if origin is list:
        inner = typescript(arguments[0])
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if origin is tuple:
        return f"[{', '.join(typescript(a) for a in arguments)}]"
    if origin is dict:
        return f"Record<string, {typescript(arguments[1])}>"
    return PLAIN.get(hint) or str(hint.__name__)


def test_the_script_is_checked_against_the_types_of_its_payload() -> None:
    assert (
        COMMITTED.read_text()
        == "// Of pgstrata.report.pictures.drawing; a test keeps the two equal.\n\n" + interfaces(Drawing)
    )
