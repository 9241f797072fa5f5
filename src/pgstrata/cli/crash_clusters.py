"""What `pgstrata crash` is asked of clusters."""

from __future__ import annotations

from typing import get_args

from pgstrata.crash.cluster_program import FAILURES, FailuresAsked, refuse_failures
from pgstrata.errors import UsageError
from pgstrata.record.cluster import Promoted
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.nearest import render_nearest

CHOICES: tuple[Promoted, ...] = get_args(Promoted)


def asked_failures(failures: int | None, lost: int, promote: str, seed: int) -> FailuresAsked:
    """UsageError for a choice that is none."""
    for choice in CHOICES:
        if choice == promote:
            return FailuresAsked(failures or FAILURES, lost, choice, seed)
    raise UsageError(f"--promote: {promote!r} is none of {', '.join(CHOICES)}", hint=render_nearest(promote, CHOICES))


def refuse_request(
    campaign: Campaign, asked: FailuresAsked, *, minutes: float | None, ignore_flushes: str, fault: str
) -> None:
    """UsageError for what cannot be carried out on a cluster of the campaign."""
    if minutes is not None or ignore_flushes != "0" or fault:
        raise UsageError(
            "of clusters nodes are lost: --minutes, --ignore-flushes and --fault are for the power cuts of a disk",
            hint="pgstrata crash 'cluster(3,ANY 1)/tmpfs' --states 100 --lost 1",
        )
    for stack in campaign.stacks:
        problem = refuse_failures(stack, asked)
        if problem:
            raise UsageError(
                f"there are no such crash trials for stack {stack.name}: {problem}",
                hint="lose fewer nodes, or give it standbys or an archive",
            )
