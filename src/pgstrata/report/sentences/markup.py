"""Sentences of findings mark stack names with backticks and verdicts with double asterisks; nothing else is markup."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup, escape

from pgstrata.spec.printable import printable

_MARK = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*")
_UNIT_GAP = re.compile(r"(?<=\d) (?=(?:%|TPS|tps|ms|s|h|min|MiB|GiB|KiB)(?![\w]))")
_MINUS = re.compile(r"(?<![\w.])-(?=\d)")


@dataclass(frozen=True)
class Span:
    """A piece of a sentence."""

    kind: Literal["plain", "name", "strong"]
    text: str


def quoted(name: str) -> str:
    """Return a name as markup; backticks within it are replaced, because they would end it."""
    return f"`{name.replace('`', chr(39))}`"


def listed(names: Sequence[str]) -> str:
    """Return `a`, `b` and `c`."""
    marked = [quoted(n) for n in names]
    return marked[0] if len(marked) == 1 else f"{', '.join(marked[:-1])} and {marked[-1]}"


def parse_markup(sentence: str) -> tuple[Span, ...]:
    """Return the pieces of a sentence, marks removed."""
    spans, at = [], 0
    for match in _MARK.finditer(sentence):
        if match.start() > at:
            spans.append(Span("plain", sentence[at : match.start()]))
        spans.append(Span("name", match[1]) if match[1] else Span("strong", match[2]))
        at = match.end()
    if at < len(sentence):
        spans.append(Span("plain", sentence[at:]))
    return tuple(spans)


def plain_words(sentence: str) -> str:
    """Return the sentence without its marks."""
    return "".join(span.text for span in parse_markup(sentence))


def render_markup_html(sentence: str, strong: Callable[[str], Markup] = escape) -> Markup:
    """Escape, then add tags: anything within a name stays text. Numbers keep their units on the same line."""
    return Markup("").join(_render(span, strong) for span in parse_markup(sentence))


def _render(span: Span, strong: Callable[[str], Markup]) -> Markup:
    text = printable(span.text)
    match span.kind:
        case "name":
            return Markup("<code>{}</code>").format(text)
        case "strong":
            return Markup("<strong>{}</strong>").format(strong(text))
    return escape(_typeset(text))


def _typeset(text: str) -> str:
    return _UNIT_GAP.sub("\N{NO-BREAK SPACE}", _MINUS.sub("\N{MINUS SIGN}", text)).replace("...", "…")
