"""Splitting short notation: separators count only outside parentheses and double quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pgstrata.errors import UsageError

_PLAIN = re.compile(r"[A-Za-z0-9_.\-/:%*#~=]+")
_CLOSE = "close it, as in 'md(raid10,4)/ext4'; a value with brackets in it stands in double quotes"


def _outside_quotes(text: str, start: int = 0) -> Iterator[tuple[int, str, int]]:
    """Place and character of what is not quoted, with the depth of parentheses after it; UsageError for open quotes."""
    depth, quoted, at = 0, False, start
    while at < len(text):
        char = text[at]
        if quoted:
            at += 1 if char == "\\" else 0
            quoted = char != '"'
        elif char == '"':
            quoted = True
        else:
            depth += {"(": 1, ")": -1}.get(char, 0)
            yield at, char, depth
        at += 1
    if quoted:
        raise UsageError(f"a quote is not closed in {text!r}", hint=_CLOSE)


def split_top(text: str, separator: str, limit: int = -1) -> list[str]:
    """Parts of `text` between separators at the top level, stripped; UsageError if brackets or quotes are open."""
    parts, start, depth = [], 0, 0
    for at, char, depth in _outside_quotes(text):
        if depth < 0:
            break
        if char == separator and depth == 0 and limit != 0:
            parts.append(text[start:at].strip())
            start, limit = at + 1, limit - 1
    if depth != 0:
        raise UsageError(f"a parenthesis is not closed in {text!r}", hint=_CLOSE)
    return [*parts, text[start:].strip()]


def split_call(text: str) -> tuple[str, str | None, str]:
    """`name(arguments)rest` as its three parts; arguments are None where there are no parentheses."""
    match = re.match(r"[A-Za-z0-9_.\-]*", text)
    opened = match.end() if match else 0
    if not text.startswith("(", opened):
        return text[:opened], None, text[opened:]
    for at, _, depth in _outside_quotes(text, opened):
        if depth == 0:
            return text[:opened], text[opened + 1 : at], text[at + 1 :]
    raise UsageError(f"a parenthesis is not closed in {text!r}", hint=_CLOSE)


def unquote(text: str) -> str:
    """The value that a quoted or plain word stands for."""
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
    return text


def quote(value: str) -> str:
    """The word that stands for `value`: plain where no separator is in it, else in double quotes."""
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
