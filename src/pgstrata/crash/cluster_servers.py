"""The servers of a crash trial of a cluster. Standbys join once the ledger exists, and a base backup is stored next to
the archive. A single server has none of these steps.
"""

from __future__ import annotations

from pgstrata.crash.job import CrashPlaces, base_backup, failover_steps
from pgstrata.stack.step import Step, planned
from pgstrata.trial.context import TrialContext, TrialSetup
from pgstrata.trial.steps.cluster import attest_cluster, join_steps, start_commands, start_servers

BACKUP_TIMEOUT_S = 600.0


def cluster_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """Steps from a primary with an empty ledger to a stopped cluster, with the program that brings up the remaining
    servers."""
    if setup.stack.topology is None:
        return ()
    return (
        Step("stop the server", setup.server.planned(setup.server.plan_stop()), act=_stop_primary),
        *join_steps(setup),
        *_base_steps(setup),
        *failover_steps(setup, CrashPlaces.of(setup)),
    )


def _base_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """Stores a base backup next to the archive, which cannot be restored without one."""
    base = base_backup(setup.plan)
    if base is None:
        return ()
    copy = planned("cp", "--archive", "--dereference", setup.plan.data_directory, base, timeout_s=BACKUP_TIMEOUT_S)
    flush = planned("sync", "--file-system", base, timeout_s=BACKUP_TIMEOUT_S)
    return (Step("base backup beside the archive", (copy, flush)),)


def start_cluster_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """Starts the servers of a cluster and waits until its standbys follow."""
    if setup.stack.topology is None:
        return ()
    return (Step("start the servers", start_commands(setup), act=_start),)


def _stop_primary(context: TrialContext) -> None:
    context.server.stop()


def _start(context: TrialContext) -> None:
    start_servers(context)
    context.attest_server("built")
    attest_cluster(context, "built")
