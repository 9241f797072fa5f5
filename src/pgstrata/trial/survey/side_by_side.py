"""Decides on a host if the stacks of a block stand side by side and take the load in turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgstrata.errors import PreflightError
from pgstrata.host.facts.system import read_memory
from pgstrata.record.schema import DecisionRecord
from pgstrata.spec.campaign import Slices
from pgstrata.spec.expand import why_whole
from pgstrata.spec.units import render_size
from pgstrata.stack import sizing
from pgstrata.stack.preflight import Preflight
from pgstrata.trial.survey.host_survey import Site
from pgstrata.trial.survey.preflight import loaded_bytes

MEMORY_SHARE = 0.8
"""Share of the available memory that the standing stacks may take together."""


@dataclass(frozen=True)
class Chosen:
    """The turns of a block's stacks, or None for whole runs; `refused` says why this host does not allow turns."""

    slices: Slices | None
    refused: str = ""


def choose_slices(
    site: Site, stacks: Sequence[str], preflight: Preflight, begun: DecisionRecord | None = None
) -> Chosen:
    """Return the layout of a campaign's runs on its host; one that has `begun` goes on as it began. PreflightError if
    it asks for slices and cannot have them."""
    campaign = site.campaign
    if begun is not None:
        refused = why_not_here(site, stacks, preflight) if begun.slices else ""
        if refused:
            raise PreflightError(
                f"the campaign began in slices, and {refused}", hint="free what is needed, or begin anew"
            )
        return Chosen(begun.slices)
    reason = why_whole(campaign)
    refused = "" if reason else why_not_here(site, stacks, preflight)
    if not reason and not refused:
        return Chosen(campaign.runs.slices)
    if campaign.runs.design == "slices":
        raise PreflightError(f"the stacks cannot stand side by side: {reason or refused}", hint="runs: {design: whole}")
    return Chosen(None, refused)


def why_not_here(site: Site, stacks: Sequence[str], preflight: Preflight) -> str:
    """Return why this host cannot hold all stacks at once; empty if it can."""
    campaign = site.campaign
    standing = campaign.model_copy(update={"stacks": tuple(s for s in campaign.stacks if s.name in stacks)})
    loaded = loaded_bytes(campaign)
    if len(standing.stacks) < 2:
        return "one stack can be built"
    needed = sizing.scratch_bytes(standing, site.loop_size_bytes, loaded, side_by_side=True)
    if needed > preflight.free_bytes:
        room = f"{render_size(preflight.free_bytes)} free in {site.scratch}"
        return f"all stacks at once take {render_size(needed)}, with {room}"
    memory = sum(sizing.memory_bytes(standing, stack, loaded) for stack in standing.stacks)
    available = int(MEMORY_SHARE * read_memory(site.host).get("MemAvailable", 0))
    if memory > available:
        return f"all servers at once take {render_size(memory)} of memory, of {render_size(available)} that may be used"
    return ""
