"""What crash trials say about a stack's promise. Pure.

A stack that held in all of n states is not proven safe. Were the states an independent random sample of those that
power cuts leave, and failed a share p of these, n states would all hold with probability (1 - p)^n; so at a confidence
of 95 % p is at most 1 - 0.05^(1/n), which is about 3/n (the rule of three: Hanley and Lippman-Hand, JAMA 249, 1983).
The states are not such a sample: they are chosen where failures are likely, from one recording. The bound says how
little n states can show at best, and not how likely a loss is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pgstrata.analyze.findings import DurabilityFinding
from pgstrata.record.reader import CrashData
from pgstrata.record.schema import CrashRecord
from pgstrata.spec.durability import Durability, durability_class
from pgstrata.spec.promise import LOSES, SURVIVES
from pgstrata.spec.stack import PRIMARY, Stack

LEVEL = 0.95


def share_bound(states: int, level: float = LEVEL) -> float:
    """The largest share of failing states that is compatible with none among so many."""
    return 1.0 if states == 0 else 1 - (1 - level) ** (1 / states)


def durability_found(promised: Durability, found: CrashRecord | None, untested: str = "") -> DurabilityFinding:
    """What the configuration promises, with what was found where power was cut, or why it was not."""
    if found is None:
        return DurabilityFinding(class_=promised.class_, reason=promised.reason, untested=untested)
    return DurabilityFinding(
        class_=promised.class_,
        reason=promised.reason,
        verdict=found.verdict,
        states=found.states,
        lost=found.lost,
        corrupt=found.corrupt,
        unknown=found.unknown,
        lost_acknowledged_max=found.lost_acknowledged_max,
        first_counterexample=found.first_counterexample,
        ignored_flushes=found.ignored_flushes,
        script=found.script,
        fault=found.fault,
        panicked=found.panicked,
        amcheck=found.amcheck,
        nested=found.nested,
        cluster=found.cluster,
        power=found.power,
    )


def broke_promise(durability: DurabilityFinding) -> bool:
    """Whether acknowledged transactions were lost or data damaged on a disk that obeys flushes and did not fail, where
    the configuration promises otherwise. It promises for the power of one machine: the loss of a cluster's nodes says
    nothing of that, nor does a power cut after which its primary did not come back."""
    power = durability.power
    if durability.cluster is not None or (power is not None and PRIMARY in (*power.gone, *power.in_memory)):
        return False
    fell = durability.verdict in ("lost", "corrupt") and obeyed(durability)
    return fell and durability.class_ == SURVIVES


def obeyed(durability: DurabilityFinding) -> bool:
    """Whether the disk did what it was asked, and lost power alone."""
    return durability.ignored_flushes == "0" and not durability.fault


def kept_class(durability: DurabilityFinding) -> str:
    """The durability to choose by: of a stack that broke its promise, the weakest."""
    return LOSES if broke_promise(durability) else durability.class_


def kept_classes(stacks: Sequence[Stack], crashes: Sequence[CrashData]) -> dict[str, str]:
    """The durability to choose each stack by, from its configuration and what crash trials found so far."""
    tested = {c.trial.stack: c.found for c in crashes if c.verdict.status == "ok"}
    return {s.name: kept_class(durability_found(durability_class(s), tested.get(s.name))) for s in stacks}


def broken_promises(tested: Mapping[str, DurabilityFinding]) -> Iterator[str]:
    """A warning for each stack whose tested verdict is worse than what its configuration promises."""
    for name, durability in tested.items():
        if broke_promise(durability):
            fell = "was damaged" if durability.verdict == "corrupt" else "lost acknowledged transactions"
            yield f"in power cuts {name} {fell}, though its configuration promises that it {durability.class_}"
