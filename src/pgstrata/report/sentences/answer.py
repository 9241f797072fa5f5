"""The answer: the best stack or the open question, the time to settle it, and the reason why the best is ahead."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgstrata.analyze.campaign.evidence import recorded_seconds
from pgstrata.analyze.campaign.statements import Choice, NoVerdict
from pgstrata.analyze.crash import effective_durability
from pgstrata.analyze.findings import CellFinding, Comparison, Findings
from pgstrata.analyze.stats.detectable_difference import least_blocks
from pgstrata.record.decision import COMPARISON
from pgstrata.record.reader import CampaignData
from pgstrata.report.sentences.figures import percent, render_count
from pgstrata.report.sentences.markup import listed, quoted
from pgstrata.report.sentences.statements import (
    bare_sentence,
    beyond_words,
    caveat_words,
    comparison_words,
    rounds_words,
    sentence,
)
from pgstrata.report.sentences.tuning import tuning_answer
from pgstrata.report.sentences.why import reason_words
from pgstrata.report.tables.verdicts import main_cells
from pgstrata.spec.durability import of_class
from pgstrata.spec.quick import extension_options
from pgstrata.spec.units import render_duration

Command = Callable[[int | None, int | None], str]
"""Command that continues the campaign until a number of minutes, or of blocks, is reached."""


LARGEST_BOUND = 0.5
"""A larger difference that is not excluded leaves everything open."""
MOST_TOLD = 3
"""Verdicts beside an open question."""
FAR_ERRORS = 3.0
"""Standard errors between two stacks from which on a stack that is not proven worse is reported as far behind."""
_STAYING = " if the differences stay as they are"
"""The condition of the forecast, the same for every pair."""


@dataclass(frozen=True)
class Settling:
    """Cost to settle the open pairs of a cell."""

    more_s: float | None
    """Further machine time; None while the scatter of the runs is unknown, infinite beyond a limit."""
    minutes: int | None = None
    """The new total budget."""
    blocks: int | None = None
    """The new total number of blocks, if a number was declared."""
    hosts: int | None = None
    """Number of further hosts, if hosts are counted: more time on the same ones does not replace them."""
    beyond: str = ""
    """The limit that time, pairs or hosts exceed."""

    @property
    def goes_on(self) -> bool:
        """True if a command can settle the pairs."""
        return not self.beyond and self.hosts is None


@dataclass(frozen=True)
class CellAnswer:
    """The main result of a cell."""

    words: str
    settled: bool
    cost: str
    """Cost to settle it; empty if it is settled, or cannot be continued (imports)."""
    settling: Settling | None
    reason: str
    """Reason why the best is ahead, as far as known; empty if nothing was recorded."""

    def whole(self, command: Command) -> str:
        """Return words, cost and the command, as one line."""
        if not self.cost:
            return self.words
        if self.settling is None or not self.settling.goes_on:
            return f"{self.words} {self.cost}."
        return f"{self.words} {self.cost}: {command(self.settling.minutes, self.settling.blocks)}"


def cell_answer(data: CampaignData, findings: Findings, cell: CellFinding) -> CellAnswer | None:
    """Return the answer; None if nothing was compared and more runs of the same kind would not change that."""
    if findings.tuning is not None and findings.tuning.cell == cell.id:
        return CellAnswer(tuning_answer(findings.tuning, findings.campaign.margin), True, "", None, "")
    choice = _choice(cell)
    if choice is None:
        return _too_few(data, cell)
    settled = choice.relation != "leads"
    words = _settled_words(findings, cell, choice) if settled else _open_words(findings, cell, choice)
    goes_on = not settled and choice.bad_mode_cost is None and not findings.campaign.origin.startswith("import")
    settling = _settling(data, findings, cell, choice) if goes_on else None
    return CellAnswer(words, settled, _cost(settling), settling, reason_words(findings, cell, choice.class_))


def _too_few(data: CampaignData, cell: CellFinding) -> CellAnswer | None:
    """Return the answer for a campaign that ended before any verdict was possible, though stacks ran: the time to
    bounds."""
    found = next((s for s in cell.statements if isinstance(s, NoVerdict) and s.reason == "too few runs"), None)
    campaign = data.campaign
    seconds = recorded_seconds(data)
    if found is None or len(seconds) < 2 or campaign.hosts:
        return None
    declared, cells = campaign.runs.blocks is not None, len(campaign.workload.cells)
    least = least_blocks(campaign.goal.kind, len(seconds), fixed=declared, cells=cells)
    more = max(1, least - _compared_blocks(data))
    more_s = more * sum(seconds.values())
    cost = f"About {render_duration(60 * math.ceil(more_s / 60))} more have room for bounds"
    return CellAnswer(sentence(found), False, cost, _until(data, more_s, more_s, more), "")


def generic_command(minutes: int | None, blocks: int | None) -> str:
    """Return the command for a reader who knows the place of the campaign."""
    return f"`{' '.join(['pgstrata', 'run', 'DIR', *extension_options(minutes, blocks)])}`"


def answer(data: CampaignData, findings: Findings, command: Command) -> str:
    """Return one sentence, with the command that would settle the open question; empty if nothing was compared."""
    answers = [a for cell in main_cells(findings) if (a := cell_answer(data, findings, cell)) is not None]
    if not answers or findings.campaign.origin.startswith("import"):
        return ""
    if len(answers) == 1:
        return answers[0].whole(command)
    left_open = [a for a in answers if a.settling is not None]
    head = f"The best is chosen in {len(answers) - len(left_open)} of {render_count(len(answers), 'cell')}."
    if not left_open:
        return head
    longest = max(left_open, key=_longest)
    return CellAnswer(head, False, longest.cost, longest.settling, "").whole(command)


def reason(data: CampaignData, findings: Findings) -> str:
    """Return why the best is ahead, for a campaign of one cell; empty if that is unknown, or there are several
    cells."""
    cells = main_cells(findings)
    found = cell_answer(data, findings, cells[0]) if len(cells) == 1 else None
    return found.reason if found is not None else ""


def _longest(found: CellAnswer) -> float:
    """Return the sort key: a time beyond its limit is the longest."""
    if found.settling is None or found.settling.more_s is None:
        return 0.0
    return found.settling.more_s


def _cost(settling: Settling | None) -> str:
    if settling is None:
        return ""
    if settling.hosts is not None:
        return f"About {render_count(settling.hosts, 'more host')} would settle it{_STAYING}"
    if settling.beyond:
        return f"It would take more than {settling.beyond} to settle it"
    return (
        "More runs are needed to estimate the time that settles it"
        if settling.more_s is None
        else _more_words(settling.more_s)
    )


def _more_words(more_s: float) -> str:
    return f"About {render_duration(60 * math.ceil(more_s / 60))} more would settle it{_STAYING}"


def _choice(cell: CellFinding) -> Choice | None:
    return next((s for s in cell.statements if isinstance(s, Choice)), None)


def _open_words(findings: Findings, cell: CellFinding, choice: Choice) -> str:
    if choice.bad_mode_cost is not None:
        return sentence(choice)
    open_ = {c.b if c.a == choice.subject else c.a: c for c in _open(findings, cell, choice)}
    far = [name for name, c in open_.items() if _is_far(c)]
    close = [name for name in open_ if name not in far]
    far = far if close else []
    against = f" against {listed(close or list(open_))}" if open_ else ""
    behind = "".join(f" {_behind_words(name, open_[name])}." for name in far)
    leads = f"{bare_sentence(choice).split(' leads,')[0]} leads, which is **not proven**{against}."
    imported = findings.campaign.origin.startswith("import")
    bounds = _bound_words(choice.subject, [c for name, c in open_.items() if name in close], imported)
    return f"{leads}{bounds}{behind}{_proven_words(findings, cell, choice)}{caveat_words(choice)}"


def _behind_words(name: str, comparison: Comparison) -> str:
    """Return how often a stack far behind was slower, and why that is no proof."""
    counted = rounds_words(comparison.a, comparison.b, comparison.metric, comparison.rounds)
    return f"{counted or f'{quoted(name)} is far behind'}: too few runs for a proof"


def _bound_words(leader: str, open_: Sequence[Comparison], imported: bool) -> str:
    """Return the largest difference that the intervals of open pairs leave; empty where they leave more than is of
    use."""
    if not open_ or any(c.scale != "ratio" or c.low is None or c.high is None for c in open_):
        return ""
    most = max(max(c.high or math.inf, 1 / c.low if c.low else math.inf) - 1 for c in open_)
    if most > LARGEST_BOUND:
        return ""
    names = listed([leader, *(c.b if c.a == leader else c.a for c in open_)])
    subject = f"{names} differ by at most" if len(open_) == 1 else "They differ from it by at most"
    time = "" if imported else ", or give it more time"
    return f" {subject} {percent(most)}: choose by other grounds{time}."


def _proven_words(findings: Findings, cell: CellFinding, choice: Choice) -> str:
    """Return the verdicts on other stacks of the class, beside the open ones."""
    others = _with_rivals(findings, cell, choice).values()
    told = [comparison_words(c.model_copy(update={"uncounted": {}, "unlike": {}})) for c in others if _is_proven(c)]
    return "".join(f" {words}" for words in told[:MOST_TOLD])


def _is_proven(comparison: Comparison) -> bool:
    return comparison.verdict in ("better", "worse")


def _is_far(comparison: Comparison) -> bool:
    """Return True if an open pair lies so far apart that only its few runs keep it open."""
    ratio, sigma, pairs = comparison.ratio, comparison.sigma, comparison.pairs
    if ratio is None or not sigma or not pairs:
        return False
    value = math.log(ratio) if comparison.scale == "ratio" and ratio > 0 else ratio
    return abs(value) > FAR_ERRORS * sigma / math.sqrt(pairs)


def _settled_words(findings: Findings, cell: CellFinding, choice: Choice) -> str:
    """Name the chosen stack, and its lead over the next one of its class if there is a verdict on it."""
    pairs = _with_rivals(findings, cell, choice)
    runner_up = next((pairs[name] for name in cell.ranking if name in pairs), None)
    if runner_up is None or runner_up.verdict not in ("better", "worse"):
        return sentence(choice)
    behind = comparison_words(runner_up.model_copy(update={"uncounted": {}, "unlike": {}}))
    return f"{bare_sentence(choice)} {behind}{caveat_words(choice)}"


def _open(findings: Findings, cell: CellFinding, choice: Choice) -> tuple[Comparison, ...]:
    """Return comparisons with stacks that could be chosen instead and have no verdict."""
    return tuple(c for c in _with_rivals(findings, cell, choice).values() if c.verdict == "undecided")


def _with_rivals(findings: Findings, cell: CellFinding, choice: Choice) -> dict[str, Comparison]:
    """Return comparisons of the leader with stacks that could be chosen instead, by their names; one for each."""
    classes = {s.name: effective_durability(s.durability) for s in findings.stacks if s.cell == cell.id and s.n}
    rivals = of_class(classes, choice.class_) if choice.class_ else tuple(classes)
    found: dict[str, Comparison] = {}
    for c in findings.comparisons:  # those of fresh pairs first, which override screening
        if c.cell == cell.id and c.margin is not None and choice.subject in (c.a, c.b):
            found.setdefault(c.b if c.a == choice.subject else c.a, c)
    return {name: c for name, c in found.items() if name in rivals}


def _settling(data: CampaignData, findings: Findings, cell: CellFinding, choice: Choice) -> Settling:
    seconds, blocks = recorded_seconds(data), _compared_blocks(data)
    pairs = _open(findings, cell, choice)
    if not pairs or any(c.sigma is None or not c.sigma > 0 for c in pairs):
        return _until(data, None, blocks * sum(seconds.values()), blocks)
    more, hosts = [(c, c.needed_pairs) for c in pairs if c.needed_pairs is not None], pairs[0].source == "hosts"
    most = max((n for _, n in more), default=0)
    if beyond := beyond_words(most if len(more) == len(pairs) else None, 0.0, hosts=hosts):
        return Settling(math.inf, beyond=beyond)
    if hosts:
        return Settling(None, hosts=most)
    if data.campaign.runs.blocks is not None:
        more_s = most * sum(seconds.values())
        return _until(data, more_s, more_s, most)
    runs = {name: max(n for c, n in more if name in (c.a, c.b)) for c, _ in more for name in (c.a, c.b)}
    more_s = sum(n * seconds.get(name, 0.0) for name, n in runs.items())
    return _until(data, more_s, more_s, most)


def _until(data: CampaignData, told_s: float | None, more_s: float, blocks: int) -> Settling:
    """Return the totals after adding this time or number of blocks to the finished work."""
    if beyond := beyond_words(blocks, more_s, hosts=False):
        return Settling(math.inf, beyond=beyond)
    spent_s = sum(t.verdict.duration_s for t in data.trials)
    declared, budget_s = data.campaign.runs.blocks, data.campaign.runs.budget
    minutes = math.ceil((spent_s + more_s) / 60)
    if declared is None:
        return Settling(told_s, minutes=minutes)
    return Settling(told_s, minutes=minutes if budget_s is not None else None, blocks=declared + blocks)


def _compared_blocks(data: CampaignData) -> int:
    """Return the number of blocks of the comparison."""
    return len({t.trial.block for t in data.trials if t.trial.stage in COMPARISON})
