"""Which single runs a page shows: all of a campaign of ordinary size, an even choice of a larger one.

Estimates, intervals, means and totals are always of all runs. Of each stack, cell, stage and status so many runs are
shown that the page stays small: evenly spread over the blocks, with the slowest, the middle and the fastest among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgstrata.record.reader import CampaignData, TrialData
from pgstrata.report.figures import render_count

MOST_RUNS = 500
Group = tuple[str, str, str, str]


@dataclass(frozen=True)
class Sample:
    """Runs that are shown, as pairs of trial and cell; a trial that measured nothing has an empty cell."""

    shown: frozenset[tuple[str, str]]
    total: int

    @classmethod
    def of(cls, data: CampaignData) -> Sample:
        groups: dict[Group, list[tuple[str, str, float]]] = {}
        for trial in data.trials:
            for cell, tps in _measured(trial):
                group = (trial.trial.stack, cell, trial.trial.stage, trial.verdict.status)
                groups.setdefault(group, []).append((trial.id, cell, tps))
        total = sum(len(runs) for runs in groups.values())
        most = total if total <= MOST_RUNS else max(1, MOST_RUNS // len(groups))
        chosen = frozenset((runs[i][0], runs[i][1]) for runs in groups.values() for i in _spread(runs, most))
        return cls(chosen, total)

    @cached_property
    def trials(self) -> frozenset[str]:
        """Trials of which something is shown."""
        return frozenset(trial for trial, _ in self.shown)

    @property
    def words(self) -> str:
        """What is left out, for a caption; empty when nothing is."""
        if len(self.shown) == self.total:
            return ""
        return (
            f"Of {render_count(self.total, 'run')} {len(self.shown)} are drawn and listed: evenly spread over the "
            "blocks, with the slowest, the middle and the fastest of each stack. Estimates, intervals and means are "
            "of all."
        )


def _measured(trial: TrialData) -> list[tuple[str, float]]:
    return [(cell.id, cell.result.tps) for cell in trial.cells] or [("", 0.0)]


def _spread(runs: list[tuple[str, str, float]], most: int) -> set[int]:
    count = len(runs)
    if count <= most:
        return set(range(count))
    by_tps = sorted(range(count), key=lambda i: runs[i][2])
    even = np.linspace(0, count - 1, most).round().astype(int).tolist()
    return {*even, by_tps[0], by_tps[(count - 1) // 2], by_tps[-1]}
