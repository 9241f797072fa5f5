"""pgbench: its own scripts, or those of the user, alone or as a mix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from pgstrata.spec.drivers.kind import Driver

if TYPE_CHECKING:
    from pgstrata.spec.workload import Workload


class Pgbench(Driver):
    """pgbench of the server's release, or of a newer one where that has none."""

    kind: Literal["pgbench"] = "pgbench"
    bytes_per_scale: ClassVar[int] = 16 * 2**20
    """Accounts, branches and tellers take about 15 MB with their keys."""
    takes_turns: ClassVar[bool] = True
    reads_scripts: ClassVar[bool] = True

    def problems(self, workload: Workload) -> Iterator[str]:
        """Yield nothing: every key of a workload is one of pgbench's."""
        yield from ()
