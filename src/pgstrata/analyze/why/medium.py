"""Stability of the medium during a campaign: by its baselines, and by the checks before its blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from pgstrata.analyze.stats.leave_one_out import medians_of_others
from pgstrata.record.schema import MediumRecord

CHANGED = 2.0
"""A rate that differs by this factor is reported: the rates of a shared or virtual disk vary by less."""
UNLIKE = 1.25
"""A host whose rate differs from the median of the others by this factor is named: a quarter more or fewer flushes
changes throughput more than the choice between most stacks."""
LEAST_HOSTS = 3
"""Minimum number of hosts: with two, neither can be called the outlier."""
SHORTEST_S = 1.0
"""Shorter measurements vary too much on the same disk."""
RATES = {
    "flushes_per_s": ("flushes a second", 1.0),
    "random_reads_per_s": ("random reads a second", 1.0),
    "random_writes_per_s": ("random writes a second", 1.0),
    "sequential_read_bytes_per_s": ("MB/s of sequential reads", 1e6),
    "sequential_write_bytes_per_s": ("MB/s of sequential writes", 1e6),
}


def medium_notices(media: Sequence[MediumRecord]) -> Iterator[str]:
    """Yield, for each host, a line for each baseline that differs from the previous one, and one for the checks that
    differ most; then a line for each host whose medium is unlike that of the others."""
    by_host: dict[str, list[MediumRecord]] = {}
    for record in media:
        by_host.setdefault(record.host, []).append(record)
    for host, own in by_host.items():
        where = f"on {host} " if host else ""
        yield from (f"{where}{line}" for line in _changes(own))
    yield from unlike_notices(media)


def unlike_notices(media: Sequence[MediumRecord]) -> Iterator[str]:
    """Yield a line for each host and rate of its latest baseline that is far from the median of the others."""
    latest = {record.host: record for record in media if record.host and record.kind == "baseline"}
    for name, (words, _) in RATES.items():
        rates = {h: getattr(r, name) for h, r in latest.items() if getattr(r, name) and r.seconds >= SHORTEST_S}
        if name == "flushes_per_s" and len({latest[h].flushes_by for h in rates}) > 1:
            continue  # measured by different programs: no comparison
        if len(rates) < LEAST_HOSTS:
            continue
        of_others = medians_of_others(np.array(list(rates.values()), dtype=np.float64))
        for (host, rate), others in zip(rates.items(), of_others.tolist(), strict=True):
            if max(rate / others, others / rate) >= UNLIKE:
                share = f"{100 * abs(rate / others - 1):.0f} % {'more' if rate > others else 'fewer'}"
                yield f"unlike the other hosts: {host} has {share} {words}"


def _changes(media: Sequence[MediumRecord]) -> Iterator[str]:
    for earlier, later in pairwise(record for record in media if record.kind == "baseline"):
        changed = [earlier.medium, later.medium] if earlier.medium != later.medium else []
        differing = [] if changed else [name for name in RATES if _differ(earlier, later, name)]
        if changed:
            yield _sentence(earlier, later, *changed)
        elif differing:
            yield _sentence(earlier, later, _rates(earlier, differing), _rates(later, differing))
    checks = [record for record in media if record.kind == "check" and record.flushes_per_s]
    if checks:
        ends = (min(checks, key=_flushes), max(checks, key=_flushes))
        earlier, later = sorted(ends, key=lambda record: record.before_block)
        if _differ(earlier, later, "flushes_per_s"):
            yield _sentence(earlier, later, _rates(earlier, ["flushes_per_s"]), _rates(later, ["flushes_per_s"]))


def _flushes(record: MediumRecord) -> float:
    return record.flushes_per_s or 0.0


def _sentence(earlier: MediumRecord, later: MediumRecord, before: str, after: str) -> str:
    return (
        f"the medium did not stay the same: {before} before block {earlier.before_block}, "
        f"{after} before block {later.before_block}"
    )


def _differ(earlier: MediumRecord, later: MediumRecord, name: str) -> bool:
    if min(earlier.seconds, later.seconds) < SHORTEST_S:
        return False
    if name == "flushes_per_s" and earlier.flushes_by != later.flushes_by:
        return False
    rates = [getattr(earlier, name), getattr(later, name)]
    return None not in rates and min(rates) > 0 and max(rates) / min(rates) >= CHANGED


def _rates(record: MediumRecord, names: Sequence[str]) -> str:
    return " and ".join(f"{getattr(record, name) / RATES[name][1]:,.0f} {RATES[name][0]}" for name in names)
