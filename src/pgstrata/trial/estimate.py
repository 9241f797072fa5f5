"""What a campaign will take, before it begins: bytes written and time, by rough figures that are stated."""

from __future__ import annotations

from dataclasses import dataclass

from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.quick import overhead_s
from pgstrata.spec.workload import BYTES_PER_SCALE

INITDB_BYTES = 60_000_000
"""An empty cluster with its first WAL segments."""

LOAD_AMPLIFICATION = 2.0
"""Loading writes rows and indexes once, and about as much again as WAL."""

ASSUMED_TPS = 1000.0
ASSUMED_BYTES_PER_TRANSACTION = 16_384
"""A page image in WAL and the page itself, for a script that writes; stated beside the figure, not relied on."""

ASSUMED_TRANSACTIONS_S = 60.0
"""For runs bounded by transactions, whose length nobody knows beforehand."""


@dataclass(frozen=True)
class Estimate:
    """Of one trial or of many."""

    written_bytes: int
    duration_s: float

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.written_bytes + other.written_bytes, self.duration_s + other.duration_s)


NOTHING = Estimate(0, 0.0)


def estimate_trial(campaign: Campaign, trial: Trial) -> Estimate:
    """Load (or copy), warm-up and every cell of one trial."""
    data_bytes = BYTES_PER_SCALE * trial.scale
    loads = trial.load == "fresh" or (trial.load == "keep" and trial.block == 0)
    written = 0.0
    if loads:
        written = INITDB_BYTES + LOAD_AMPLIFICATION * data_bytes
    elif trial.load == "copy":
        written = INITDB_BYTES + data_bytes
    duration_s = overhead_s(trial.scale, fresh=loads)
    for cell in trial.cells:
        run_s = campaign.workload.warmup + (campaign.workload.cell_duration_s(cell) or ASSUMED_TRANSACTIONS_S)
        duration_s += run_s
        if cell.script != "select-only":
            written += run_s * ASSUMED_TPS * ASSUMED_BYTES_PER_TRANSACTION
    return Estimate(round(written), duration_s)
