"""The campaign of crash trials of clusters: the stacks as they are, with servers whose directories are soon copied."""

from __future__ import annotations

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign, CrashTrials
from pgstrata.spec.crash import INITDB, LEDGER, SETTINGS, crash_problem
from pgstrata.spec.stack import Stack

CLUSTER_SETTINGS = {**SETTINGS, "min_wal_size": "8MB", "wal_keep_size": "32MB"}
"""Unless the stack sets them: little WAL, and all of it kept between two moments."""


FAILURE_S = 2.0
"""Roughly what it takes to come to a moment and to carry a failure out."""


def are_clusters(campaign: Campaign) -> bool:
    """Whether the stacks are clusters; UsageError where some are and some are not."""
    clusters = [stack.name for stack in campaign.stacks if stack.topology is not None]
    if clusters and len(clusters) < len(campaign.stacks):
        alone = next(stack.name for stack in campaign.stacks if stack.topology is None)
        raise UsageError(
            f"{clusters[0]} is a cluster and {alone} is not: nodes are lost of the one, and power of the other",
            hint="test them in two calls",
        )
    return bool(clusters)


def untested(stack: Stack) -> str:
    """Why a stack of a campaign has no crash trial, of a disk or of nodes; empty where it has one."""
    if stack.topology is None:
        return crash_problem(stack)
    return "" if len(stack.nodes) > 1 else "its primary is alone: there is nobody to go on"


def failures_within(asked: CrashTrials) -> int:
    """How many failures of a cluster a campaign's crash trials have time for."""
    return max(1, min(asked.states, int(asked.time / FAILURE_S)))


def cluster_crash_campaign(campaign: Campaign) -> Campaign:
    """The clusters, with the settings of crash trials below their own."""
    shown = " ".join(stack.name for stack in campaign.stacks)
    stacks = tuple(map(_small, campaign.stacks))
    return campaign.model_copy(update={"name": f"crash {shown}"[:120], "stacks": stacks, "workload": LEDGER})


def _small(stack: Stack) -> Stack:
    postgres = stack.postgresql
    made = {
        "settings": {**CLUSTER_SETTINGS, **postgres.settings},
        "initdb": postgres.initdb or INITDB,
        "data_checksums": True if postgres.data_checksums is None else postgres.data_checksums,
    }
    return stack.model_copy(update={"postgresql": postgres.model_copy(update=made)})
