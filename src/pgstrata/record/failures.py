"""A failure of a cluster that was carried out."""

from __future__ import annotations

from pydantic import Field

from pgstrata.record.crash import StateVerdict
from pgstrata.record.schema import Record
from pgstrata.spec.crash_request import Rejoin


class Rejoined(Record):
    """The lost primary, once it was to follow the one that was promoted."""

    how: Rejoin
    discarded: int
    """Commits that it had and the promoted one did not: they are given up."""
    acknowledged: int
    """Number of these that were acknowledged: they are missing."""
    verdict: StateVerdict
    """held: it followed, and has what the promoted one has."""
    reason: str = ""


class FailureRecord(Record):
    """A failure that was carried out, and what was found then."""

    id: str
    moment: int
    disturbance: str = ""
    """Disturbance before the failure: a node that was cut off from the others, a standby that stood still, or one to
    which little came."""
    lost: tuple[str, ...]
    promoted: str
    """The node that went on; `archive` where none was left."""
    acknowledged: int
    """Transactions by then."""
    verdict: StateVerdict
    reason: str = ""
    missing: int = 0
    """Acknowledged transactions that are not there."""
    missing_reckoned: int
    """The same by how far the WAL of that node reached."""
    missing_s: float | None = None
    """Time from the acknowledgement of the first of them to the failure."""
    rejoined: Rejoined | None = None
    duration_s: float = Field(0.0, ge=0)
