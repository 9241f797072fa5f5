"""The verdicts of crash trials in lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pgstrata.analyze.crash import share_bound
from pgstrata.analyze.findings import DurabilityFinding


def crash_lines(tested: Mapping[str, DurabilityFinding]) -> Iterator[str]:
    """A line for each stack, and where it failed or broke its promise one more."""
    for name, durability in tested.items():
        yield f"{name}: {verdict_words(durability)}"
        if durability.first_counterexample:
            yield f"  first: {durability.first_counterexample}"
        if broken_promise(durability):
            yield f"  its configuration promises that it {durability.class_}: {durability.reason}"


def verdict_words(durability: DurabilityFinding) -> str:
    """`held in 200 states (...)`, or what went wrong in how many of them."""
    states = f"{durability.states:,} states"
    if durability.verdict == "held":
        share = 100 * share_bound(durability.states)
        return f"held in {states} (no failure among so many bounds their share below {share:.2g} % at 95 %)"
    parts = [
        f"{word} in {count:,}"
        for word, count in (
            ("corrupt", durability.corrupt),
            ("lost acknowledged transactions", durability.lost),
            ("unknown", durability.unknown),
        )
        if count
    ]
    most = durability.lost_acknowledged_max
    lost = f", up to {most:,} acknowledged transactions missing" if most else ""
    return f"{', '.join(parts) or 'unknown'} of {states}{lost}"


def broken_promise(durability: DurabilityFinding) -> bool:
    """Whether acknowledged transactions were lost or data damaged where the configuration promises otherwise."""
    return durability.verdict in ("lost", "corrupt") and durability.class_ == "survives power loss"
