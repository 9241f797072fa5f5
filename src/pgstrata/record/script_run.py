"""Results by script, of cells whose workload is a mix of scripts; by statement, of a replayed load."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ScriptRun(BaseModel):
    """One script of a mix, or one statement of a load, in a run; in slices, the sums of a stack's turns.

    Threads of pgbench count scripts without a lock, so that a few transactions are missing here.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    """The builtin script, the file without folder and ending, or the statement without its literals."""
    weight: int | None = Field(None, ge=0)
    transactions: int = Field(ge=0)
    tps: float = Field(ge=0, le=1e12)
    failed: int = Field(0, ge=0)
    skipped: int = Field(0, ge=0)
    latency_avg_ms: float | None = None
    latency_stddev_ms: float | None = None
    percentiles_ms: dict[str, float] = {}
    """`p50`, `p99`, ...: from the log of single transactions, where there is one."""
