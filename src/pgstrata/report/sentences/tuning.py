"""The answer of a screening (`pgstrata tune`) in sentences, and the configuration to paste."""

from __future__ import annotations

from collections.abc import Iterator

from pgstrata.analyze.finding import FactorFinding, InteractionFinding, TuningFinding
from pgstrata.analyze.findings import Findings
from pgstrata.report.sentences.crash import durability_words
from pgstrata.report.sentences.figures import percent, render_count, render_percent
from pgstrata.report.sentences.markup import listed, quoted
from pgstrata.report.tables.pairs import Index
from pgstrata.report.tables.verdicts import verdict_words
from pgstrata.spec.stack import Stack


def tuning_answer(found: TuningFinding, margin: float, confirmed: str = "") -> str:
    """Return what matters, what does not, what is open, and the chosen combination, with the result of the fresh
    runs of it."""
    by: dict[str, list[FactorFinding]] = {}
    for factor in sorted(found.factors, key=lambda f: -abs(f.effect or 0.0)):
        by.setdefault(factor.verdict, []).append(factor)
    acting = by.get("matters", [])
    head = f"Of {render_count(len(found.factors), 'factor')} "
    if acting:
        verb = "matters" if len(acting) == 1 else "matter"
        parts = [f"{head}{len(acting)} {verb}: {'; '.join(map(_acting_words, acting))}."]
    else:
        parts = [f"{head}none is shown to matter."]
    if all(factor.low is None for factor in found.factors):
        return f"{parts[0]} There are no intervals yet: it takes two blocks of all stacks, so give more --minutes."
    if nothing := by.get("no effect"):
        parts.append(f"No effect beyond {percent(margin)}: {listed([f.name for f in nothing])}.")
    if undecided := [f for f in by.get("undecided", ()) if f.effect is not None]:
        most = max(max(abs(f.low or 0.0), abs(f.high or 0.0)) for f in undecided)
        parts.append(f"Undecided, each within ±{percent(most)}: {listed([f.name for f in undecided])}.")
    if unknown := [f"{f.name}={f.change}" for f in found.factors if f.effect is None]:
        parts.append(f"**Not measured**: {listed(unknown)}, because stacks with it did not run.")
    if found.expected is not None:
        chosen = [f"{f.name}={f.change}" for f in found.factors if f.chosen]
        hoped = f"should gain {percent(found.expected)}: fresh runs must confirm it."
        parts.append(f"Together {listed(chosen)} {confirmed or hoped}")
    elif acting:
        parts.append("No change that matters is a gain within the durability class of the start.")
    return " ".join(parts)


def _acting_words(factor: FactorFinding) -> str:
    weaker = f", but {factor.class_}" if factor.class_ else ""
    return f"{quoted(f'{factor.name}={factor.change}')} {effect_words(factor.effect, factor.low, factor.high)}{weaker}"


def confirmed_words(findings: Findings) -> str:
    """Return what fresh runs and power cuts say of the chosen combination, the last stack, against the first; empty
    without fresh runs of both."""
    stacks = findings.stacks[:2]
    found = Index(findings).pair(stacks[0].cell, stacks[1].name, stacks[0].name) if len(stacks) == 2 else None
    if found is None or found.ratio is None:
        return ""
    low, high = (None if v is None else v - 1 for v in (found.low, found.high))
    gain = effect_words(found.ratio - 1, low, high)
    proof = "confirmed" if found.verdict == "better" else f"not confirmed ({verdict_words(found)[0]})"
    return f"gain {gain} in fresh runs: {proof}. Durability: {durability_words(stacks[1].durability)}."


def effect_words(effect: float | None, low: float | None, high: float | None) -> str:
    """Return `+18 % (+14 % to +22 %)`."""
    if effect is None:
        return "no estimate"
    if low is None or high is None:
        return f"{render_percent(effect, sign=True)} (no bounds yet)"
    low_words, high_words = render_percent(low, sign=True), render_percent(high, sign=True)
    return f"{render_percent(effect, sign=True)} ({low_words} to {high_words})"


def interaction_words(found: InteractionFinding) -> str:
    """Return one sentence on an interaction, with its aliases."""
    a, b = found.factors
    effect = effect_words(found.effect, found.low, found.high)
    other = " or ".join(f"{quoted(x)} × {quoted(y)}" for x, y in found.aliases)
    also = f"; the runs do not tell it from {other}" if other else ""
    return f"Interaction of {quoted(a)} and {quoted(b)}: {found.verdict}, {effect}{also}."


def paste_lines(start: Stack, tuned: Stack) -> Iterator[str]:
    """Yield the settings of server and kernel that the chosen combination has beyond the start."""
    had = start.postgresql.settings
    for name, value in tuned.postgresql.settings.items():
        if had.get(name) != value:
            yield f"postgresql.conf: {name} = '{value}'"
    for name, value in tuned.kernel.sysctl.items():
        if start.kernel.sysctl.get(name) != value:
            yield f"sysctl.conf: {name} = {value}"
    if tuned.kernel.transparent_hugepage not in (None, start.kernel.transparent_hugepage):
        yield f"/sys/kernel/mm/transparent_hugepage/enabled: {tuned.kernel.transparent_hugepage}"
    for name, value in tuned.kernel.queue.model_dump(exclude_none=True).items():
        if getattr(start.kernel.queue, name) != value:
            yield f"/sys/block/DEVICE/queue/{name}: {value}"
