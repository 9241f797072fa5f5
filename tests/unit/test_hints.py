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


@pytest.fixture(scope="module")
def hints() -> list[tuple[str, str]]:
    """The place of each hint, and its text; values that are filled in are `X`."""
    found = []
    for module in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                found += [(f"{module.relative_to(SOURCE)}:{node.value.lineno}", text) for text in texts(node.value)]
    return found


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


def unknown_command(words: list[str]) -> str:
    """What is wrong with the words behind `pgstrata`; empty for a verb with its options, and for prose."""
    command = VERBS
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
    if command is VERBS:
        return "" if words[0] in PROSE else "no verb"
    unknown = {word.split("=")[0] for word in words if word.startswith("--")} - options_of(command)
    return ", ".join(sorted(unknown))


def test_commands_of_ours_exist_with_their_options(hints: list[tuple[str, str]]) -> None:
    commands = [(where, words) for where, text in hints for words in commands_in(text)]
    assert len(commands) > 30
    assert [(where, wrong) for where, words in commands if (wrong := unknown_command(words))] == []


def test_options_exist_somewhere(hints: list[tuple[str, str]]) -> None:
    ours, unknown = every_option(), []
    for where, text in hints:
        allowed = ours.union(*(options for program, options in FOREIGN.items() if program in text))
        named = {word.rstrip(",.:;)`'\"") for word in re.findall(r"(?<![\w-])--[a-z][\w-]*", text)}
        unknown += [(where, name) for name in sorted(named - allowed)]
    assert unknown == []


def test_there_are_hints(hints: list[tuple[str, str]]) -> None:
    assert len(hints) > 200
