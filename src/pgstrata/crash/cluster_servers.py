"""The servers of a crash trial of a cluster: standbys are joined once the ledger is made, and a base backup is laid
beside the archive. A server that is alone has none of these steps.
"""

from __future__ import annotations

from pgstrata.crash.job import base_backup, failover_steps
from pgstrata.stack.step import Step, planned
from pgstrata.trial.cluster import attest_cluster, join_steps, start_commands, start_servers
from pgstrata.trial.context import TrialContext, TrialSetup

BACKUP_TIMEOUT_S = 600.0


def cluster_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """From a primary with an empty ledger to a cluster that is stopped, and the program that brings up what is left of
    it."""
    if setup.stack.topology is None:
        return ()
    return (
        Step("stop the server", setup.server.planned(setup.server.plan_stop()), act=_stop_primary),
        *join_steps(setup),
        *_base_steps(setup),
        *failover_steps(setup),
    )


def _base_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """A base backup beside the archive: without one it restores nothing."""
    base = base_backup(setup.plan)
    if base is None:
        return ()
    copy = planned("cp", "--archive", "--dereference", setup.plan.data_directory, base, timeout_s=BACKUP_TIMEOUT_S)
    flush = planned("sync", "--file-system", base, timeout_s=BACKUP_TIMEOUT_S)
    return (Step("base backup beside the archive", (copy, flush)),)


def start_cluster_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """Starts the servers of a cluster, and waits until its standbys follow."""
    if setup.stack.topology is None:
        return ()
    return (Step("start the servers", start_commands(setup), act=_start),)


def _stop_primary(context: TrialContext) -> None:
    context.server.stop()


def _start(context: TrialContext) -> None:
    start_servers(context)
    context.attest_server("built")
    attest_cluster(context, "built")
