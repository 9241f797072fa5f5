"""The lines of a postgresql.conf, as the server reads them (guc-file.l)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LINE = re.compile(r"\s*([A-Za-z_][\w.$]*)\s*(?:=|\s)\s*('(?:[^'\\\n]|''|\\.)*'|[^\s#']+)\s*(?:#.*)?", re.ASCII)


@dataclass(frozen=True)
class ConfLine:
    """A line that sets something, or that is not `name = value`: then `name` is None. Names are in lower case."""

    number: int
    text: str
    name: str | None = None
    value: str = ""


def conf_lines(text: str) -> Iterator[ConfLine]:
    """Every line but comments and empty ones; of several with one name the last one counts for the server."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        yield ConfLine(number, line) if match is None else ConfLine(number, line, match[1].lower(), _unquoted(match[2]))


_ESCAPE = re.compile(r"''|\\([0-7]{1,3}|.)")
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def _unquoted(token: str) -> str:
    """The value as the server reads it (GUC_scanstr of guc-file.l)."""
    return _ESCAPE.sub(_unescaped, token[1:-1]) if token.startswith("'") else token


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped is None:
        return "'"
    return chr(int(escaped, 8) & 0xFF) if escaped[0] in "01234567" else _CONTROLS.get(escaped, escaped)
