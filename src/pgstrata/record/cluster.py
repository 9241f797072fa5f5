"""What crash trials of a cluster found, of all failures together: those carried out, and those reckoned."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Promoted = Literal["most", "least", "forgetful"]
"""Which node that is left is promoted: the one that reaches furthest; or, by mistake, the one that reaches least far,
or the furthest one after it came back without what it had got since the first moment."""


class ClusterRecord(BaseModel):
    """As all records: readers ignore keys that a later version added."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class LostNodes(ClusterRecord):
    """All failures that take so many nodes at once, at every moment, reckoned; and those that were carried out."""

    nodes: int
    reckoned: int
    losing: int
    """Of those reckoned, how many lose an acknowledged transaction."""
    missing_max: int
    missing_max_s: float | None = None
    """Of those that leave a node or an archive: how long before it the first missing transaction was acknowledged."""
    worst: tuple[str, ...] = ()
    carried_out: int = 0
    failed: int = 0
    """Of those carried out, how many did not hold."""


class ClusterFound(ClusterRecord):
    """Of one cluster."""

    nodes: tuple[str, ...]
    moments: int
    promoted: Promoted = "most"
    lost_at_once: int = 1
    """Nodes that each failure took that was carried out, but for those of the archive."""
    by_lost: tuple[LostNodes, ...] = ()
    archive: LostNodes | None = None
    """When all nodes are lost and the archive is restored; None without an archive."""

    @property
    def survives(self) -> int:
        """The most nodes that can be lost at once without the loss of an acknowledged transaction, at these moments."""
        held = 0
        for row in self.by_lost:
            if row.losing or row.failed:
                break
            held = row.nodes
        return held
