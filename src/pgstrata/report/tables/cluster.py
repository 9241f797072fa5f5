"""Activity of the nodes of a cluster: a table for terminal, page and Markdown, and for the page a picture of the
topology with these figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pgstrata.analyze.findings import CellFinding, Findings, NodeFinding, StackFinding
from pgstrata.record.crash import ARCHIVE
from pgstrata.report.sentences.figures import NOT_KNOWN, render_number, render_percent
from pgstrata.spec.notation.stack import render_volume
from pgstrata.spec.stack import PRIMARY, Network, Node, Stack
from pgstrata.spec.units import render_size

TITLE = "What the nodes of the clusters did"
EXPLAINED = (
    "Over all runs of a stack. Processors: how many the node's server used on average. Sent and received: by its link. "
    "Lags are how long ago the primary had written what the standby had just written, flushed and applied: the median "
    "of the runs' medians, of one sample a second; the longest is of all samples. Reads and writes: the node's share "
    "of the SELECTs, and of the INSERTs, UPDATEs, DELETEs and DDL, that a pooler in front of the cluster sent. "
    "Stale: of reads right after a commit was acknowledged, how many lacked it, and the longest time until one had it. "
    "Released: of commits that waited for standbys, how many had their last missing acknowledgement from this one, and "
    "the median and 99th percentile of the time from the commit's record to it."
)
COLUMNS = (
    "Stack", "Node", "Processors", "Sent/s", "Received/s", "Disk written/s",
    "Write lag", "Flush lag", "Apply lag", "Longest", "Reads", "Writes", "Stale", "Released",
)  # fmt: skip
IN_MEMORY = "memory"
"""Shown for a node without devices."""


def node_row(node: NodeFinding) -> Iterator[str]:
    """Yield the texts of `COLUMNS`, without the stack."""
    written = node.disk_written_bytes_per_s
    yield f"{node.node} on {node.host}" if node.host else node.node
    yield render_number(node.processors)
    yield _bytes(node.sent_bytes_per_s)
    yield _bytes(node.received_bytes_per_s)
    yield IN_MEMORY if written is None else _bytes(written)
    if node.node == PRIMARY:
        yield from ("",) * 4
    else:
        yield from map(_ms, (node.write_lag_ms, node.flush_lag_ms, node.replay_lag_ms, node.replay_lag_max_ms))
    yield from map(_share, (node.reads_share, node.writes_share))
    yield _stale(node)
    yield _released(node)


def _released(node: NodeFinding) -> str:
    """Return `300 of 900 (1.2 ms, 7 ms)`; empty if it was not configured."""
    if node.watched_commits is None:
        return ""
    times = f" ({_ms(node.release_median_ms)}, {_ms(node.release_p99_ms)})" if node.released_commits else ""
    return f"{node.released_commits:,} of {node.watched_commits:,}{times}"


def _stale(node: NodeFinding) -> str:
    """Return `3 of 120 (8 ms)`; empty if it was not configured."""
    if node.checked_reads is None:
        return ""
    longest = f" ({_ms(node.stale_max_ms)})" if node.stale_reads else ""
    return f"{node.stale_reads} of {node.checked_reads}{longest}"


def _share(value: float | None) -> str:
    """Return the share; empty without a pooler."""
    return "" if value is None else render_percent(value)


def _bytes(value: float | None) -> str:
    return NOT_KNOWN if value is None else render_size(value)


def _rate(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{render_size(value)}/s"


def _ms(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{render_number(value)} ms"


# ---------------------------------------------------------------- the picture

WIDTH = 360
"""Width in the picture's own units: no wider than a telephone, so that its words are not scaled down there."""
INDENT = 34
CLIENT = "client"
"""The node that drives the load; no standby has such a name."""
POOLERS = {
    "pgpool": ("Pgpool-II", "writes go to the primary, reads to all nodes"),
    "pgbouncer": ("PgBouncer", "all goes to the primary, by few sessions"),
}
_HEAD, _GAP, _LINE, _PAD = 28, 12, 17, 10


@dataclass(frozen=True)
class DrawnNode:
    """A box: the node and its figures, one per line."""

    name: str
    place: str
    lines: tuple[str, ...]
    x: int
    y: int
    width: int
    height: int
    waited_for: bool
    """True if a commit may wait for it."""
    path: str
    """SVG path of the line from the node that it follows, or from the client's to the primary; empty for the client."""

    @property
    def line(self) -> str:
        """CSS classes of the line to it."""
        return "asks" if self.name == PRIMARY else "stream" if self.waited_for else "stream loose"

    @property
    def middle(self) -> int:
        return self.y + self.height // 2

    @property
    def baselines(self) -> tuple[int, ...]:
        """Baselines of `lines`."""
        return tuple(self.y + _PAD + _HEAD + _LINE * number for number in range(len(self.lines)))


@dataclass(frozen=True)
class ClusterPicture:
    """The nodes of one stack: the client's on top, then the primary, its standbys, and where it archives its WAL."""

    stack: str
    commits: str
    """Nodes that a commit waits for, in words."""
    network: str
    """Limits of the links between the nodes; empty if only the kernel limits them."""
    nodes: tuple[DrawnNode, ...]
    width: int
    height: int

    @property
    def lines(self) -> tuple[DrawnNode, ...]:
        """Nodes in the order in which lines to them are drawn: those that a commit may wait for on top."""
        return tuple(sorted(self.nodes[1:], key=lambda node: node.waited_for))

    @property
    def caption(self) -> str:
        return "; ".join(filter(None, (self.commits, self.network)))

    @property
    def words(self) -> str:
        """The picture as text, for readers who cannot see it."""
        return "; ".join([self.caption, *(f"{n.name} on {n.place}: {', '.join(n.lines)}" for n in self.nodes)])


def cluster_pictures(findings: Findings, cell: CellFinding, stacks: Mapping[str, Stack]) -> tuple[ClusterPicture, ...]:
    """Return one picture for each cluster of a cell; `stacks` are those of the campaign by name."""
    found = (stack for stack in findings.stacks if stack.cell == cell.id and stack.nodes)
    return tuple(_picture(stack, stacks[stack.name]) for stack in found)


def _picture(finding: StackFinding, stack: Stack) -> ClusterPicture:
    done = {node.node: node for node in finding.nodes}
    boxes = [
        (CLIENT, _driver_place(stack), _driver_lines(stack)),
        *(
            (node.name, _place(stack, node), tuple(_lines(done[node.name], _upstream(stack, node.name))))
            for node in stack.nodes
            if node.name in done
        ),
        *_archive(stack),
    ]
    drawn: dict[str, DrawnNode] = {}
    y = 1
    for name, place, lines in boxes:
        height = 2 * _PAD + _HEAD + _LINE * (len(lines) - 1)
        x = 1 if name in (CLIENT, PRIMARY) else INDENT
        path = _path(drawn.get(_upstream(stack, name)), x, y, height)
        waited = name in _waited_for(stack)
        drawn[name] = DrawnNode(name, place, lines, x, y, WIDTH - x - 1, height, waited, path)
        y += height + _GAP
    words = commit_words(stack), network_words(stack)
    return ClusterPicture(finding.name, *words, tuple(drawn.values()), WIDTH, y - _GAP + 1)


def _upstream(stack: Stack, name: str) -> str:
    """Return the name of the box above; empty for the client's."""
    if name in (CLIENT, PRIMARY):
        return CLIENT if name == PRIMARY else ""
    return stack.topology.upstream(name) if stack.topology and name != ARCHIVE else PRIMARY


def _driver_place(stack: Stack) -> str:
    pooler = stack.topology.pooler if stack.topology else None
    return f"a node of its own{f', with {POOLERS[pooler][0]}' if pooler else ''}"


def _driver_lines(stack: Stack) -> tuple[str, ...]:
    pooler = stack.topology.pooler if stack.topology else None
    return (POOLERS[pooler][1] if pooler else "all goes to the primary",)


def _archive(stack: Stack) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the archive, if there is one; it belongs to the primary, and so do its figures."""
    if stack.topology and stack.topology.archive:
        yield ARCHIVE, render_volume(stack.topology.archive), ("WAL of the primary, whose disk figures have it",)


def network_words(stack: Stack) -> str:
    """Describe the limits of the links between nodes, in the direction out of each node."""
    network = stack.topology.network if stack.topology else Network()
    told = (
        f"{render_number(network.delay_ms)} ms each way" * bool(network.delay_ms),
        f"{render_number(network.bandwidth_mbit)} Mbit/s" if network.bandwidth_mbit else "",
        f"{render_percent(network.loss)} of the packets lost" * bool(network.loss),
    )
    shown = ", ".join(filter(None, told))
    return f"links between nodes: {shown}" * bool(shown)


def _path(upstream: DrawnNode | None, x: int, y: int, height: int) -> str:
    """Return the path from the primary along the left edge; from a node in the same column, down to the box."""
    if upstream is None:
        return ""
    end = upstream.y + upstream.height
    beside = upstream.x != x
    return f"M14 {end}V{y + height // 2}H{x}" if beside else f"M{x + 20} {end}V{y}"


def _place(stack: Stack, node: Node) -> str:
    """Return `tmpfs`, or `ext4, WAL on xfs`, and the host if it is not the primary's."""
    shown = {role: render_volume(stack.volumes[in_stack]) for role, in_stack in node.roles.items()}
    place = f"{shown['data']}, WAL on {shown['wal']}" if "wal" in shown else shown["data"]
    return f"{place}, {node.host}" if node.host else place


def _waited_for(stack: Stack) -> tuple[str, ...]:
    """Return the standbys that a commit may wait for."""
    cluster = stack.topology
    if cluster is None or cluster.quorum is None or cluster.synchronous_commit in ("off", "local"):
        return ()
    return cluster.quorum.candidates(cluster.followers(PRIMARY))


def commit_words(stack: Stack) -> str:
    """Describe which nodes a commit waits for."""
    if not _waited_for(stack):
        return "no commit waits for a standby"
    cluster = stack.topology
    assert cluster is not None
    level = cluster.synchronous_commit or stack.postgresql.settings.get("synchronous_commit", "on")
    return f"a commit waits for {cluster.synchronous_standby_names}, synchronous_commit={level}"


def _lines(node: NodeFinding, upstream: str) -> Iterator[str]:
    written = node.disk_written_bytes_per_s
    disk = "nothing to a disk" if written is None else f"{_rate(written)} to disk"
    yield f"{render_number(node.processors)} processors, {disk}"
    yield f"sent {_rate(node.sent_bytes_per_s)}, received {_rate(node.received_bytes_per_s)}"
    if upstream not in (CLIENT, PRIMARY):
        yield f"follows {upstream}"
    elif upstream == PRIMARY:
        yield f"written {_ms(node.write_lag_ms)}, flushed {_ms(node.flush_lag_ms)} later"
        yield f"applied {_ms(node.replay_lag_ms)} later (longest {_ms(node.replay_lag_max_ms)})"
    shares = (("reads", node.reads_share), ("writes", node.writes_share))
    if told := [f"{_share(share)} of the {what}" for what, share in shares if share is not None]:
        yield ", ".join(told)
    if node.checked_reads is not None:
        yield f"stale reads: {_stale(node)}"
    if node.watched_commits is not None:
        yield f"released: {_released(node)}"
