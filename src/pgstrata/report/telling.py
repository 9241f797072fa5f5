"""What is said of a cell: a handful of sentences, each with its sign; the others are kept for those who look further.

Said first is what concerns the best stack. Pairs that are open are told in one sentence, and so is what several stacks
have in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from pgstrata.analyze.findings import CellFinding, Findings
from pgstrata.analyze.statements import (
    CheckpointCost,
    Choice,
    DeclaredBlocks,
    LevelChanges,
    NotConfirmed,
    NoVerdict,
    PairStatement,
    Period,
    SoakTrend,
    Stalls,
    Statement,
    Trend,
)
from pgstrata.analyze.steadiness import NOTABLE_HALF
from pgstrata.report.table import main_cells
from pgstrata.report.words import Remark, Tone, listed, quoted, remark_detail, sentence, soak_words, tone_of, versus
from pgstrata.spec.naming import first_named

MOST_SENTENCES = 6
MOST_NAMES = 4
MOST_PAIRS = 2
"""Open pairs beyond which they share a sentence."""


@dataclass(frozen=True)
class Said:
    """A sentence and its sign."""

    tone: Tone
    words: str


@dataclass(frozen=True)
class Told:
    """What is said of a cell, and what is folded away."""

    said: tuple[Said, ...]
    more: tuple[Said, ...]


def told(cell: CellFinding, lead: str = "") -> Told:
    """Every sentence on a cell, those that matter most first; where somebody leads, that is the first of all. `lead`
    stands for that one, and for all that it holds."""
    remarks = [s for s in cell.statements if isinstance(s, Remark)]
    verdicts = [s for s in cell.statements if not isinstance(s, Remark)]
    sentences = [*_verdicts(verdicts), *_remarks(remarks)]
    most = MOST_SENTENCES
    if lead:
        sentences, most = [said for said in sentences[1:] if said.words not in lead], most - 1
    if len(sentences) <= most + 1:  # a line that says that there is one more is as long as that one
        return Told(tuple(sentences), ())
    return Told(tuple(sentences[:most]), tuple(sentences[most:]))


def cell_words(cell: CellFinding, lead: str = "") -> tuple[str, ...]:
    """What is said of a cell, and how many sentences the page has besides; `lead` stands for who is ahead."""
    all_ = told(cell, lead)
    left = (f"{len(all_.more)} more sentences are on the page.",) if all_.more else ()
    return (*([lead] if lead else []), *(s.words for s in all_.said), *left)


def said_everywhere(findings: Findings) -> tuple[str, ...]:
    """That there is no verdict, and that intervals are of a declared number of blocks, where this holds for every one
    of several cells: said once for all of them."""
    cells = main_cells(findings)
    first = [s for s in cells[0].statements if isinstance(s, NoVerdict | DeclaredBlocks)] if len(cells) > 1 else []
    return tuple(sentence(s) for s in first if all(s in cell.statements for cell in cells))


# ---------------------------------------------------------------- verdicts


def _verdicts(statements: Sequence[Statement]) -> Iterator[Said]:
    """Pairs with the leader before other pairs; open ones together."""
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
            continue  # that pair is said to be undecided, and what would settle it
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
    texts = [versus(p) for p in pairs if isinstance(p, PairStatement)]
    return f"**Undecided**: {first_named(texts, MOST_NAMES, noun='pairs')}."


# ---------------------------------------------------------------- remarks


def _remarks(remarks: Sequence[Remark]) -> Iterator[Said]:
    """One sentence a kind: lost seconds first, then what seconds differ by."""
    groups: dict[tuple[int, bool], list[Remark]] = {}
    for remark in remarks:
        groups.setdefault((_kind(remark), getattr(remark, "soak", False)), []).append(remark)
    for _, group in sorted(groups.items(), key=lambda item: item[0]):
        worst = max(group, key=_weight)
        alone = sentence(worst)
        yield Said(tone_of(worst), alone if len(group) == 1 else _together(group, worst))


def _kind(remark: Remark) -> int:
    return (Stalls, CheckpointCost, Trend, LevelChanges, Period).index(type(remark))


def _weight(remark: Remark) -> float:
    match remark:
        case Stalls():
            return remark.stall_fraction + remark.half_fraction * (remark.half_fraction >= NOTABLE_HALF)
        case CheckpointCost():
            return remark.depth
        case Trend():
            return abs(remark.per_hour)
        case LevelChanges():
            return remark.step or 0.0
        case Period():
            return remark.swing or 0.0
    assert_never(remark)


def _together(group: Sequence[Remark], worst: Remark) -> str:
    """The stacks, and the figures of the one where they are greatest."""
    soak = "Soak: " if getattr(worst, "soak", False) else ""
    names = _several([r.subject for r in group])
    return f"{soak}{names} {_SHARED[type(worst)]}, most of all {quoted(worst.subject)}: {remark_detail(worst)}."


_SHARED: dict[type[Remark], str] = {
    Stalls: "**stall**",
    CheckpointCost: "follow the checkpoints",
    Trend: "drift within a run",
    LevelChanges: "change their level within a run",
    Period: "swing",
}


def _several(names: Sequence[str]) -> str:
    if len(names) <= MOST_NAMES + 1:
        return listed(names)
    return first_named([quoted(name) for name in names], MOST_NAMES, noun="stacks")
