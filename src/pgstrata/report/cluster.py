"""What the nodes of a cluster did: a table for terminal, page and Markdown, and for the page the topology as a picture
with these figures on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pgstrata.analyze.findings import CellFinding, Findings, NodeFinding, StackFinding
from pgstrata.report.figures import NOT_KNOWN, render_number, render_percent
from pgstrata.spec.notation import render_volume
from pgstrata.spec.stack import PRIMARY, Node, Stack
from pgstrata.spec.units import render_size

TITLE = "What the nodes of the clusters did"
EXPLAINED = (
    "Over all runs of a stack. Processors: how many the node's server used on average. Sent and received: by its link. "
    "Lags are how long ago the primary had written what the standby had just written, flushed and applied: the median "
    "of the runs' medians, of one sample a second; the longest is of all samples. Reads and writes: the node's share "
    "of the SELECTs, and of the INSERTs, UPDATEs, DELETEs and DDL, that a pooler in front of the cluster sent."
)
COLUMNS = (
    "Stack", "Node", "Processors", "Sent/s", "Received/s", "Disk written/s",
    "Write lag", "Flush lag", "Apply lag", "Longest", "Reads", "Writes",
)  # fmt: skip
TEXTS = 2
"""So many columns hold words, the others figures."""
IN_MEMORY = "memory"
"""Of a node without devices."""


def node_rows(findings: Findings, cell: CellFinding) -> tuple[tuple[str, ...], ...]:
    """A row of `COLUMNS` for each node of each cluster; none where no stack is one."""
    return tuple((s.name, *_row(node)) for s in _clusters(findings, cell) for node in s.nodes)


def _clusters(findings: Findings, cell: CellFinding) -> Iterator[StackFinding]:
    return (stack for stack in findings.stacks if stack.cell == cell.id and stack.nodes)


def _row(node: NodeFinding) -> Iterator[str]:
    written = node.disk_written_bytes_per_s
    yield node.node
    yield render_number(node.processors)
    yield _bytes(node.sent_bytes_per_s)
    yield _bytes(node.received_bytes_per_s)
    yield IN_MEMORY if written is None else _bytes(written)
    if node.node == PRIMARY:
        yield from ("",) * 4
    else:
        yield from map(_ms, (node.write_lag_ms, node.flush_lag_ms, node.replay_lag_ms, node.replay_lag_max_ms))
    yield from map(_share, (node.reads_share, node.writes_share))


def _share(value: float | None) -> str:
    """Empty without a pooler."""
    return "" if value is None else render_percent(value)


def _bytes(value: float | None) -> str:
    return NOT_KNOWN if value is None else render_size(value)


def _rate(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{render_size(value)}/s"


def _ms(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{render_number(value)} ms"


# ---------------------------------------------------------------- the picture

WIDTH = 360
"""Of the picture's own units: no wider than a telephone, so that its words are not made smaller there."""
INDENT = 34
_HEAD, _GAP, _LINE, _PAD = 28, 12, 17, 10


@dataclass(frozen=True)
class DrawnNode:
    """A box: what the node is and what it did, a line each."""

    name: str
    place: str
    lines: tuple[str, ...]
    x: int
    y: int
    width: int
    height: int
    waited_for: bool
    """Whether a commit may wait for it."""

    @property
    def middle(self) -> int:
        return self.y + self.height // 2

    @property
    def baselines(self) -> tuple[int, ...]:
        """Of `lines`."""
        return tuple(self.y + _PAD + _HEAD + _LINE * number for number in range(len(self.lines)))


@dataclass(frozen=True)
class ClusterPicture:
    """The nodes of one stack, the primary on top and its standbys below."""

    stack: str
    commits: str
    """What a commit waits for, in words."""
    nodes: tuple[DrawnNode, ...]
    width: int
    height: int

    @property
    def standbys(self) -> tuple[DrawnNode, ...]:
        """In the order in which their lines are drawn: over one another, those last that a commit may wait for."""
        return tuple(sorted(self.nodes[1:], key=lambda node: node.waited_for))

    @property
    def words(self) -> str:
        """The picture as text, for those who do not see it."""
        return "; ".join([self.commits, *(f"{n.name} on {n.place}: {', '.join(n.lines)}" for n in self.nodes)])


def cluster_pictures(findings: Findings, cell: CellFinding, stacks: Mapping[str, Stack]) -> tuple[ClusterPicture, ...]:
    """One for each cluster of a cell; `stacks` are those of the campaign by name."""
    return tuple(_picture(stack, stacks[stack.name]) for stack in _clusters(findings, cell))


def _picture(finding: StackFinding, stack: Stack) -> ClusterPicture:
    done = {node.node: node for node in finding.nodes}
    drawn: list[DrawnNode] = []
    y = 1
    for node in stack.nodes:
        if node.name not in done:
            continue
        lines = tuple(_lines(done[node.name]))
        height = 2 * _PAD + _HEAD + _LINE * (len(lines) - 1)
        x = 1 if node.name == PRIMARY else INDENT
        place, waited = _place(stack, node), node.name in _waited_for(stack)
        drawn.append(DrawnNode(node.name, place, lines, x, y, WIDTH - x - 1, height, waited))
        y += height + _GAP
    return ClusterPicture(finding.name, commit_words(stack), tuple(drawn), WIDTH, y - _GAP + 1)


def _place(stack: Stack, node: Node) -> str:
    """`tmpfs`, or `ext4, WAL on xfs`."""
    shown = {role: render_volume(stack.volumes[in_stack]) for role, in_stack in node.roles.items()}
    return f"{shown['data']}, WAL on {shown['wal']}" if "wal" in shown else shown["data"]


def _waited_for(stack: Stack) -> tuple[str, ...]:
    """Standbys that a commit may wait for."""
    cluster = stack.topology
    if cluster is None or cluster.quorum is None or cluster.synchronous_commit in ("off", "local"):
        return ()
    return cluster.quorum.candidates(cluster.standby_names)


def commit_words(stack: Stack) -> str:
    """What a commit waits for."""
    if not _waited_for(stack):
        return "no commit waits for a standby"
    cluster = stack.topology
    assert cluster is not None
    level = cluster.synchronous_commit or stack.postgresql.settings.get("synchronous_commit", "on")
    return f"a commit waits for {cluster.synchronous_standby_names}, synchronous_commit={level}"


def _lines(node: NodeFinding) -> Iterator[str]:
    written = node.disk_written_bytes_per_s
    disk = "nothing to a disk" if written is None else f"{_rate(written)} to disk"
    yield f"{render_number(node.processors)} processors, {disk}"
    yield f"sent {_rate(node.sent_bytes_per_s)}, received {_rate(node.received_bytes_per_s)}"
    if node.node != PRIMARY:
        yield f"written {_ms(node.write_lag_ms)}, flushed {_ms(node.flush_lag_ms)} later"
        yield f"applied {_ms(node.replay_lag_ms)} later (longest {_ms(node.replay_lag_max_ms)})"
    shares = (("reads", node.reads_share), ("writes", node.writes_share))
    if told := [f"{_share(share)} of the {what}" for what, share in shares if share is not None]:
        yield ", ".join(told)
