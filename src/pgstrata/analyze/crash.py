"""Evidence of crash trials on a stack's durability promise. Pure.

A stack that held in all of its states is not proven safe. Most states are chosen where failures are likely. A bound
applies to the others alone: their event and their writes are drawn by lot, one state for each of n flush epochs. If a
share p of such states fails, all n hold with probability (1 - p)^n. At a confidence of 95 % p is then at most
1 - 0.05^(1/n), about 3/n (the rule of three: Hanley and Lippman-Hand, JAMA 249, 1983). It is a share of such states of
one recording, not the probability of a loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pgstrata.analyze.findings import DurabilityFinding
from pgstrata.record.crash import CrashFound, CrashRecord
from pgstrata.record.reader import CrashData
from pgstrata.spec.durability import Durability, durability_class
from pgstrata.spec.durability_class import LOSES, SURVIVES
from pgstrata.spec.stack import PRIMARY, Stack

LEVEL = 0.95
_SHARED = (*CrashFound.model_fields, "verdict", "lost_acknowledged_max", "amcheck")
"""Fields that a finding has as the record has them."""


def share_bound(states: int) -> float:
    """Return the largest share of failing states that is compatible with no failure among `states`."""
    return 1.0 if states == 0 else 1 - (1 - LEVEL) ** (1 / states)


def durability_found(promised: Durability, found: CrashRecord | None, untested: str = "") -> DurabilityFinding:
    """Combine the promise of the configuration with the power-cut result, or with the reason why there is none."""
    if found is None:
        return DurabilityFinding(class_=promised.class_, reason=promised.reason, untested=untested)
    return DurabilityFinding(
        **{name: getattr(found, name) for name in _SHARED},
        class_=promised.class_,
        reason=promised.reason,
        ignored_flushes=found.request.ignore_flushes,
        script=found.request.script,
        fault=found.request.fault or "",
    )


def is_incomplete(crash: CrashData) -> bool:
    """Return True if a crash trial leaves a question open: it failed, checked no state, or has unknown or missing
    states."""
    found, status = crash.found, crash.verdict.status
    open_ = found.verdict == "unknown" or found.unknown > 0 or found.missing > 0
    return status == "failed" or (status == "ok" and open_)


def broke_promise(durability: DurabilityFinding) -> bool:
    """Return True if acknowledged transactions were lost or data damaged on a disk that obeys flushes and did not fail,
    although the configuration promises otherwise. The promise covers the power of one machine: it does not cover the
    loss of a cluster's nodes, nor a power cut after which its primary did not come back."""
    power = durability.power
    if durability.cluster is not None or (power is not None and PRIMARY in (*power.gone, *power.in_memory)):
        return False
    fell = durability.verdict in ("lost", "corrupt") and obeyed(durability)
    return fell and durability.class_ == SURVIVES


def obeyed(durability: DurabilityFinding) -> bool:
    """Return True if the disk obeyed all requests, and power loss was the only fault."""
    return durability.ignored_flushes == "0" and not durability.fault


def effective_durability(durability: DurabilityFinding) -> str:
    """Return the durability to choose by: the weakest for a stack that broke its promise."""
    return LOSES if broke_promise(durability) else durability.class_


def kept_classes(stacks: Sequence[Stack], crashes: Sequence[CrashData]) -> dict[str, str]:
    """Return the durability to choose each stack by, from its configuration and the crash trials so far."""
    tested = {c.trial.stack: c.found for c in crashes if c.verdict.status == "ok"}
    return {s.name: effective_durability(durability_found(durability_class(s), tested.get(s.name))) for s in stacks}


def broken_promises(tested: Mapping[str, DurabilityFinding]) -> Iterator[str]:
    """Yield a warning for each stack whose tested verdict is worse than the promise of its configuration."""
    for name, durability in tested.items():
        if broke_promise(durability):
            fell = "was damaged" if durability.verdict == "corrupt" else "lost acknowledged transactions"
            yield f"in power cuts {name} {fell}, though its configuration promises that it {durability.class_}"
