"""Meanings of the terms in a report: shown on the page's terms, listed at its end, and written into the docs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup, escape

from pgstrata.report.sentences.markup import render_markup_html


@dataclass(frozen=True)
class Term:
    """A term of reports; `forms` are its other spellings."""

    name: str
    meaning: str
    forms: tuple[str, ...] = ()


TERMS = (
    Term(
        "stack",
        "everything under the server that is compared: devices, block layers, filesystem, their options, settings",
    ),
    Term("cell", "one combination of script, scale, clients and rate, judged by itself"),
    Term(
        "block",
        "a round in which every stack runs once, in random order, so that drift of the machine falls on all alike",
    ),
    Term("margin", "the difference below which two stacks count as equal, declared before the first run"),
    Term(
        "interval",
        "bounds that hold the true value with 95 % confidence or more, for all pairs at once and whenever one looks",
    ),
    Term(
        "single look",
        "a 95 % interval that counts one pair alone and holds if the runs are looked at once, after a number of rounds "
        "fixed beforehand: narrower than the intervals that verdicts rest on",
        ("at a single look",),
    ),
    Term(
        "chosen",
        "no other stack of its durability class can be better by more than the margin, with at least 95 % confidence",
    ),
    Term(
        "proven",
        "the interval of a difference excludes none, and holds at any look and for all pairs that were compared: "
        "at most 5 % of campaigns prove a difference that is not there",
    ),
    Term(
        "not confirmed",
        "imported runs show a difference: nobody attested how they were made, and no runs here proved it",
        ("shown, not confirmed", "slower, not confirmed", "faster, not confirmed"),
    ),
    Term("practically equal", "the whole interval of the difference lies within the margin"),
    Term(
        "undecided",
        "the interval holds both no difference and one beyond the margin: more runs would tell, and how many is said",
        ("not proven", "leads, not settled"),
    ),
    Term("no verdict", "nothing can be said of a difference: single runs, or an emulated machine"),
    Term("no bounds yet", "so few runs that the interval is without end, or too wide to be of use"),
    Term("SD", "standard deviation from run to run, as a share of the mean"),
    Term(
        "jitter",
        "standard deviation of the seconds of a run, as a share of their mean (coefficient of variation)",
        ("Jitter (CV of 1 s)",),
    ),
    Term(
        "stall",
        "seconds below a tenth of the run's own median, of which the longest stretch is the longest stall",
        ("stalls", "longest stall"),
    ),
    Term("a bad mode", "some runs of a stack are far slower than its others, as if it had two ways to work"),
    Term("load", "how long the driver takes to make the data: tables, rows, keys, vacuum"),
    Term("space", "what the medium holds after the load, by the filesystem's own account", ("space on the medium",)),
    Term(
        "failures",
        "shares of the transactions that failed, were skipped, late or retried (no other figure counts what failed)",
    ),
    Term(
        "durability",
        "what the configuration promises of acknowledged commits when power is lost, and what power cuts showed",
        ("durability class",),
    ),
    Term(
        "session time",
        "clients over transactions a second: what a transaction takes of the sessions' time, waits included",
    ),
    Term("storage", "a cause: sessions wait for WAL or data to be written, flushed or read"),
    Term("locks", "a cause: sessions wait for one another"),
    Term("processor", "a cause: sessions run, or wait in the queue for a processor"),
    Term("client", "a cause: sessions wait for the client or the network"),
    Term(
        "closed loop",
        "each client sends its next transaction when the last one is answered, so a stall lowers the load",
    ),
    Term(
        "open loop",
        "transactions are sent at a given rate whatever the server does, so latency counts waiting for a stall",
    ),
)
TITLE = "Terms"
_KNOWN: Mapping[str, Term] = {form.lower(): term for term in TERMS for form in (term.name, *term.forms)}


def explained(text: str) -> Markup:
    """Return the text, with an explanation for pointer, touch and keyboard if it is a term."""
    term = _KNOWN.get(text.lower())
    if term is None:
        return escape(text)
    return Markup('<span class="term" tabindex="0" data-tip="{}">{}</span>').format(
        f"{term.name}; {term.meaning}", text
    )


def explained_markup(sentence: str) -> Markup:
    """A marked-up sentence for the page: its strong words are explained where they are terms."""
    return render_markup_html(sentence, strong=explained)
