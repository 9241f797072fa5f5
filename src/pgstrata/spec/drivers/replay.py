"""Replay: the statements of a load that `pgstrata capture` wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from pgstrata.spec.drivers.kind import Driver
from pgstrata.spec.model import Name

if TYPE_CHECKING:
    from pgstrata.spec.workload import Workload


class Replay(Driver):
    """The sessions of a load at the times of its log, on the user's own database; `duration` cuts it."""

    kind: Literal["replay"] = "replay"
    scripts: ClassVar[tuple[str, ...]] = ("replay",)
    keys: ClassVar[frozenset[str]] = frozenset({"sql", "pg_restore", "jobs"})
    files: ClassVar[tuple[str, ...]] = ("load",)
    figures: ClassVar[tuple[str, ...]] = (
        "statements_per_s", "lateness_driver_p99_ms", "lateness_server_p99_ms",
        "latency_p50_ms", "latency_p95_ms", "latency_p99_ms",
    )  # fmt: skip
    load: Name = Field(description="the load: a file of `pgstrata capture`")
    speed: str = Field("1", description="a factor, or max", pattern=r"^([0-9]+(\.[0-9]+)?x?|max)$")

    @property
    def primary(self) -> str:
        """The latency: at its own times a load has the same TPS on every stack that keeps up."""
        return "tps" if self.speed == "max" else "latency_avg_ms"

    def problems(self, workload: Workload) -> Iterator[str]:
        """Yield what would run the statements on other data than that of the log."""
        yield from super().problems(workload)
        if workload.sql is None and workload.pg_restore is None:
            yield "a replay needs its data as it was when the log began: pg_restore or sql"
        if workload.script != self.scripts:
            yield f"a replay runs the statements of its load, not the script {workload.script[0]}"
        if workload.warmup > 0:
            yield "a replay begins with the data as it was loaded: warmup must be 0"
        if len(workload.cells) > 1:
            yield "a replay is one cell: the second one would find the data changed"
