"""Scatter between the runs of a recorded campaign, and the best length of a run."""

from __future__ import annotations

import math
from statistics import median

from pgstrata.analyze.campaign.conclude import conclude
from pgstrata.analyze.campaign.evidence import Evidence, gather
from pgstrata.analyze.campaign.metrics import seconds_of
from pgstrata.analyze.stats.run_length import RunLength, suggest
from pgstrata.record.reader import CampaignData

RUNS_READ = 5


def measured_sigma(data: CampaignData) -> float | None:
    """Run-to-run standard deviation of the primary metric (relative, drift removed); None before two blocks."""
    evidence = gather(data)
    design = evidence.design()
    for cell in evidence.cells:
        found = conclude(design, evidence.observations(evidence.goal.primary), cell.id, paired=data.record.paired)
        if math.isfinite(found.fit.sigma):
            return found.fit.sigma
    return None


def suggested_length(evidence: Evidence, stack: str, cell: str, sigma_run: float) -> tuple[RunLength, float] | None:
    """Return the best length of a run, from the runs of one stack, and their present length in seconds."""
    runs = evidence.of(stack, cell)[-RUNS_READ:]
    if evidence.imported or not runs or any(r.data.result.slices for r in runs):
        return None
    # Cost of a run beyond its measured seconds; shared by the cells that were measured after one load.
    overheads = [
        (r.trial.verdict.duration_s - sum(c.result.duration_s for c in r.trial.cells)) / len(r.trial.cells)
        for r in runs
    ]
    found = suggest([seconds_of(r.data) for r in runs], max(0.0, median(overheads)), sigma_run)
    return None if found is None else (found, median(r.data.result.duration_s for r in runs))
