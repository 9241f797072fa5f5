"""The verdicts of crash trials in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pgstrata.analyze.crash import broke_promise, share_bound
from pgstrata.analyze.findings import DurabilityFinding, Findings
from pgstrata.record.reader import CampaignData
from pgstrata.report.crash_cluster import cluster_words, power_words, short_cluster_words, went_on_words
from pgstrata.report.crash_picture import CutPicture, draw_cut
from pgstrata.report.crash_story import Story, tell_story
from pgstrata.report.figures import render_count
from pgstrata.spec.crash_trials import SHOWN

POWER = "Power cuts"
EXPLAINED = (
    "PostgreSQL was recovered in states that a power cut could have left of a recorded disk, and asked for every "
    "transaction that it had acknowledged. A stack that held in so many states is not proven safe."
)
NODES = "Lost nodes"
NODES_EXPLAINED = (
    "Of clusters nodes were taken away with all that they had, at moments when all of them stood still; one that was "
    "left was promoted, and asked for every transaction that had been acknowledged by then. Every other set of lost "
    "nodes is reckoned from the WAL that each node held. Another failure, or a longer one, may take more."
)
ANYWHERE = "DIR"
"""Stands for the campaign directory, where nobody knows where the reader has it."""


@dataclass(frozen=True)
class PowerCutRow:
    """What the page says of one stack."""

    name: str
    found: str
    first: str
    held: bool
    promise: str
    reason: str
    broken: bool


@dataclass(frozen=True)
class PowerCuts:
    """The page's section."""

    title: str
    explained: str
    rows: tuple[PowerCutRow, ...]
    stories: tuple[tuple[Story, CutPicture | None], ...]
    """Of the stacks that failed, where a failing state was made as small as possible."""


def power_cuts_view(data: CampaignData, findings: Findings) -> PowerCuts | None:
    """None where power was not cut."""
    tested = tested_stacks(findings)
    rows = tuple(_row(name, durability) for name, durability in tested.items())
    pictures = {crash.found.stack: draw_cut(crash.minimal) for crash in data.crashes if crash.minimal}
    told = tuple((story, pictures[name]) for name, story in stories(data, tested, ANYWHERE).items())
    return PowerCuts(title_of(tested), explained_of(tested), rows, told) if rows else None


def title_of(tested: Mapping[str, DurabilityFinding]) -> str:
    """Of what was done to the stacks."""
    return " and ".join(what if at == 0 else what.lower() for at, (what, _) in enumerate(_done(tested)))


def explained_of(tested: Mapping[str, DurabilityFinding]) -> str:
    """The same in a few sentences."""
    return " ".join(explained for _, explained in _done(tested))


def _done(tested: Mapping[str, DurabilityFinding]) -> list[tuple[str, str]]:
    clusters = [durability.cluster is not None for durability in tested.values()]
    return [(POWER, EXPLAINED)] * (not all(clusters)) + [(NODES, NODES_EXPLAINED)] * any(clusters)


def stories(data: CampaignData, tested: Mapping[str, DurabilityFinding], place: str) -> dict[str, Story]:
    """The story of each stack that has one; `place` is where the campaign directory lies."""
    told = {
        crash.found.stack: tell_story(crash, tested[crash.found.stack], place)
        for crash in data.crashes
        if crash.found.stack in tested
    }
    return {name: story for name, story in told.items() if story is not None}


def _row(name: str, durability: DurabilityFinding) -> PowerCutRow:
    return PowerCutRow(
        name=name,
        found=verdict_words(durability),
        first=durability.first_counterexample or "",
        held=durability.verdict == "held",
        promise=durability.class_,
        reason=durability.reason,
        broken=broke_promise(durability),
    )


def tested_stacks(findings: Findings) -> dict[str, DurabilityFinding]:
    """The durability of every stack that crash trials looked at, in their order."""
    found = {stack.name: stack.durability for stack in findings.stacks}
    return {name: durability for name, durability in found.items() if durability.verdict != "not_tested"}


def shows_runs(data: CampaignData) -> bool:
    """Whether there are runs to show, or none because there were nothing but crash trials."""
    return bool(data.trials) or not data.crashes


def crash_lines(tested: Mapping[str, DurabilityFinding], told: Mapping[str, Story]) -> Iterator[str]:
    """A line for each stack, and where it failed or broke its promise more, with the story of a state."""
    for name, durability in tested.items():
        yield f"{name}: {verdict_words(durability)}"
        if durability.first_counterexample:
            yield f"  first: {durability.first_counterexample}"
        if broke_promise(durability):
            yield f"  its configuration promises that it {durability.class_}: {durability.reason}"
        if name in told:
            yield from (f"  {line}" for line in told[name].lines)


def durability_words(durability: DurabilityFinding) -> str:
    """Of the verdict table: the class from the configuration and, where power was cut, what came of it."""
    if durability.verdict == "not_tested":
        return f"{durability.class_}; not tested: {durability.untested}" if durability.untested else durability.class_
    if durability.cluster is not None:
        return f"{durability.class_}; {short_cluster_words(durability.cluster, durability)}"
    nodes = "all nodes lost power: " if durability.power is not None else ""
    return f"{durability.class_}; {nodes}{_short_words(durability)}{_in_brackets(_beside(durability))}"


def _short_words(durability: DurabilityFinding) -> str:
    """`held in 1,204 states`, `lost up to 38 acknowledged commits`."""
    states, most = render_count(durability.states, "state"), durability.lost_acknowledged_max or 0
    lost = f"lost up to {render_count(most, 'acknowledged commit')}"
    match durability.verdict:
        case "held":
            return f"held in {states}"
        case "lost":
            return lost
        case "corrupt":
            damaged = f"damaged in {durability.corrupt:,} of {states}"
            return f"{damaged}, {lost}" if most else damaged
    return "power cuts: unknown"


def _beside(durability: DurabilityFinding) -> list[str]:
    """That something else was written than the ledger, that the disk lied or something else failed, where it did, and
    that less was looked at than could be."""
    told = []
    if durability.script != "ledger":
        told.append(f"of {SHOWN[durability.script]}")
    if durability.ignored_flushes != "0":
        which = "all" if durability.ignored_flushes == "all" else f"the last {durability.ignored_flushes}"
        told.append(f"on a disk that ignores {which} flushes")
    if durability.fault:
        told.append(f"with fault {durability.fault}{', at which PostgreSQL panicked' if durability.panicked else ''}")
    if durability.amcheck is False and durability.states:
        told.append("without amcheck")
    return told


def _in_brackets(told: list[str]) -> str:
    return f" ({'; '.join(told)})" if told else ""


def verdict_words(durability: DurabilityFinding) -> str:
    """`held in 200 states (...)`, or what went wrong in how many of them."""
    if durability.cluster is not None:
        return cluster_words(durability.cluster, durability)
    power = durability.power
    if power is not None:
        return f"{power_words(power)}: {_states_words(durability)}{went_on_words(power)}"
    return _states_words(durability)


def _states_words(durability: DurabilityFinding) -> str:
    states = render_count(durability.states, "state")
    if durability.verdict == "held":
        share = 100 * share_bound(durability.states)
        bound = f"no failure among so many bounds their share below {share:.2g} % at 95 %"
        return f"held in {states}{_in_brackets([*_beside(durability), bound])}"
    parts = [
        f"{word} in {count:,}"
        for word, count in (
            ("corrupt", durability.corrupt),
            ("lost acknowledged transactions", durability.lost),
            ("unknown", durability.unknown),
        )
        if count
    ]
    most = durability.lost_acknowledged_max
    lost = f", up to {render_count(most, 'acknowledged transaction')} missing" if most else ""
    return f"{', '.join(parts) or 'unknown'} of {states}{lost}{_in_brackets(_beside(durability))}"
