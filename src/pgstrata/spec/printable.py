"""Escapes text from files and hosts for display: the only place that removes control sequences.

A leaf, so that every output may use it: terminal, Markdown, HTML, CSV and pictures.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

LONGEST_NAME = 1000
"""Maximum length of a stack, campaign or script name: short notation of a stack is its name, and a script's may be a
path."""

_FORMULA = re.compile(r"[=+\-@\t\r]")


def printable(text: str) -> str:
    """Control and format characters (ESC, C1, changes of writing direction) as `\\x1b`; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or _is_plain(c) else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """`printable`, with line ends as spaces."""
    return printable(" ".join(text.splitlines()))


def _is_plain(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


def spreadsheet_text(text: str) -> str:
    """Text for a spreadsheet cell: `'` is put before anything that it would interpret as a formula."""
    return printable(f"'{text}" if _FORMULA.match(text) else text)


def spreadsheet_source(text: str) -> str:
    """The inverse of `spreadsheet_text`."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text[1:]) else text


def plain_name(text: str) -> str:
    """Return the name unchanged; ValueError if it is empty, too long for a line, or holds a control character."""
    if not text:
        raise ValueError("a name must not be empty")
    if len(text) > LONGEST_NAME:
        raise ValueError(f"a name of {len(text)} characters is longer than {LONGEST_NAME}")
    if not all(map(_is_plain, text)):
        raise ValueError(f"{text!r} holds a line break or another control character")
    return text


def summarise_names(texts: Sequence[str], most: int = 4, *, noun: str = "", joint: str = ", ") -> str:
    """`a, b, c, d and 3 more`, followed by a plural `noun`. A single name over the limit is written out: it is as short
    as its number."""
    if len(texts) <= most + 1:
        return joint.join(texts)
    more = f"{len(texts) - most} more {noun}".rstrip()
    return f"{joint.join(texts[:most])} and {more}"
