"""How far a campaign is, as the live view shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["running", "finished", "not running", "not begun", "gone"]


@dataclass(frozen=True)
class Second:
    """A second of pgbench that has just passed."""

    t_s: float
    tps: float
    latency_ms: float | None


@dataclass(frozen=True)
class Running:
    """A trial that is being carried out."""

    trial: str
    host: str
    stack: str
    block: int
    step: str
    step_s: float
    """For how long by now, by the clock of this machine."""
    expected_s: float | None
    seconds: tuple[Second, ...]
    """The last ones; empty outside of measured runs, and where the host is another one."""


@dataclass(frozen=True)
class Incident:
    """A trial that does not count."""

    trial: str
    stack: str
    status: str
    reason: str


@dataclass(frozen=True)
class Progress:
    """At one moment."""

    name: str
    state: State
    primary: str
    stacks: tuple[str, ...]
    trials: dict[str, dict[str, int]]
    """Finished ones by stack and status."""
    finished: int
    blocks: int
    """Those that have begun."""
    stage: str
    reason: str
    """What the present block was decided for."""
    block_trials: int
    """Of the present block; on several hosts, of the blocks of all that run side by side."""
    block_finished: int
    machine_time_s: float
    """Of all hosts together."""
    budget_left_s: float | None
    block_left_s: float | None
    """By the mean of the trials so far; of hosts that run side by side, the one with the most left."""
    running: tuple[Running, ...]
    incidents: tuple[Incident, ...]
    """The last ones."""
    unreadable_lines: int
    """Of events that are no events."""
