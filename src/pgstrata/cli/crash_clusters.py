"""What `pgstrata crash` is asked of clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from pgstrata.crash.cluster_program import FAILURES, FailuresAsked, refuse_failures
from pgstrata.errors import UsageError
from pgstrata.record.cluster import REJOINS, Promoted
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.checks import Refused
from pgstrata.spec.cluster_crash import power_problem
from pgstrata.spec.crash_trials import as_option, refuse_together
from pgstrata.spec.nearest import render_nearest

CHOICES: tuple[Promoted, ...] = get_args(Promoted)


def asked_failures(failures: int | None, lost: int, promote: str, seed: int, rejoin: str | None) -> FailuresAsked:
    """UsageError for a choice that is none."""
    chosen = next((choice for choice in CHOICES if choice == promote), None)
    if chosen is None:
        raise _none_of("--promote", promote, CHOICES)
    back = next((how for how in REJOINS if how == rejoin), None)
    if rejoin is not None and back is None:
        raise _none_of("--rejoin", rejoin, tuple(REJOINS))
    return FailuresAsked(failures or FAILURES, lost, chosen, seed, back)


def _none_of(option: str, given: str, choices: Sequence[str]) -> UsageError:
    return UsageError(f"{option}: {given!r} is none of {', '.join(choices)}", hint=render_nearest(given, choices))


def refuse_wishes(wishes: Mapping[str, object], *, cluster: bool) -> None:
    """UsageError for options of which some are for other trials; `wishes` are false where nothing was asked."""
    try:
        refuse_together([name for name, wish in wishes.items() if wish], as_option, cluster=cluster)
    except Refused as error:
        raise UsageError(str(error), hint=error.hint) from None


def refuse_failing(campaign: Campaign, asked: FailuresAsked) -> None:
    """UsageError for failures of nodes that cannot be carried out on a cluster of the campaign."""
    for stack in campaign.stacks:
        problem = refuse_failures(stack, asked)
        if problem:
            raise UsageError(
                f"there are no such crash trials for stack {stack.name}: {problem}",
                hint="lose fewer nodes, or give it standbys or an archive",
            )


def refuse_power(campaign: Campaign, gone: Sequence[str]) -> None:
    """UsageError for a power cut of a cluster that cannot be carried out, or says nothing."""
    for stack in campaign.stacks:
        problem = power_problem(stack, gone)
        if problem:
            raise UsageError(
                f"power cannot be cut below {stack.name}: {problem}",
                hint="put a standby or the archive on a disk: 'cluster(3,ANY 1)/tmpfs@archive=ext4'",
            )
