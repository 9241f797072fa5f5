"""The answer in one sentence: the best stack, or what is open and how long it would take to settle it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from pgstrata.analyze.findings import CellFinding, Choice, Comparison, Findings
from pgstrata.record.reader import CampaignData
from pgstrata.report.figures import render_count
from pgstrata.report.table import main_cells
from pgstrata.report.words import LONGEST_SETTLING_S, listed, sentence
from pgstrata.spec.durability import of_class
from pgstrata.spec.units import render_duration

Command = Callable[[int | None, int | None], str]
"""What to type to go on until so many minutes, or so many blocks, are reached."""


@dataclass(frozen=True)
class Settling:
    """What would settle the open pairs of a cell."""

    more_s: float | None
    """Machine time; None while the scatter of the runs is not known, infinite where none is affordable."""
    minutes: int | None = None
    """The whole budget then."""
    blocks: int | None = None
    """The whole number of blocks then, where a number was declared."""


def answer(data: CampaignData, findings: Findings, command: Command) -> str:
    """One sentence, with the command that would settle what is open; empty where nothing was compared."""
    cells = [(cell, choice) for cell in main_cells(findings) if (choice := _choice(cell)) is not None]
    if not cells or findings.campaign.origin.startswith("import"):
        return ""
    left_open = [(cell, choice) for cell, choice in cells if choice.relation == "leads"]
    if len(cells) > 1:
        head = f"The best is chosen in {len(cells) - len(left_open)} of {render_count(len(cells), 'cell')}."
    else:
        head = sentence(cells[0][1]) if not left_open else _open_words(findings, *left_open[0])
    if not left_open:
        return head
    wanted = [_settling(data, findings, cell, choice) for cell, choice in left_open]
    costs = [w.more_s for w in wanted]
    longest = max(wanted, key=lambda w: math.inf if w.more_s is None else w.more_s)
    if any(cost is not None and math.isinf(cost) for cost in costs):
        return f"{head} No affordable number of runs would settle it."
    more = "More runs would tell what it takes" if longest.more_s is None else _more_words(longest.more_s)
    return f"{head} {more}: {command(longest.minutes, longest.blocks)}"


def _more_words(more_s: float) -> str:
    return f"About {render_duration(60 * math.ceil(more_s / 60))} more would settle it"


def _choice(cell: CellFinding) -> Choice | None:
    return next((s for s in cell.statements if isinstance(s, Choice)), None)


def _open_words(findings: Findings, cell: CellFinding, choice: Choice) -> str:
    rivals = [c.b if c.a == choice.subject else c.a for c in _open(findings, cell, choice)]
    against = f" against {listed(rivals)}" if rivals else ""
    return f"{sentence(choice).split(' leads,')[0]} leads, which is not proven{against}."


def _open(findings: Findings, cell: CellFinding, choice: Choice) -> tuple[Comparison, ...]:
    """Comparisons of the leader with stacks that could be chosen instead and have no verdict; one for each stack."""
    classes = {s.name: s.durability.class_ for s in findings.stacks if s.cell == cell.id and s.n}
    rivals = of_class(classes, choice.class_) if choice.class_ else tuple(classes)
    found: dict[str, Comparison] = {}
    for c in findings.comparisons:  # those of fresh pairs first, which overrule screening
        if c.cell == cell.id and c.margin is not None and choice.subject in (c.a, c.b):
            found.setdefault(c.b if c.a == choice.subject else c.a, c)
    return tuple(c for name, c in found.items() if name in rivals and c.verdict == "undecided")


def _settling(data: CampaignData, findings: Findings, cell: CellFinding, choice: Choice) -> Settling:
    spent_s = findings.campaign.machine_time_s
    blocks = 1 + max((t.trial.block for t in data.trials), default=0)
    pairs = _open(findings, cell, choice)
    if not pairs or any(c.sigma is None or not c.sigma > 0 for c in pairs):
        return _until(data, None, spent_s, blocks)
    needed = [c.needed_pairs for c in pairs]
    if any(n is None for n in needed):
        return Settling(math.inf)
    more = [(c, n) for c, n in zip(pairs, needed, strict=True) if n is not None]
    most = max(n for _, n in more)
    if data.campaign.runs.blocks is not None:
        return _until(data, most * spent_s / blocks, most * spent_s / blocks, most)
    seconds = {name: fmean(values) for name, values in _seconds(data)}
    runs = {name: max(n for c, n in more if name in (c.a, c.b)) for c, _ in more for name in (c.a, c.b)}
    more_s = sum(n * seconds.get(name, 0.0) for name, n in runs.items())
    return _until(data, more_s, more_s, most)


def _until(data: CampaignData, told_s: float | None, more_s: float, blocks: int) -> Settling:
    """So much more than what was done."""
    if more_s > LONGEST_SETTLING_S:
        return Settling(math.inf)
    spent_s = sum(t.verdict.duration_s for t in data.trials)
    declared, budget_s = data.campaign.runs.blocks, data.campaign.runs.budget
    minutes = math.ceil((spent_s + more_s) / 60)
    if declared is None:
        return Settling(told_s, minutes=minutes)
    return Settling(told_s, minutes=minutes if budget_s is not None else None, blocks=declared + blocks)


def _seconds(data: CampaignData) -> Iterator[tuple[str, Sequence[float]]]:
    """Machine time of the trials of each stack."""
    found: dict[str, list[float]] = {}
    for trial in data.trials:
        found.setdefault(trial.trial.stack, []).append(trial.verdict.duration_s)
    yield from found.items()
