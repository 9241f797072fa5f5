"""Records of crash trials: each state or failure, what all show together, and the smallest state that fails."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pgstrata.record.schema import FORMAT, Record
from pgstrata.spec.crash_request import CrashRequest, Promoted, Rejoin

ARCHIVE = "archive"
"""Name of what goes on where no node is left."""


REJOINS: dict[Rejoin, str] = {"rewind": "pg_rewind", "backup": "a new base backup"}


class LostNodes(Record):
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


class RejoinedNodes(Record):
    """All primaries that came back after another node was promoted."""

    how: Rejoin
    tried: int
    failed: int
    """Number of these that did not follow, or then had something else than the one that they followed."""
    discarded_max: int
    """Commits that the old primary had and the promoted node did not: they are given up."""
    acknowledged_max: int
    """Largest number of such commits that were acknowledged."""


class ClusterFound(Record):
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


class PowerCutNodes(Record):
    """Nodes of one cluster that all lost power at once. Those that came back had what their disks kept, and the one
    that reached furthest went on."""

    nodes: tuple[str, ...]
    in_memory: tuple[str, ...] = ()
    """Nodes of which nothing was left, as they had it in memory."""
    gone: tuple[str, ...] = ()
    """Nodes that did not come back, as was asked."""
    went_on: dict[str, int] = Field(default_factory=dict)
    """In how many states which node did; `archive` where none was left."""


StateVerdict = Literal["held", "repair", "lost", "corrupt", "unknown"]
FAILED: tuple[StateVerdict, ...] = ("corrupt", "lost", "repair")
"""Verdicts of states that a power cut did harm to, the worst first."""


CRASH = "crash"
"""The folder of crash trials."""


class StateRecord(Record):
    """A state that a power cut could have left, and what was found in it."""

    id: str
    """Pass over the event log that found it, and its number there."""
    interrupts: str | None = None
    """The state whose recovery was under way when power was lost again; cut and writes are those of that recovery."""
    cut: int
    """The number of the last event before power was lost."""
    how: str
    volatile: int
    """Writes that could have been lost, and how many of them this state has in full or in part."""
    kept: int
    digest: str
    """Digest of the content of all disks."""
    drawn: int | None = None
    """Its flush epoch if cut and writes were drawn by lot, one state an epoch; None if they were chosen."""
    acknowledged: int
    """Transactions by then."""
    verdict: StateVerdict
    reason: str = ""
    lost: int = 0
    """Acknowledged transactions that are not there."""
    lost_s: float | None = Field(None, ge=0)
    """Time from the oldest of them to the cut; None if none is missing."""
    promoted: str = ""
    """Node of a cluster that went on; `archive` if none was left."""
    examined: tuple[str, ...] = ()
    """The tools that read all files and filesystems of this state, of which a few are examined so."""
    duration_s: float = Field(0.0, ge=0)
    parts_s: dict[str, float] = Field(default_factory=dict)
    """Seconds that each part of the check took: attach, mount, recover, take down."""
    memory_bytes: int | None = None
    """The most that its worker, with the worker's daemon and server, has had by then."""


class CrashFound(Record):
    """Counts and findings of all states of a crash trial together."""

    panicked: bool = False
    """True if PostgreSQL terminated itself because of the fault while it was recorded."""
    recordings: int = Field(1, ge=0)
    """Number of seeds of the transactions, one after the other on the same server."""
    checkpoints: int = Field(0, ge=0)
    flush_epochs: int = Field(0, ge=0)
    recorded_s: float = Field(0.0, ge=0)
    """Checkpoints and completed flushes of the recording that the states were made of, and its length."""
    states: int = Field(0, ge=0)
    nested: int = Field(0, ge=0)
    """Number of states in which power was lost again during a recovery."""
    drawn: int = Field(0, ge=0)
    """Number of flush epochs with one state drawn by lot alone; a bound applies to these states only."""
    many_volatile: int = Field(0, ge=0)
    """Number of states with 7 or more writes that could have been lost."""
    lost: int = Field(0, ge=0)
    corrupt: int = Field(0, ge=0)
    repair: int = Field(0, ge=0)
    """States whose filesystem must be repaired, after which everything acknowledged is there."""
    unknown: int = Field(0, ge=0)
    missing: int = Field(0, ge=0)
    """Requested states that were not checked because the trial could not continue."""
    unknown_reason: str = ""
    """Reason why the first unknown state is unknown, or why states are missing."""
    lost_max_s: float | None = Field(None, ge=0)
    """Longest time from the oldest lost acknowledged commit to the power cut; null if not recorded."""
    newest_only: bool = False
    """True if acknowledged commits were lost, and every such state is consistent and lacks only the newest ones."""
    first_counterexample: str | None = None
    cluster: ClusterFound | None = None
    """Effect of the loss of nodes, for a cluster; `states` are the failures that were carried out."""
    power: PowerCutNodes | None = None
    """Result for a cluster all of whose nodes lost power at once, in `states` different ways."""


class CrashRecord(CrashFound):
    """A crash trial of one stack: what was asked, and what its states show together."""

    format: int = FORMAT
    stack: str
    seed: int
    request: CrashRequest = CrashRequest()
    transactions: int = Field(0, ge=0)
    """Acknowledged while it was recorded."""
    amcheck: bool = False
    """True if the server has amcheck; without it indexes and tables are compared by their counts alone."""
    verdict: StateVerdict = "unknown"
    lost_acknowledged_max: int = Field(0, ge=0)
    token: str = Field("", pattern=r"^[0-9a-z]{0,64}$")
    mount_root: str = ""
    """Folder that the names of mount points were made of: links between the volumes of a state lead there."""


class LostPlace(Record):
    """Neighbouring blocks of one write that a state does not have, and where they lie."""

    seq: int
    """The number at which the write was submitted, and that at which the disk said it was done: None if it had not."""
    completed: int | None
    disk: str
    offset_bytes: int
    length_bytes: int
    written_bytes: int
    """By the whole write."""
    file: str | None = ""
    """Below the data directory where it is the server's; empty where they lie in no file, None if that is not known."""
    file_offset_bytes: int = 0
    relation: str = ""


class MissingCommit(Record):
    """An acknowledged transaction that is not there after recovery."""

    session: int
    number: int
    began: int
    """Number of the event after which it was begun."""
    acknowledged: int
    flushes: int
    """Number of flushes that were submitted and done in between."""


class CutEvent(Record):
    """One thing that happened before the cut."""

    seq: int
    until: int | None = None
    """The number at which a write or flush was done: None where it was still under way."""
    what: Literal["write", "flush", "acknowledgement"]
    lost: bool = False
    """True if a part of the write, or the acknowledged transaction, is not in the state."""


class MinimalRecord(Record):
    """The fewest lost writes with which a state still fails as it did, and what is known of them."""

    format: int = FORMAT
    of: str
    """The failing state that it was made from."""
    state: str
    """Its own name."""
    cut: int
    digest: str
    acknowledged: int
    """Transactions by the cut."""
    verdict: StateVerdict
    reason: str
    lost: int
    """Acknowledged transactions that are not there."""
    tried: int
    proven: bool
    """True if no single block could be given back; else time was up before that was known."""
    blocks_before: int
    """Missing from the state that it was made from, of `block_bytes`."""
    block_bytes: int = 512
    places: tuple[LostPlace, ...] = ()
    missing: tuple[MissingCommit, ...] = ()
    """The last ones of those that are not there; empty where the ledger could not be read."""
    disk: str = ""
    """Disk that lacks something, or the only one; empty if there are several."""
    last_flush: int | None = None
    """The number at which the last flush of that disk was submitted that was done by the cut."""
    timeline: tuple[CutEvent, ...] = ()
    """The last events before the cut, and those of the writes and transactions that are missing."""


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
