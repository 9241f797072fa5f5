"""Every driver: a new one is a module and a line here."""

from __future__ import annotations

from pgstrata.workload.driver import LoadDriver, register
from pgstrata.workload.pgbench_driver import PgbenchDriver
from pgstrata.workload.program_driver import ProgramDriver
from pgstrata.workload.replay_driver import ReplayDriver
from pgstrata.workload.tpcc_driver import TpccDriver

ALL: tuple[LoadDriver, ...] = (PgbenchDriver(), TpccDriver(), ProgramDriver(), ReplayDriver())


def register_drivers() -> None:
    """Make all drivers known; done once, when the package is imported."""
    for driver in ALL:
        register(driver)
