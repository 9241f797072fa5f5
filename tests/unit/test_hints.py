"""Hints of errors: every command and option that one names exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

import pgstrata
from pgstrata.cli.main import app

SOURCE = Path(pgstrata.__file__).parent
FOREIGN = {
    "configure": {"--prefix"}, "docker": {"--device"}, "container": {"--device"}, "fuser": {"--mount", "--verbose"},
    "dmsetup": {"--tree"},
    "iconv": {"--to-code"}, "losetup": {"--detach"}, "lsblk": {"--bytes", "--output"}, "mdadm": {"--detail"},
    "mkdir": {"--parents"}, "pgbench": {"--aggregate-interval", "--log", "--sampling-rate"}, "wipefs": {"--all"},
}  # fmt: skip
"""Programs whose options a hint may name."""


def hints() -> Iterator[tuple[str, str]]:
    """Where each hint stands, and its text; values that are filled in are `X`."""
    for module in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                for text in texts(node.value):
                    yield f"{module.relative_to(SOURCE)}:{node.value.lineno}", text


def texts(node: ast.expr) -> Iterator[str]:
    """The literal texts of an expression, joined where they are written as one."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else "X" for p in parts)
        case ast.BinOp(left=left, right=right):
            yield "".join([*texts(left), *texts(right)])
        case ast.IfExp(body=body, orelse=other):
            yield from texts(body)
            yield from texts(other)
        case ast.BoolOp(values=values):
            for value in values:
                yield from texts(value)


PROSE = {"as", "of", "that", "was", "wrote", "X"}
"""Words behind `pgstrata` where it is a name in a sentence."""
ALL = list(hints())
VERBS = get_command(app)


def options_of(command: object) -> set[str]:
    params = getattr(command, "params", [])
    return {name for param in params for name in (*param.opts, *param.secondary_opts)} | {"--help"}


def every_option(command: object = VERBS) -> set[str]:
    found = options_of(command)
    for child in getattr(command, "commands", {}).values():
        found |= every_option(child)
    return found


def commands_in(text: str) -> Iterator[list[str]]:
    """The words of each `pgstrata VERB ...` of a text, up to where its sentence goes on."""
    for found in re.finditer(r"\bpgstrata ([a-z][^;`\n]*)", text):
        yield re.split(r", (?!\d)|: | \(|\.$|\. ", found[1])[0].split()


@pytest.mark.parametrize(("where", "text"), [(w, t) for w, t in ALL if "pgstrata " in t])
def test_commands_of_ours_exist_with_their_options(where: str, text: str) -> None:
    for words in commands_in(text):
        command = VERBS
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
        if command is VERBS:
            assert words[0] in PROSE, f"{where}: {text!r} names no verb"
            continue
        unknown = {word.split("=")[0] for word in words if word.startswith("--")} - options_of(command)
        assert not unknown, f"{where}: {text!r} names {unknown}"


@pytest.mark.parametrize(("where", "text"), [(w, t) for w, t in ALL if "--" in t])
def test_options_exist_somewhere(where: str, text: str) -> None:
    allowed = every_option().union(*(options for program, options in FOREIGN.items() if program in text))
    named = {word.rstrip(",.:;)`'\"") for word in re.findall(r"(?<![\w-])--[a-z][\w-]*", text)}
    assert named <= allowed, f"{where}: {text!r} names {named - allowed}"


def test_there_are_hints() -> None:
    assert len(ALL) > 200
