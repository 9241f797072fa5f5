"""The trials that a decision asks for: a block of each host, all at once, or one block where there is one host."""

from __future__ import annotations

from collections.abc import Iterable

from pgstrata.record.schema import DecisionRecord
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.expand import block_trials


def begun_rounds(decisions: Iterable[DecisionRecord]) -> list[int]:
    """The first block of every round that was decided, in order."""
    return sorted({decision.after_block for decision in decisions if decision.stage != "done"})


def round_trials(campaign: Campaign, decision: DecisionRecord, turn: int) -> dict[int, tuple[Trial, ...]]:
    """The blocks of a round by their number, each of one host; `turn` counts the rounds before it."""
    assert decision.stage != "done"
    on_hosts = bool(decision.hosts)
    return {
        decision.after_block + k: block_trials(
            campaign,
            decision.after_block + k,
            decision.continue_with,
            decision.stage,
            cells=decision.cells,
            duration_s=decision.duration_s,
            slices=decision.slices,
            host=host,
            turn=turn if on_hosts else None,
        )
        for k, host in enumerate(decision.hosts or ("",))
    }
