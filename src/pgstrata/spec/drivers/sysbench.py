"""sysbench: one of the scripts for databases that it brings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from pgstrata.spec.drivers.kind import Driver

if TYPE_CHECKING:
    from pgstrata.spec.workload import Workload

ROWS = 100_000
"""Rows of each table."""


class Sysbench(Driver):
    """sysbench (1.0 or later) in a closed loop; scale is the number of tables, of 100,000 rows each."""

    kind: Literal["sysbench"] = "sysbench"
    bytes_per_scale: ClassVar[int] = 32 * 2**20
    """A table takes 21 MB with its keys, and more when its rows are updated."""
    scripts: ClassVar[tuple[str, ...]] = (
        "oltp_read_write",
        "oltp_read_only",
        "oltp_write_only",
        "oltp_point_select",
        "oltp_insert",
        "oltp_delete",
        "oltp_update_index",
        "oltp_update_non_index",
    )
    usual_scales: ClassVar[tuple[int, ...]] = (10,)
    figures: ClassVar[tuple[str, ...]] = ("latency_p99_ms",)

    def problems(self, workload: Workload) -> Iterator[str]:
        """Yield scripts that sysbench does not bring."""
        yield from super().problems(workload)
        for script in workload.script:
            if script not in self.scripts:
                yield f"sysbench has no script {script!r}: {', '.join(self.scripts)} are known"
