"""Findings of crash trials of a cluster, of all failures together: those carried out, and those reckoned."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from pgstrata.spec.crash_request import Promoted, Rejoin

ARCHIVE = "archive"
"""Name of what goes on where no node is left."""


REJOINS: dict[Rejoin, str] = {"rewind": "pg_rewind", "backup": "a new base backup"}


class ClusterRecord(BaseModel):
    """Base of these records: readers ignore keys that a later version added, as in all records."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class LostNodes(ClusterRecord):
    """All failures that take so many nodes at once, at every moment, reckoned; and those that were carried out."""

    nodes: int
    reckoned: int
    losing: int
    """Number of reckoned failures that lose an acknowledged transaction."""
    missing_max: int
    missing_max_s: float | None = None
    """Longest time since the acknowledgement of the first missing transaction, where a node or an archive is left."""
    worst: tuple[str, ...] = ()
    carried_out: int = 0
    failed: int = 0
    """Number of failures carried out that did not hold."""


class RejoinedNodes(ClusterRecord):
    """All primaries that came back after another node was promoted."""

    how: Rejoin
    tried: int
    failed: int
    """Number of these that did not follow, or then had something else than the one that they followed."""
    discarded_max: int
    """Commits that the old primary had and the promoted node did not: they are given up."""
    acknowledged_max: int
    """Largest number of such commits that were acknowledged."""


class ClusterFound(ClusterRecord):
    """Findings in one cluster."""

    nodes: tuple[str, ...]
    moments: int
    promoted: Promoted = "most"
    lost_at_once: int = 1
    """Nodes that each failure took that was carried out, but for those of the archive."""
    by_lost: tuple[LostNodes, ...] = ()
    archive: LostNodes | None = None
    """When all nodes are lost and the archive is restored; None without an archive."""
    rejoined: RejoinedNodes | None = None
    holders: tuple[int, ...] = ()
    """Number of commits on no node, on one, on two and so on at the first moment after they were acknowledged."""

    @property
    def survives(self) -> int:
        """The most nodes that can be lost at once without the loss of an acknowledged transaction, at these moments."""
        held = 0
        for row in self.by_lost:
            if row.losing or row.failed:
                break
            held = row.nodes
        return held


class PowerCutNodes(ClusterRecord):
    """Nodes of one cluster that all lost power at once. Those that came back had what their disks kept, and the one
    that reached furthest went on."""

    nodes: tuple[str, ...]
    in_memory: tuple[str, ...] = ()
    """Nodes of which nothing was left, as they had it in memory."""
    gone: tuple[str, ...] = ()
    """Nodes that did not come back, as was asked."""
    went_on: dict[str, int] = {}
    """In how many states which node did; `archive` where none was left."""
