"""Decides from a campaign alone if the stacks of a block can stand side by side and take the load in turns. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from pgstrata.spec.campaign import Campaign, Slices, Trial, measures_servers

LONGEST_AUTO_S = 30.0
"""Longer runs are asked for to see checkpoint cycles, which slices do not show."""

WHOLE_RUN_EVERY = 8
"""Blocks from one with whole runs to the next."""


def why_whole(campaign: Campaign) -> str:
    """Return why the runs of a campaign are whole ones; empty if nothing in the campaign prevents slices."""
    if campaign.runs.design == "whole":
        return "runs.design is whole"
    prevented = next(_prevented(campaign), "")
    return prevented if prevented or campaign.runs.design == "slices" else next(_not_wanted(campaign), "")


def planned_slices(campaign: Campaign) -> Slices | None:
    """Return the turns that a campaign is to have, if its host allows them."""
    return None if why_whole(campaign) else campaign.runs.slices


def has_whole_run(trial: Trial) -> bool:
    """True if one whole run of each stack follows the slices of a trial's block: it shows stalls and checkpoints,
    explains the throughput, and is held against the slices."""
    return trial.slices is not None and trial.block % WHOLE_RUN_EVERY == 0


def _prevented(campaign: Campaign) -> Iterator[str]:
    """Yield every reason why the stacks cannot take turns."""
    workload, runs = campaign.workload, campaign.runs
    if len(campaign.stacks) < 2:
        yield "the campaign has one stack"
    if campaign.hosts:
        yield "the campaign is on several hosts"
    if campaign.goal.primary != "tps":
        yield f"slices measure tps, and goal.primary is {campaign.goal.primary}"
    if not workload.driver.takes_turns:
        yield f"runs of the driver {workload.driver.kind} cannot be cut"
    if workload.transactions is not None:
        yield "workload.transactions does not bound the time of a run"
    if workload.client is not None:
        yield "the client is on another host"
    if runs.load == "keep":
        yield "runs.load is keep"
    if runs.precondition == "steady":
        yield "runs.precondition is steady"
    if measures_servers(campaign):
        yield "running servers are measured one after the other"
    for stack in campaign.stacks:
        if stack.topology is not None:
            yield f"{stack.name} is a cluster"
        modules = any(volume.fs.host_settings for volume in stack.volumes.values())
        if stack.kernel.sysctl or stack.kernel.transparent_hugepage is not None or modules:
            yield f"{stack.name} sets kernel settings of the whole host"
    exported = [s.name for s in campaign.stacks if any(v.fs.one_server for v in s.volumes.values())]
    if len(exported) > 1:
        yield f"one server of the host serves {exported[0]} and {exported[1]}"
    for a, b in combinations(campaign.stacks, 2):
        if shared := set(a.device_ids) & set(b.device_ids):
            yield f"{a.name} and {b.name} are on the same device {min(shared)}"


def _not_wanted(campaign: Campaign) -> Iterator[str]:
    """Yield every reason why `auto` keeps whole runs."""
    runs, workload = campaign.runs, campaign.workload
    if runs.budget is None:
        yield "the campaign has no budget"
    if runs.blocks is not None:
        yield "runs.blocks is fixed"
    longest_s = max(workload.cell_duration_s(cell) or 0.0 for cell in workload.cells)
    if longest_s > LONGEST_AUTO_S:
        yield f"runs of more than {LONGEST_AUTO_S:.0f} s show checkpoint cycles, which slices do not"
