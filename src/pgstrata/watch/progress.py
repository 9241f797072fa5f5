"""Progress of a campaign, as the live view shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["running", "finished", "not running", "not begun", "gone"]


@dataclass(frozen=True)
class Second:
    """A second of the load that has just passed."""

    t_s: float
    tps: float
    latency_ms: float | None


@dataclass(frozen=True)
class Running:
    """A trial in progress."""

    trial: str
    host: str
    stack: str
    block: int
    step: str
    step_s: float
    """Elapsed time of the step, by the clock of this machine."""
    expected_s: float | None
    seconds: tuple[Second, ...]
    """The last seconds; empty outside of measured runs, and on other hosts."""


@dataclass(frozen=True)
class Incident:
    """A trial that does not count."""

    trial: str
    stack: str
    status: str
    reason: str


@dataclass(frozen=True)
class Progress:
    """Progress at one moment."""

    name: str
    state: State
    primary: str
    stacks: tuple[str, ...]
    trials: dict[str, dict[str, int]]
    """Finished trials by stack and status."""
    finished: int
    blocks: int
    """Number of started blocks."""
    stage: str
    reason: str
    """Reason for the present block."""
    block_trials: int
    """Trials of the present block; with several hosts, of all blocks that run in parallel."""
    block_finished: int
    machine_time_s: float
    """Total over all hosts."""
    budget_left_s: float | None
    block_left_s: float | None
    """Estimate from the mean of the trials so far; with hosts in parallel, for the one with the most left."""
    running: tuple[Running, ...]
    incidents: tuple[Incident, ...]
    """The last incidents."""
    unreadable_lines: int
    """Number of event lines that cannot be read."""
