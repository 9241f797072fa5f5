"""The verdicts of crash trials of clusters in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgstrata.analyze.findings import DurabilityFinding
from pgstrata.record.cluster import ARCHIVE, REJOINS, ClusterFound, LostNodes, PowerCutNodes, RejoinedNodes
from pgstrata.report.sentences.figures import render_count, render_number

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
