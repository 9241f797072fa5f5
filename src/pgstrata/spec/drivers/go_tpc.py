"""go-tpc: the TPC-C of pingcap/go-tpc, a closed loop."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from pgstrata.spec.drivers.kind import Driver
from pgstrata.spec.model import Name


class GoTpc(Driver):
    """`go-tpc tpcc` (1.0.12 or later) on data of its own; scale is the number of warehouses."""

    kind: Literal["go-tpc"] = "go-tpc"
    bytes_per_scale: ClassVar[int] = 128 * 2**20
    """A warehouse with its keys takes 110 MB."""
    scripts: ClassVar[tuple[str, ...]] = ("go-tpc",)
    usual_scales: ClassVar[tuple[int, ...]] = (1,)
    program: Name = Field("go-tpc", description="name or path of the program on the host")

    check: Literal["load", "runs"] = Field(
        "load", description="when its own check runs: after the load, or after each run too; a warehouse takes a minute"
    )

    @property
    def primary(self) -> str:
        """tpmC, as go-tpc calls its new orders a minute."""
        return "tpmc"

    @property
    def over_tcp(self) -> bool:
        """True: its library takes no path of a socket from the options."""
        return True
