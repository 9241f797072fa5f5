"""The difference of two stacks over a kind of machine: hosts are a random sample of it, with complete blocks in each.

y = stack + host + block within host + stack x host + noise. The interaction (a larger gain of a stack on one host than
on another) separates "faster on these hosts" from "faster on this kind of host": blocks of one host share it, so the
unit of evidence is the host. With d_h the difference of two stacks on host h by the model of its own blocks (`fit.py`)
and v_h its squared standard error, H hosts give

    w_h    = 1 / v_h;  Q = sum w_h (d_h - d_w)^2,  d_w = sum w_h d_h / sum w_h
    tau^2  = max(0, (Q - (H - 1)) / (sum w_h - sum w_h^2 / sum w_h))       variance of the interaction
    w*_h   = 1 / (v_h + tau^2);  d = sum w*_h d_h / sum w*_h
    se^2   = sum w*_h (d_h - d)^2 / ((H - 1) sum w*_h),  H - 1 degrees of freedom

tau^2 by DerSimonian and Laird (Controlled Clinical Trials 7, 1986), d and its error by Hartung and Knapp (Statistics in
Medicine 20, 2001), whose t distribution holds with few hosts where the normal one does not. A v_h from a few blocks is
itself uncertain, and weights by it would follow chance: v_h is s^2 c_h, with s^2 pooled over the hosts by their degrees
of freedom and c_h what the design of host h makes of a variance of 1. If a host has a single block, all hosts have the
same weight.

A host disagrees if its own difference is not the median of the others', by Welch's t at 0.025 / H: by more than the
runs scatter. Three blocks of a host say little about its variance: s^2 of a host is the larger of its own and the
pooled one, with the degrees of freedom of all. A host that evidently scatters more, by an F test against the others at
0.05, is left out of the pool and has its own. The median, whose variance is pi/2 of that of a mean, keeps one odd host
from making the others look odd.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pgstrata.analyze.stats.comparison import Design, Table, tabulate
from pgstrata.analyze.stats.distributions import f_above, t_cdf
from pgstrata.analyze.stats.fit import BlockFit, Bools, fit_blocks
from pgstrata.analyze.stats.interval import ALPHA, Estimate, Floats
from pgstrata.analyze.stats.leave_one_out import medians_of_others, sums_of_others
from pgstrata.analyze.stats.packed import PackedObservations
from pgstrata.record.decision import Observation, Stage

COMPARISON: tuple[Stage, ...] = ("screen", "confirm")
LEAST_HOSTS = 6
"""Minimum number of hosts for a claim over a kind of machine: with fewer, random effects make too many false claims if
the kind is really two kinds."""
EVIDENT = 0.05
"""Test level for a host that scatters more than the others."""
DISAGREES = ALPHA / 2
"""Probability that any of identical hosts is found to disagree. Half of alpha, because hosts are tested after every
round."""


def hosts_of(observations: Sequence[Observation]) -> tuple[str, ...]:
    """Return the hosts of a campaign on several, in order of appearance; none for a campaign on one."""
    return tuple(dict.fromkeys(o.host for o in observations if o.host))


@dataclass(frozen=True)
class HostTable:
    """Level of each stack on each host, in one cell."""

    hosts: tuple[str, ...]
    y: Floats
    """Stack x host: the level by the host's own blocks; nan if it was not measured often enough."""
    fits: tuple[BlockFit, ...]
    runs: np.ndarray
    """Stack x host: valid runs."""


def tabulate_hosts(design: Design, observations: Sequence[Observation], cell: str) -> HostTable:
    """Tabulate every run of the comparison: nothing was selected, because no stack is dropped."""
    hosts = hosts_of(observations)
    own = {host: PackedObservations() for host in hosts}
    for o in observations:
        if o.host and o.cell == cell:
            own[o.host].append(o)
    tables = [tabulate(design, own[host], cell, COMPARISON) for host in hosts]
    fits = tuple(fit_blocks(table.y) for table in tables)
    y = np.full((len(design.stacks), len(hosts)), np.nan)
    runs = np.zeros(y.shape, dtype=np.intp)
    for at, (table, fit) in enumerate(zip(tables, fits, strict=True)):
        # A single block has no model and needs none: its runs share it.
        y[:, at] = table.y[:, 0] if table.y.shape[1] == 1 else np.where(fit.component == 0, fit.level, np.nan)
        runs[:, at] = np.isfinite(table.y).sum(axis=1)
    return HostTable(hosts, y, fits, runs)


def centred_by_host(table: Table, observations: Sequence[Observation]) -> Table:
    """Return runs relative to the median of their stack on their host: a host on which a stack is slow does not make
    its runs outliers."""
    host = {o.block: o.host for o in observations}
    blocks: dict[str, list[int]] = {}
    for column, block in enumerate(table.blocks):
        blocks.setdefault(host[block], []).append(column)
    y = table.y.copy()
    for columns in blocks.values():
        for row in y:
            own = [column for column in columns if np.isfinite(row[column])]
            row[own] -= np.median(row[own]) if own else 0.0
    return Table(y, table.blocks)


def host_factor_table(design: Design, observations: Sequence[Observation], cell: str) -> Table:
    """Return the valid runs of the comparison in one cell: stack x block, or stack x host in a campaign on several
    hosts."""
    if not hosts_of(observations):
        return tabulate(design, observations, cell, COMPARISON)
    hosts = tabulate_hosts(design, observations, cell)
    return Table(hosts.y, tuple(range(len(hosts.hosts))))


@dataclass(frozen=True)
class HostDifference:
    """Difference of two stacks on one host, by its own blocks; the standard error is nan if they are too few."""

    host: str
    estimate: Estimate
    p_alike: float
    """p of this host and the others having the same difference; nan if unknown."""
    disagrees: bool


@dataclass(frozen=True)
class OverHosts:
    """Difference of two stacks over the kind of machine that the hosts are a sample of."""

    estimate: Estimate
    """`n` counts hosts."""
    mean: Estimate
    """The plain mean over hosts; `n` counts the runs of the stack that has fewer, because a rare bad run takes many
    runs to show."""
    tau: float
    """Standard deviation of the difference from host to host, without that of the runs; nan if unknown."""
    hosts: tuple[HostDifference, ...]

    def claimed(self) -> Estimate:
        """Return the estimate behind a claim: without bounds if there are few hosts."""
        return self.estimate if self.estimate.n >= LEAST_HOSTS else replace(self.estimate, nu=math.nan)


def over_hosts(table: HostTable, i: int, j: int) -> OverHosts:
    """Estimate stack i against stack j over the hosts that have both."""
    d = table.y[i] - table.y[j]
    kept = np.flatnonzero(np.isfinite(d)).tolist()
    own = [_own(table, at, i, j, float(d[at])) for at in kept]
    count = len(kept)
    runs = float(min(table.runs[i, kept].sum(), table.runs[j, kept].sum())) if count else 0.0
    if count < 2:
        value = float(d[kept[0]]) if count else math.nan
        unknown = Estimate(value, math.nan, math.nan, count)
        return OverHosts(unknown, Estimate(value, math.nan, math.nan, runs), math.nan, _compared(table, kept, own))
    found = d[kept]
    weights, tau2 = _weights(found, _variances(own))
    value = float((weights * found).sum() / weights.sum())
    se = math.sqrt(float((weights * (found - value) ** 2).sum() / ((count - 1) * weights.sum())))
    plain = Estimate(float(found.mean()), float(found.std(ddof=1)) / math.sqrt(count), count - 1, runs)
    tau = math.sqrt(tau2) if math.isfinite(tau2) else math.nan
    return OverHosts(Estimate(value, se, count - 1, count), plain, tau, _compared(table, kept, own))


def _own(table: HostTable, at: int, i: int, j: int, value: float) -> Estimate:
    found = table.fits[at].estimate(i, j)
    return found if found.se > 0 else Estimate(value, math.nan, math.nan, 1)


def _variances(own: Sequence[Estimate]) -> Floats:
    """Return v_h of every host with the scatter of all; nan for a host without its own."""
    se2 = np.array([e.se**2 for e in own])
    nu, n = np.array([e.nu for e in own]), np.array([e.n for e in own])
    if not np.isfinite(se2).all():
        return np.full(se2.shape, np.nan)
    pooled = (nu * se2 * n).sum() / nu.sum()
    return np.asarray(pooled / n)


def _weights(d: Floats, v: Floats) -> tuple[Floats, float]:
    """Return w* and tau^2; weights of 1, and no tau, if a v_h is unknown."""
    if not np.isfinite(v).all() or not (v > 0).all():
        return np.ones(d.shape), math.nan
    w = 1 / v
    centre = (w * d).sum() / w.sum()
    q = float((w * (d - centre) ** 2).sum())
    tau2 = max(0.0, (q - (d.size - 1)) / float(w.sum() - (w**2).sum() / w.sum()))
    return 1 / (v + tau2), tau2


def _compared(table: HostTable, kept: Sequence[int], own: Sequence[Estimate]) -> tuple[HostDifference, ...]:
    return tuple(
        HostDifference(table.hosts[at], one, p, p < DISAGREES / len(own))
        for at, one, p in zip(kept, own, p_alike(own).tolist(), strict=True)
    )


def p_alike(own: Sequence[Estimate]) -> Floats:
    """Return p of Welch's t for each host against the median of the others."""
    if len(own) < 3:
        return np.full(len(own), np.nan)
    value, se2, nu, n = np.array([(e.value, e.se**2, e.nu, e.n) for e in own]).T
    variance, freedom = shared_variances(se2 * n, nu)
    part = variance / n
    rest, rest_nu = math.pi / 2 / (len(own) - 1) ** 2 * sums_of_others(part), nu.sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        total = part + rest
        t = (value - medians_of_others(value)) / np.sqrt(total)
        return np.where(total > 0, 2 * t_cdf(total**2 / (part**2 / freedom + rest**2 / rest_nu), -np.abs(t)), np.nan)


def shared_variances(variance: Floats, nu: Floats) -> tuple[Floats, Floats]:
    """Return s^2 of each host and its degrees of freedom."""
    apart = evident_hosts(variance, nu)
    pooled_nu = nu[~apart].sum()
    pooled = (nu * variance)[~apart].sum() / pooled_nu
    return np.maximum(variance, pooled), np.where(apart, nu, pooled_nu)


def evident_hosts(variance: Floats, nu: Floats) -> Bools:
    """Return which hosts evidently scatter more than the others, by an F test."""
    others = sums_of_others(nu)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = variance * others / sums_of_others(nu * variance)
    return np.asarray(f_above(nu, others, ratio) < EVIDENT)
