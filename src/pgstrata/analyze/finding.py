"""Base class of all findings, and types that they share."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

MetricScale = Literal["ratio", "difference"]
Kind = Literal["screen", "confirm", "equivalence"]
EffectVerdict = Literal["matters", "no effect", "undecided"]
Verdict = Literal["better", "worse", "equal", "undecided"]
Source = Literal["fresh pairs", "screening", "import", "hosts"]
TimeKind = Literal["wal", "files", "locks", "running", "client", "other"]
"""Kind of session time: writing and flushing WAL (or waiting for the session that does), other files, locks of any
kind, no wait, between statements, every other wait."""
Cause = Literal["storage", "processor", "locks", "client", "unexplained"]


class Finding(BaseModel):
    """Base of all findings; accepts unknown keys, because a report may be of a later version and contains sentences
    too."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Transactions(Finding):
    """Outcome of the transactions of a stack's runs: shares of all attempted transactions, over the runs."""

    tried: int
    """Committed, failed and skipped ones."""
    failed: float
    """Failed by serialisation failures, deadlocks and errors of the script, after all attempts."""
    skipped: float
    """Scheduled by rate, but too late to be started."""
    late: float
    """Committed after the latency limit."""
    retried: float
    """Attempted more than once, with any outcome."""

    @property
    def shares(self) -> dict[str, float]:
        """Shares by their name in sentences."""
        said = {"failed": self.failed, "were skipped": self.skipped, "were late": self.late}
        return {**said, "were retried": self.retried}


class Rounds(Finding):
    """The same pair by its blocks with runs of both, before any rule: what a reader of the runs counts."""

    blocks: int
    better: int
    """Blocks in which a was better; in the others b was, or neither."""
    worse: int
    low: float | None
    """Bounds of the fixed-sample t interval of the mean difference at 95 %, in the unit of `ratio`: valid for one look
    that was decided on beforehand, not for a look after each block. Null with fewer than two blocks."""
    high: float | None


class Modes(Finding):
    """Two modes of the differences of a pair, as of builds that come out faster or slower. They keep a difference that
    is smaller than twice their distance from being proven until the mean of all rounds proves it."""

    low: float
    """Mean of the rounds of each mode, in the unit of `ratio`."""
    high: float
    below: int
    """Rounds of the lower mode."""
    above: int


Uncounted = dict[str, Transactions]
"""Transactions by stack, for stacks with a notable share."""
Unlike = dict[str, dict[str, str]]
"""Subjects other than storage in which stacks differ, such as the PostgreSQL version: values by stack."""


# ---------------------------------------------------------------- factors of a screening (tune)


class FactorFinding(Finding):
    """Effect of one factor of a screening, averaged over the levels of the others; shares of the start's metric."""

    name: str
    start: str
    """The level that the stack has."""
    change: str
    """The level that was tried."""
    source: str
    cost: str
    """Price of the change, by the file of factors."""
    effect: float | None
    low: float | None
    high: float | None
    verdict: EffectVerdict
    """*no effect*: none beyond the margin."""
    chosen: bool = False
    """True if the chosen combination has the change."""
    class_: str = Field("", alias="class")
    """Durability of the start with this change alone, where it is weaker than the start's."""


class InteractionFinding(Finding):
    """Interaction of two factors that matter: by how much each changes the effect of the other, halved."""

    factors: tuple[str, str]
    effect: float | None
    low: float | None
    high: float | None
    verdict: EffectVerdict
    aliases: tuple[tuple[str, str], ...]
    """Pairs whose interaction no run of the design tells from this one."""


class TuningFinding(Finding):
    """Result of a screening (`pgstrata tune`)."""

    cell: str
    factors: tuple[FactorFinding, ...]
    interactions: tuple[InteractionFinding, ...]
    expected: float | None
    """Share that the chosen combination is expected to gain over the start; null if it is the start."""
    runs: int
    lost: tuple[str, ...]
    """Stacks of the design without a run that counts, with their levels and the reason."""
