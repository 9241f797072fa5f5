"""The verdicts of crash trials in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pgstrata.analyze.crash import broke_promise, share_bound
from pgstrata.analyze.findings import DurabilityFinding, Findings
from pgstrata.record.crash import ARCHIVE, REJOINS, ClusterFound, LostNodes, PowerCutNodes, RejoinedNodes
from pgstrata.record.reader import CampaignData
from pgstrata.report.sentences.crash_timeline import CutPicture, Story, draw_cut, tell_story
from pgstrata.report.sentences.figures import render_count, render_number
from pgstrata.spec.crash_request import MANY_VOLATILE, SHOWN
from pgstrata.spec.durability_class import SURVIVES

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
"""Placeholder for the campaign directory if the reader's path is unknown."""


@dataclass(frozen=True)
class PowerCuts:
    """The power-cut section of the page."""

    title: str
    explained: str
    tested: Mapping[str, DurabilityFinding]
    """Durability by stack."""
    stories: tuple[tuple[Story, CutPicture | None], ...]
    """Timelines of the failed stacks for which a failing state was minimised."""


def power_cuts_view(data: CampaignData, findings: Findings) -> PowerCuts | None:
    """Return the section; None if power was not cut."""
    tested = tested_stacks(findings)
    pictures = {crash.found.stack: draw_cut(crash.minimal) for crash in data.crashes if crash.minimal}
    told = tuple((story, pictures[name]) for name, story in stories(data, tested, ANYWHERE).items())
    return PowerCuts(title_of(tested), explained_of(tested), tested, told) if tested else None


def title_of(tested: Mapping[str, DurabilityFinding]) -> str:
    """Return the title, by the faults of the crash trials."""
    return " and ".join(what if at == 0 else what.lower() for at, (what, _) in enumerate(_done(tested)))


def explained_of(tested: Mapping[str, DurabilityFinding]) -> str:
    """Return an explanation of the faults in a few sentences."""
    return " ".join(explained for _, explained in _done(tested))


def _done(tested: Mapping[str, DurabilityFinding]) -> list[tuple[str, str]]:
    clusters = [durability.cluster is not None for durability in tested.values()]
    return [(POWER, EXPLAINED)] * (not all(clusters)) + [(NODES, NODES_EXPLAINED)] * any(clusters)


def stories(data: CampaignData, tested: Mapping[str, DurabilityFinding], place: str) -> dict[str, Story]:
    """Return the timeline of each stack that has one; `place` is the campaign directory."""
    told = {
        crash.found.stack: tell_story(crash, tested[crash.found.stack], place)
        for crash in data.crashes
        if crash.found.stack in tested
    }
    return {name: story for name, story in told.items() if story is not None}


def tested_stacks(findings: Findings) -> dict[str, DurabilityFinding]:
    """Return the durability of every stack with crash trials, in their order."""
    found = {stack.name: stack.durability for stack in findings.stacks}
    return {name: durability for name, durability in found.items() if durability.verdict != "not_tested"}


def shows_runs(data: CampaignData) -> bool:
    """Return True if there are runs to show; False if the campaign consists of crash trials only."""
    return bool(data.trials) or not data.crashes


def crash_lines(tested: Mapping[str, DurabilityFinding], told: Mapping[str, Story]) -> Iterator[str]:
    """Yield a line for each stack; more, including the timeline of a state, if it failed or broke its promise."""
    for name, durability in tested.items():
        yield f"{name}: {verdict_words(durability)}"
        if durability.first_counterexample:
            yield f"  first: {durability.first_counterexample}"
        if broke_promise(durability):
            yield f"  its configuration promises that it {durability.class_}: {durability.reason}"
        elif durability.verdict == "repair" and durability.class_ != SURVIVES:
            yield f"  its configuration: {durability.reason}"
        if name in told:
            yield from (f"  {line}" for line in told[name].lines)


def durability_words(durability: DurabilityFinding) -> str:
    """Return the words of the verdict table: the class from the configuration and the result of power cuts, if any."""
    if durability.verdict == "not_tested":
        return f"{durability.class_}; not tested: {durability.untested}" if durability.untested else durability.class_
    if durability.cluster is not None:
        return f"{durability.class_}; {short_cluster_words(durability.cluster, durability)}"
    nodes = "all nodes lost power: " if durability.power is not None else ""
    return f"{durability.class_}; {nodes}{_short_words(durability)}{_in_brackets(_beside(durability))}"


def _short_words(durability: DurabilityFinding) -> str:
    """Return `held in 1,204 states`, `lost up to 38 acknowledged commits`."""
    states, most = render_count(durability.states, "state"), durability.lost_acknowledged_max or 0
    lost = f"lost up to {render_count(most, 'acknowledged commit')}{_lost_time(durability)}"
    match durability.verdict:
        case "held":
            return f"held in {states}"
        case "repair":
            return f"needs repair in {durability.repair:,} of {states}, held after it"
        case "lost":
            return f"{lost}{_newest(durability)}"
        case "corrupt":
            damaged = f"damaged in {durability.corrupt:,} of {states}"
            return f"{damaged}, {lost}" if most else damaged
    return "power cuts: unknown"


def _looked(durability: DurabilityFinding) -> str:
    """Return ` of 210 checkpoints and 9,100 flush epochs of 5 recordings (31 s), 96 states with 7 or more volatile
    writes`; empty for records that lack these counts."""
    if not durability.flush_epochs:
        return ""
    checkpoints = render_count(durability.checkpoints, "checkpoint")
    epochs = render_count(durability.flush_epochs, "flush epoch")
    many = render_count(durability.many_volatile, "state")
    several = f" of {durability.recordings} recordings" if durability.recordings > 1 else ""
    looked = f" of {checkpoints} and {epochs}{several} ({render_number(durability.recorded_s)} s)"
    return f"{looked}, {many} with {MANY_VOLATILE} or more volatile writes"


def _bound(durability: DurabilityFinding) -> Iterator[str]:
    """Yield the largest share of failures among states drawn by lot that agrees with none of them failing."""
    if durability.drawn:
        drawn, share = render_count(durability.drawn, "flush epoch"), 100 * share_bound(durability.drawn)
        yield f"one state of {drawn} by lot: at 95 % confidence fewer than {share:.2g} % of such states fail"


def _lost_time(durability: DurabilityFinding) -> str:
    """Return `, the last 340 ms before the cut`."""
    lost_s = durability.lost_max_s
    return f", the last {render_number(1000 * lost_s)} ms before the cut" if lost_s else ""


def _newest(durability: DurabilityFinding) -> str:
    return "; consistent, only the newest commits are gone" if durability.newest_only else ""


def _beside(durability: DurabilityFinding) -> list[str]:
    """Return remarks on a workload other than the ledger, on ignored flushes or other faults, and on an incomplete
    check."""
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
    return [*told, *_gaps(durability)]


def _gaps(durability: DurabilityFinding) -> Iterator[str]:
    """Yield the requested states that were not checked, and the reason for these or for unknown verdicts."""
    if durability.missing:
        yield f"{render_count(durability.missing, 'requested state')} not checked"
    if durability.unknown_reason:
        yield f"unknown because {durability.unknown_reason}"


def _in_brackets(told: list[str]) -> str:
    return f" ({'; '.join(told)})" if told else ""


def verdict_words(durability: DurabilityFinding) -> str:
    """Return `held in 200 states (...)`, or the failures and the number of states with them."""
    if durability.cluster is not None:
        return cluster_words(durability.cluster, durability)
    power = durability.power
    if power is not None:
        return f"{power_words(power)}: {_states_words(durability)}{went_on_words(power)}"
    return _states_words(durability)


def _states_words(durability: DurabilityFinding) -> str:
    states = render_count(durability.states, "state")
    if durability.verdict == "held":
        return f"held in {states}{_looked(durability)}{_in_brackets([*_beside(durability), *_bound(durability)])}"
    parts = [
        f"{word} in {count:,}"
        for word, count in (
            ("corrupt", durability.corrupt),
            ("lost acknowledged transactions", durability.lost),
            ("needs repair, and held after it,", durability.repair),
            ("unknown", durability.unknown),
        )
        if count
    ]
    most = durability.lost_acknowledged_max
    missing = f", up to {render_count(most, 'acknowledged transaction')} missing" if most else ""
    lost = f"{missing}{_lost_time(durability)}{_newest(durability)}"
    return f"{', '.join(parts) or 'unknown'} of {states}{lost}{_in_brackets(_beside(durability))}"


# ---------------------------------------------------------------- clusters

MISTAKES = {
    "least": "by mistake the node that reached least far was promoted",
    "forgetful": "by mistake a node was promoted that had come back without its memory",
}


def short_cluster_words(found: ClusterFound, durability: DurabilityFinding) -> str:
    """Return the words of the verdict table: `survived the loss of any 1 of 3 nodes`."""
    if durability.verdict in ("corrupt", "unknown"):
        reason = f" because {durability.unknown_reason}" if durability.unknown_reason else ""
        return f"loss of nodes: {durability.verdict}{reason if durability.verdict == 'unknown' else ''}"
    return survived_words(found)


def survived_words(found: ClusterFound) -> str:
    """Return the number of nodes that could be lost, or the damage from the loss of one."""
    nodes, survives = len(found.nodes), found.survives
    if survives:
        return f"survived the loss of any {survives} of {nodes} nodes"
    return f"lost {_amount(found.by_lost[0])} with 1 of {nodes} nodes"


def cluster_words(found: ClusterFound, durability: DurabilityFinding) -> str:
    """Return the complete verdict."""
    return "; ".join(_parts(found, durability))


def _parts(found: ClusterFound, durability: DurabilityFinding) -> Iterator[str]:
    failures = render_count(durability.states, "failure")
    if found.promoted in MISTAKES:
        yield MISTAKES[found.promoted]
    if durability.corrupt:
        yield f"corrupt after {durability.corrupt:,} of {failures}"
    if durability.unknown:
        reason = f" because {durability.unknown_reason}" if durability.unknown_reason else ""
        yield f"unknown after {durability.unknown:,} of {failures}{reason}"
    carried_out = sum(row.carried_out for row in found.by_lost)
    checked = render_count(found.moments, "moment")
    yield f"{survived_words(found)} ({checked}, {carried_out:,} failures carried out, the others reckoned)"
    if sum(found.holders):
        yield _held_by(found.holders)
    if found.rejoined is not None:
        yield _rejoined(found.rejoined)
    for row in found.by_lost:
        if row.nodes == len(found.nodes):
            yield from _all_lost(found)
        elif row.losing and row.nodes > max(1, found.survives):
            yield f"lost {_amount(row)} with {row.nodes} nodes at once"


def _held_by(holders: Sequence[int]) -> str:
    """Return `of 840 commits there were, at the first moment after they were acknowledged, 40 on 2 nodes, 800 on 3
    nodes`."""
    told = ", ".join(f"{count:,} on {render_count(nodes, 'node')}" for nodes, count in enumerate(holders) if count)
    commits = render_count(sum(holders), "commit")
    return f"of {commits} there were, at the first moment after they were acknowledged, {told}"


def _all_lost(found: ClusterFound) -> Iterator[str]:
    """Yield the remaining data after every node lost its own."""
    archive = found.archive
    if archive is None:
        yield "when all nodes lose what they have, nothing is left"
    elif archive.losing:
        yield f"when all nodes lose what they have, the archive restores all but {_amount(archive)}"
    else:
        yield "when all nodes lose what they have, the archive restores all"


def _rejoined(rejoined: RejoinedNodes) -> str:
    """Return the outcome of the old primary's return, and the transactions it gave up for that."""
    followed = rejoined.tried - rejoined.failed
    given_up = render_count(rejoined.discarded_max, "commit")
    return (
        f"by {REJOINS[rejoined.how]} the old primary followed the promoted node in {followed:,} of {rejoined.tried:,}, "
        f"giving up as many as {given_up} that the other lacked, {rejoined.acknowledged_max:,} of them acknowledged"
    )


def _amount(row: LostNodes) -> str:
    """Return `up to 12 acknowledged commits, the last 0.4 s`."""
    seconds = f", the last {render_number(row.missing_max_s)} s" if row.missing_max_s is not None else ""
    return f"up to {render_count(row.missing_max, 'acknowledged commit')}{seconds}"


def power_words(power: PowerCutNodes) -> str:
    """Return `all 3 nodes lost power (nothing is left of primary, in memory; standby2 did not come back)`."""
    details = []
    if power.in_memory:
        details.append(f"nothing is left of {listed_nodes(power.in_memory)}, in memory")
    if power.gone:
        details.append(f"{listed_nodes(power.gone)} did not come back")
    shown = f" ({'; '.join(details)})" if details else ""
    return f"all {len(power.nodes)} nodes lost power{shown}"


def went_on_words(power: PowerCutNodes) -> str:
    """Return `; standby1 went on in 40, standby2 in 3`, or that the archive was restored."""
    told = [
        f"{'the archive was restored' if name == ARCHIVE else f'{name} went on'} in {count:,}"
        for name, count in power.went_on.items()
    ]
    return f"; {', '.join(told)}" if told else ""


def listed_nodes(names: Sequence[str]) -> str:
    """Return `primary, standby1 and standby2`."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
