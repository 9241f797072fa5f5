"""Every driver: a new one is a module beside this one and a line here. The first is the default.

What is registered from outside the package (`workload.driver.register`) is taken in the same way.
"""

from __future__ import annotations

from pgstrata.spec.drivers.go_tpc import GoTpc
from pgstrata.spec.drivers.kind import Driver
from pgstrata.spec.drivers.pgbench import Pgbench
from pgstrata.spec.drivers.program import Program
from pgstrata.spec.drivers.replay import Replay
from pgstrata.spec.drivers.sysbench import Sysbench
from pgstrata.spec.drivers.tpcc import Tpcc

DRIVERS: tuple[type[Driver], ...] = (Pgbench, Tpcc, GoTpc, Sysbench, Program, Replay)


def register_drivers() -> None:
    """Make all drivers known; done once, by `spec.workload`."""
    for driver in DRIVERS:
        Driver.register(driver)


def default_driver() -> Driver:
    """Return the driver of a workload that names none."""
    return DRIVERS[0].model_validate({})
