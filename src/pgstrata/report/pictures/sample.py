"""Selection of the single runs on a page: all runs of a campaign of ordinary size, an even sample of a larger one.

Estimates, intervals, means and totals always cover all runs. The sample of each stack, cell, stage and status keeps the
page small. It is evenly spread over the blocks and includes the slowest, the median and the fastest run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgstrata.record.reader import CampaignData, TrialData
from pgstrata.report.sentences.figures import render_count

MOST_RUNS = 500
Group = tuple[str, str, str, str]


@dataclass(frozen=True)
class Sample:
    """Shown runs, as pairs of trial and cell; a trial that measured nothing has an empty cell."""

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
        """Trials with at least one shown run."""
        return frozenset(trial for trial, _ in self.shown)

    @property
    def words(self) -> str:
        """Caption on the runs left out; empty if there are none."""
        if len(self.shown) == self.total:
            return ""
        return (
            f"Of {render_count(self.total, 'run')} {len(self.shown)} are drawn and listed: evenly spread over the "
            "blocks, with the slowest, the middle and the fastest of each stack. Estimates, intervals and means are "
            "of all."
        )


def _measured(trial: TrialData) -> list[tuple[str, float]]:
    return [(cell.id, cell.result.tps or 0.0) for cell in trial.cells] or [("", 0.0)]


def _spread(runs: list[tuple[str, str, float]], most: int) -> set[int]:
    count = len(runs)
    if count <= most:
        return set(range(count))
    by_tps = sorted(range(count), key=lambda i: runs[i][2])
    even = np.linspace(0, count - 1, most).round().astype(int).tolist()
    return {*even, by_tps[0], by_tps[(count - 1) // 2], by_tps[-1]}
