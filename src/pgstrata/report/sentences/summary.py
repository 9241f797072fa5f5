"""Summary of a cell: a handful of sentences, each with its sign; the others are collapsed.

Sentences on the best stack come first. Open pairs share one sentence, and so do remarks common to several stacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pgstrata.analyze.campaign.run_features import NOTABLE_HALF
from pgstrata.analyze.campaign.statements import (
    CheckpointCost,
    Choice,
    DeclaredBlocks,
    LevelChanges,
    LostRuns,
    NotConfirmed,
    NoVerdict,
    PairStatement,
    Period,
    SoakTrend,
    Stalls,
    Statement,
    Trend,
)
from pgstrata.analyze.findings import CellFinding, Findings
from pgstrata.report.sentences.markup import listed, quoted
from pgstrata.report.sentences.statements import (
    Tone,
    sentence,
    tone_of,
    uncounted_words,
    unlike_words,
    versus,
)
from pgstrata.report.sentences.steadiness import Remark, remark_detail, soak_words
from pgstrata.report.tables.verdicts import main_cells
from pgstrata.spec.printable import summarise_names

MOST_SENTENCES = 6
MOST_NAMES = 4
MOST_PAIRS = 2
"""Number of open pairs beyond which they share a sentence."""


@dataclass(frozen=True)
class Said:
    """A sentence and its sign."""

    tone: Tone
    words: str


@dataclass(frozen=True)
class Told:
    """Sentences shown for a cell, and collapsed ones."""

    said: tuple[Said, ...]
    more: tuple[Said, ...]


def told(cell: CellFinding, lead: str = "") -> Told:
    """Return every sentence on a cell, the most important first. `lead` replaces the first sentence, on the leader, and
    all others that it contains."""
    remarks = [s for s in cell.statements if isinstance(s, Remark)]
    verdicts = [s for s in cell.statements if not isinstance(s, Remark)]
    sentences = [*_verdicts(verdicts), *_remarks(remarks)]
    most = MOST_SENTENCES
    if lead:
        sentences, most = [said for said in sentences[1:] if said.words not in lead], most - 1
    if len(sentences) <= most + 1:  # a note that one more exists is as long as that sentence
        return Told(tuple(sentences), ())
    return Told(tuple(sentences[:most]), tuple(sentences[most:]))


def cell_words(cell: CellFinding, lead: str = "") -> tuple[str, ...]:
    """Return the sentences on a cell and the number of further ones on the page; `lead` replaces the one on the
    leader."""
    all_ = told(cell, lead)
    left = (f"{len(all_.more)} more sentences are on the page.",) if all_.more else ()
    return (*([lead] if lead else []), *(s.words for s in all_.said), *left)


def common_sentences(findings: Findings) -> tuple[str, ...]:
    """Return statements common to all of several cells, to be shown once: no verdict, intervals for a declared number
    of blocks only, lost runs."""
    cells = main_cells(findings)
    common = NoVerdict | DeclaredBlocks | LostRuns
    first = [s for s in cells[0].statements if isinstance(s, common)] if len(cells) > 1 else []
    return tuple(sentence(s) for s in first if all(s in cell.statements for cell in cells))


# ---------------------------------------------------------------- verdicts


def _verdicts(statements: Sequence[Statement]) -> Iterator[Said]:
    """Yield pairs with the leader before other pairs; open ones together."""
    leader = next((s.subject for s in statements if isinstance(s, Choice)), None)
    pairs = [s for s in statements if isinstance(s, PairStatement)]
    open_ = [p for p in pairs if p.relation == "undecided"]
    shared = {id(p) for p in open_} if len(open_) > MOST_PAIRS else set()
    named = {frozenset((p.subject, p.object)) for p in open_}
    ahead = [s for s in statements if not isinstance(s, PairStatement) or leader in (s.subject, s.object)]
    ahead.sort(key=lambda s: not isinstance(s, Choice))
    others = [p for p in pairs if leader not in (p.subject, p.object)]
    slopes = [s for s in statements if isinstance(s, SoakTrend)]
    shared |= {id(s) for s in slopes} if len(slopes) > 1 else set()
    told_open = told_slopes = False
    for statement in (*ahead, *others):
        if isinstance(statement, NotConfirmed) and frozenset((statement.subject, statement.object)) in named:
            continue  # that pair is reported as undecided, with the cost of settling it
        if id(statement) not in shared:
            yield Said(tone_of(statement), sentence(statement))
        elif isinstance(statement, SoakTrend):
            if not told_slopes:
                yield Said("plain", soak_words(slopes))
            told_slopes = True
        elif not told_open:
            told_open = True
            yield Said("undecided", _open_pairs([p for p in (*ahead, *others) if id(p) in shared]))


def _open_pairs(pairs: Sequence[Statement]) -> str:
    found = [p for p in pairs if isinstance(p, PairStatement)]
    uncounted = {name: shares for p in found for name, shares in p.uncounted.items()}
    words = summarise_names([versus(p) for p in found], MOST_NAMES, noun="pairs")
    unlike: dict[str, dict[str, str]] = {}
    for what, values in ((what, values) for p in found for what, values in p.unlike.items()):
        unlike.setdefault(what, {}).update(values)
    return f"**Undecided**: {words}.{unlike_words(unlike)}{uncounted_words(uncounted)}"


# ---------------------------------------------------------------- remarks


def _remarks(remarks: Sequence[Remark]) -> Iterator[Said]:
    """Yield one sentence per kind: lost seconds first, then differences between seconds."""
    groups: dict[tuple[int, bool], list[Remark]] = {}
    for remark in remarks:
        groups.setdefault((list(_KINDS).index(type(remark)), getattr(remark, "soak", False)), []).append(remark)
    for _, group in sorted(groups.items(), key=lambda item: item[0]):
        worst = max(group, key=lambda one: _KINDS[type(one)][1](one))
        alone = sentence(worst)
        yield Said(tone_of(worst), alone if len(group) == 1 else _together(group, worst))


_KINDS: dict[type[Remark], tuple[str, Callable[[Any], float]]] = {
    Stalls: ("**stall**", lambda one: one.stall_fraction + one.half_fraction * (one.half_fraction >= NOTABLE_HALF)),
    CheckpointCost: ("follow the checkpoints", lambda one: one.depth),
    Trend: ("drift within a run", lambda one: abs(one.per_hour)),
    LevelChanges: ("change their level within a run", lambda one: one.step or 0.0),
    Period: ("swing", lambda one: one.swing or 0.0),
}
"""Words on several stacks, and the size of a remark; the most important kind first."""


def _together(group: Sequence[Remark], worst: Remark) -> str:
    """Return the stacks, and the figures of the one with the largest."""
    soak = "Soak: " if getattr(worst, "soak", False) else ""
    names = _several([r.subject for r in group])
    return f"{soak}{names} {_KINDS[type(worst)][0]}, most of all {quoted(worst.subject)}: {remark_detail(worst)}."


def _several(names: Sequence[str]) -> str:
    if len(names) <= MOST_NAMES + 1:
        return listed(names)
    return summarise_names([quoted(name) for name in names], MOST_NAMES, noun="stacks")
