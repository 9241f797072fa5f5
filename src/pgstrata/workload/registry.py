"""Every driver of the package: a new one is a module and a line here."""

from __future__ import annotations

from pgstrata.workload.driver import LoadDriver
from pgstrata.workload.go_tpc_driver import GoTpcDriver
from pgstrata.workload.pgbench import PgbenchDriver
from pgstrata.workload.program_driver import ProgramDriver
from pgstrata.workload.replay_driver import ReplayDriver
from pgstrata.workload.sysbench_driver import SysbenchDriver
from pgstrata.workload.tpcc_driver import TpccDriver

OWN: dict[str, LoadDriver] = {
    driver.name: driver
    for driver in (PgbenchDriver(), TpccDriver(), GoTpcDriver(), SysbenchDriver(), ProgramDriver(), ReplayDriver())
}
