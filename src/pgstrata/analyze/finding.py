"""What all findings are, and the words that they share."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

MetricScale = Literal["ratio", "difference"]
Kind = Literal["screen", "confirm", "equivalence"]
Verdict = Literal["better", "worse", "equal", "undecided"]
Source = Literal["fresh pairs", "screening", "import", "hosts"]
TimeKind = Literal["wal", "files", "locks", "running", "client", "other"]
"""Of session time: writing and flushing WAL (also waiting for the session that does it), other files, locks of any
sort, no wait, between statements, every other wait."""
Cause = Literal["storage", "processor", "locks", "client", "unexplained"]


class Finding(BaseModel):
    """A report read back may be of a later version, and holds the sentences too."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)
