"""TPC-C by pgbench: the five transactions of the specification in their mix, on data of its own."""

from __future__ import annotations

from typing import ClassVar, Literal

from pgstrata.spec.drivers.kind import Driver


class Tpcc(Driver):
    """TPC-C as scripts of pgbench; scale is the number of warehouses. Not a result in the sense of the TPC:
    docs/workloads.md says what differs from the specification."""

    kind: Literal["tpcc"] = "tpcc"
    bytes_per_scale: ClassVar[int] = 128 * 2**20
    """A warehouse with its keys takes 110 MB, the items 12 MB."""
    scripts: ClassVar[tuple[str, ...]] = ("tpcc",)
    usual_scales: ClassVar[tuple[int, ...]] = (1,)
    keys: ClassVar[frozenset[str]] = frozenset(
        {"jobs", "protocol", "rate", "latency_limit_ms", "log", "sampling_rate", "tablespace", "transactions"}
    )

    @property
    def primary(self) -> str:
        """New orders a minute."""
        return "nopm"
