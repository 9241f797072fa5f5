"""From the runs of one metric in one cell to estimates, ranking and verdicts; knows nothing of directories.

The judge of recorded campaigns and the simulator both use this module: simulated results are the printed results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from pgstrata.analyze.stats.ageing import Ageing, ageing
from pgstrata.analyze.stats.bad_mode import BadMode, bad_modes
from pgstrata.analyze.stats.comparison import (
    Design,
    ErrorRates,
    Pair,
    Replay,
    Table,
    judge_pairs,
    leading_pair,
    tabulate,
)
from pgstrata.analyze.stats.equivalence import (
    LEAST_RUNS,
    PairVerdict,
    difference_of_means,
    judge_pair,
    mean_of_differences,
)
from pgstrata.analyze.stats.fit import BlockFit, fit_cells
from pgstrata.analyze.stats.forecast import MOST_PAIRS, pairs_needed
from pgstrata.analyze.stats.hodges_lehmann import hodges_lehmann, hodges_lehmann_shift
from pgstrata.analyze.stats.holm import holm_rejects
from pgstrata.analyze.stats.hosts import (
    LEAST_HOSTS,
    HostTable,
    OverHosts,
    centred_by_host,
    hosts_of,
    over_hosts,
    tabulate_hosts,
)
from pgstrata.analyze.stats.interval import (
    ALPHA,
    CONFIRM_G,
    EQUIVALENCE_ALPHA,
    SCREEN_G,
    Estimate,
    Floats,
    Interval,
    anytime_p,
    interval,
)
from pgstrata.analyze.stats.screen import STOP_PROBABILITY, probability_within_margin, rank
from pgstrata.analyze.stats.screened_scatter import Scatter
from pgstrata.analyze.stats.serial import inflated, told_correlation
from pgstrata.analyze.stats.shared_scatter import RUNS_TO_SHARE, evident_in_table
from pgstrata.analyze.stats.two_modes import two_modes
from pgstrata.record.decision import COMPARISON, Observation, Stage


@dataclass(frozen=True)
class PairConclusion:
    """A pair with its verdict and the figures reported next to it; values on the scale of the model."""

    a: str
    b: str
    bound: float
    verdict: PairVerdict
    confirmed: bool
    """True for a verdict from fresh pairs (or pairs declared before the first run), not from screening."""
    sigma: float
    """Standard deviation of one paired difference."""
    rates: ErrorRates
    counted: int
    """Pairs that still count if more are run."""
    x: Floats
    y: Floats
    """Runs of a and b; in the same order if they are paired, with nan for a missing one."""
    paired: bool
    over: OverHosts | None = None
    """The pair on each host, and over the kind of machine, in a campaign on several hosts. `verdict` then counts
    hosts."""

    def cross_check(self) -> float:
        """Hodges-Lehmann estimate of the same difference."""
        if self.paired:
            d = self.x - self.y
            return hodges_lehmann(d[np.isfinite(d)])
        return hodges_lehmann_shift(self.x[np.isfinite(self.x)], self.y[np.isfinite(self.y)])

    @property
    def in_blocks(self) -> Floats:
        """Differences of the blocks with runs of both; empty for a pair without blocks, or over hosts."""
        d = self.x - self.y if self.paired and self.over is None else np.zeros(0)
        return d[np.isfinite(d)]

    def correlation(self) -> float | None:
        """Correlation of a block's difference with that of the next block; None if it may be due to chance."""
        return told_correlation(self.in_blocks)

    def needed(self) -> int | None:
        """Further pairs until a verdict, by the forecast; at least one while the verdict is open, None if too many."""
        if self.verdict.decided or not self.sigma > 0:
            return None
        rates, opposed_n = self.rates, self.verdict.opposed_n
        if opposed_n is not None:
            return max(1, math.ceil(opposed_n) - self.counted) if opposed_n <= MOST_PAIRS else None
        total = pairs_needed(self.verdict.estimate.value, self.sigma, self.bound, rates.alpha, rates.equivalence)
        least = LEAST_HOSTS if self.over else 0
        return None if total is None else max(1, max(total, least) - self.counted)


@dataclass(frozen=True)
class OwnLevel:
    """Level of one stack, on the scale of the model; the interval is infinite while too few runs exist."""

    level: float
    interval: Interval


@dataclass(frozen=True)
class CellConclusion:
    """All conclusions about one metric in one cell."""

    fit: BlockFit
    own: dict[str, OwnLevel]
    ranking: tuple[str, ...]
    """Best first; stacks that cannot be chosen last."""
    leader: str | None
    """First of the ranking if two can be compared, or the only stack that can be chosen."""
    favoured: bool
    """True if the verdicts support the leader against every rival."""
    bad_modes: tuple[BadMode, ...]
    screened: tuple[PairConclusion, ...]
    confirmed: tuple[PairConclusion, ...]
    apart: tuple[str, ...]
    """Stacks with runs that no chain of blocks connects with the ranked ones, or with too few runs."""
    hosts: HostTable | None = None
    """Table of hosts, in a campaign on several."""

    @property
    def held_back(self) -> BadMode | None:
        """The bad mode that alone keeps the leader from being chosen."""
        return next((mode for mode in self.bad_modes if self.favoured and mode.stack == self.leader), None)

    @property
    def chosen(self) -> bool:
        """True if the leader is chosen: favoured, and without a bad mode."""
        return self.favoured and self.held_back is None

    @property
    def of_leader(self) -> tuple[PairConclusion, ...]:
        """Pairs of the leader: the confirmed ones, if any."""
        return tuple(p for p in self.confirmed or self.screened if self.leader in (p.a, p.b))

    def ageing(self) -> Iterator[tuple[PairConclusion, Ageing]]:
        """Pairs of the leader whose difference grows or shrinks over the campaign."""
        paired = [p for p in self.of_leader if p.paired and p.over is None]
        found = ((p, ageing(p.x - p.y, len(paired))) for p in paired)
        return ((pair, line) for pair, line in found if line is not None)


def conclude(
    design: Design,
    observations: Sequence[Observation],
    cell: str,
    *,
    imported: bool = False,
    paired: bool = True,
    replay: Replay | None = None,
) -> CellConclusion:
    """Return the conclusion about the primary metric, by the stages of the campaign.

    `replay` caches the fits of stage 1 between looks at a growing campaign, and between cells.
    """
    if hosts_of(observations):
        return conclude_hosts(design, observations, cell)
    stages: tuple[Stage, ...] = ("screen",) if design.screens and not imported else COMPARISON
    table = tabulate(design, observations, cell, stages)
    fit = fit_table(table, paired=paired, one_look=design.one_look)
    survivors = tuple(range(len(design.stacks)))
    pairs: tuple[Pair, ...] = ()
    counted = table
    scatter = None
    if not imported:
        pairs = design.declared()
        if design.screens:
            tables = {c: tabulate(design, observations, c, stages) for c in design.cells}
            stage = (replay or Replay(design)).stage_one(tables)[cell]
            survivors = stage.survivors or survivors
            leading = leading_pair(design, stage)
            if leading:
                pairs = (leading,)
                scatter = stage.scatter(design.stacks.index(leading.a), design.stacks.index(leading.b))
            counted = tabulate(design, observations, cell, ("confirm",))
    confirmed = tuple(c for c in _confirmed(design, pairs, counted, scatter) if c.verdict.estimate.n > 0)
    screened = tuple(_screened(design, fit, table, imported=imported, paired=paired))
    ranking, leader = _ranked(design, fit, survivors, confirmed)
    return CellConclusion(
        fit=fit,
        own=own_levels(design.stacks, fit, table),
        ranking=ranking,
        leader=leader,
        favoured=leader is not None and is_favoured(design, fit, leader, screened, confirmed, imported=imported),
        bad_modes=bad_modes(design.stacks, table if imported else tabulate(design, observations, cell, COMPARISON)),
        screened=screened,
        confirmed=confirmed,
        apart=tuple(n for k, n in enumerate(design.stacks) if n not in ranking and np.isfinite(table.y[k]).any()),
    )


def conclude_hosts(design: Design, observations: Sequence[Observation], cell: str) -> CellConclusion:
    """Return the conclusion of a campaign on several hosts: about the kind of machine that they are a sample of.

    Every pair is declared. All stacks run on all hosts, so nothing was selected and every run counts.
    """
    hosts = tabulate_hosts(design, observations, cell)
    table = Table(hosts.y, tuple(range(len(hosts.hosts))))
    fit = fit_table(table, paired=True)
    runs = tabulate(design, observations, cell, COMPARISON)
    confirmed = tuple(c for c in _over_hosts(design, hosts) if c.verdict.estimate.n > 0)
    ranking, leader = _ranked(design, fit, range(len(design.stacks)), ())
    return CellConclusion(
        fit=fit,
        own=own_levels(design.stacks, fit, table),
        ranking=ranking,
        leader=leader,
        favoured=leader is not None and not undecided_rivals(design, fit, leader, (), confirmed),
        bad_modes=bad_modes(design.stacks, centred_by_host(runs, observations)),
        screened=(),
        confirmed=confirmed,
        apart=tuple(n for k, n in enumerate(design.stacks) if n not in ranking and np.isfinite(table.y[k]).any()),
        hosts=hosts,
    )


def _over_hosts(design: Design, hosts: HostTable) -> Iterator[PairConclusion]:
    pairs = design.declared() or tuple(Pair(a, b, design.bound) for a, b in combinations(design.stacks, 2))
    rates = design.error_rates(len(pairs))
    at = [(design.stacks.index(p.a), design.stacks.index(p.b)) for p in pairs]
    found = [over_hosts(hosts, i, j) for i, j in at]
    claimed = [over.claimed() for over in found]
    rejected = holm_rejects([anytime_p(estimate, CONFIRM_G) for estimate in claimed], rates.family)
    for pair, (i, j), over, estimate, different in zip(pairs, at, found, claimed, rejected, strict=True):
        verdict = judge_pair(
            estimate,
            pair.bound,
            over.mean,
            alpha=rates.alpha,
            equivalence_alpha=rates.equivalence,
            different=different if len(pairs) > 1 else None,
        )
        sigma, counted = over.estimate.se * math.sqrt(over.estimate.n), int(over.estimate.n)
        x, y = hosts.y[i], hosts.y[j]
        yield PairConclusion(
            pair.a, pair.b, pair.bound, verdict, True, sigma, rates, counted, x, y, paired=True, over=over
        )


def fit_table(table: Table, *, paired: bool, one_look: bool = False) -> BlockFit:
    """Fit the model of stage 1. A stack that evidently scatters more keeps its own variance, because its results are
    claims.

    Without blocks, or with a single stack, every run belongs to one block.
    """
    rows = table.y.shape[0]
    stack, block = np.nonzero(np.isfinite(table.y))
    blocks = block if paired and rows > 1 else np.zeros_like(block)
    return fit_cells(stack, blocks, table.y[stack, block], rows, evident=evident_in_table(one_look=one_look))


def own_levels(stacks: Sequence[str], fit: BlockFit, table: Table) -> dict[str, OwnLevel]:
    """Return exp(a_k + mean b) with its interval from sqrt(v_k / n_k); a plain mean for a stack that could not be
    fitted."""
    found: dict[str, OwnLevel] = {}
    for k, name in enumerate(stacks):
        own = fit.own(k)
        if math.isfinite(own.value):
            found[name] = OwnLevel(own.value, interval(own, ALPHA, SCREEN_G))
            continue
        values = table.y[k][np.isfinite(table.y[k])]
        if values.size:
            found[name] = OwnLevel(float(values.mean()), Interval(-math.inf, math.inf, 1 - ALPHA))
    return found


def _ranked(
    design: Design, fit: BlockFit, survivors: Sequence[int], confirmed: Sequence[PairConclusion]
) -> tuple[tuple[str, ...], str | None]:
    order = [design.stacks[k] for k in rank(fit, range(len(design.stacks)), design.stacks)]
    among = [name for name in order if design.can_choose(name)]
    apart = [name for name in order if name not in among]
    if len(order) < 2 or not among:
        return (*among, *apart), None
    still_in = [design.stacks[k] for k in rank(fit, survivors, design.stacks)]
    leader = next((name for name in still_in if name in among), among[0])
    for pair in confirmed:
        # Fresh pairs override the screening they came from.
        if design.screens and pair.verdict.verdict == "worse" and pair.a == leader:
            leader = pair.b
    return (leader, *(name for name in (*among, *apart) if name != leader)), leader


def is_favoured(
    design: Design,
    fit: BlockFit,
    leader: str,
    screened: Sequence[PairConclusion],
    confirmed: Sequence[PairConclusion],
    *,
    imported: bool,
) -> bool:
    """Return True if a verdict supports the leader against every stack that could be chosen instead.

    Each rival must be proven worse or equal, by an interval that holds at any look. If fresh pairs decided between the
    leader and the runner-up, screening suffices for the others: the sum of their probabilities of being better than the
    leader by more than the margin must be at most 0.05.
    """
    open_rivals = undecided_rivals(design, fit, leader, screened, confirmed)
    if not open_rivals:
        return True
    fresh, all_runs = _against(leader, confirmed), _against(leader, screened)
    screening = design.screens and not design.fixed and not imported
    if not screening or not any(design.can_choose(n) for n in fresh):
        return False
    if any(n in fresh or not _is_bounded(all_runs.get(n)) for n in open_rivals):
        return False
    indices = [design.stacks.index(n) for n in open_rivals]
    sure = probability_within_margin(fit, design.stacks.index(leader), design.bound, indices)
    return sure >= 1 - STOP_PROBABILITY / len(design.cells)


def undecided_rivals(
    design: Design,
    fit: BlockFit,
    leader: str,
    screened: Sequence[PairConclusion],
    confirmed: Sequence[PairConclusion],
) -> tuple[str, ...]:
    """Return the stacks that could be chosen instead of the leader and that no verdict shows to be worse or equal."""
    fresh, all_runs = _against(leader, confirmed), _against(leader, screened)
    rivals = (n for k, n in enumerate(design.stacks) if n != leader and design.can_choose(n) and fit.component[k] >= 0)
    return tuple(n for n in rivals if not _favours(leader, fresh.get(n) or all_runs.get(n)))


def _against(leader: str, pairs: Sequence[PairConclusion]) -> dict[str, PairConclusion]:
    return {p.b if p.a == leader else p.a: p for p in pairs if leader in (p.a, p.b)}


def _favours(leader: str, pair: PairConclusion | None) -> bool:
    return pair is not None and pair.verdict.verdict in ("equal", "better" if pair.a == leader else "worse")


def is_bounded_by_screening(design: Design, observations: Sequence[Observation], cell: str, pair: Pair) -> bool:
    """Return True if screening's own runs give a useful interval for a pair. Three runs of a stack that evidently
    scatters more give an interval several times as wide as that of the others."""
    table = tabulate(design, observations, cell, ("screen",))
    fit = fit_table(table, paired=True)
    few = fit.evident & (fit.runs <= RUNS_TO_SHARE)
    if any(few[design.stacks.index(name)] for name in (pair.a, pair.b)):
        return False
    screened = _screened(design, fit, table, imported=False, paired=True)
    return any(_is_bounded(found) for found in screened if {found.a, found.b} == {pair.a, pair.b})


def _is_bounded(pair: PairConclusion | None) -> bool:
    return pair is not None and math.isfinite(pair.verdict.interval.low)


def _screened(design: Design, fit: BlockFit, table: Table, *, imported: bool, paired: bool) -> Iterator[PairConclusion]:
    """Yield every pair by the fit. Imports test equivalence at 0.10 per pair; campaigns divide it among the pairs."""
    shared = _shared_rates(design, fit)
    equality = EQUIVALENCE_ALPHA / len(design.cells) if imported else shared.equivalence
    rates = ErrorRates(shared.family, shared.alpha, equality)
    for pair in _fitted_pairs(design, fit, table, design.bound, rates, paired=paired, imported=imported):
        # Confirmation would test this pair alone, at the undivided error rate.
        yield replace(pair, rates=design.error_rates(1), counted=int(pair.verdict.estimate.n) if imported else 0)


def _shared_rates(design: Design, fit: BlockFit) -> ErrorRates:
    """Return the error rates of each pair of compared stacks."""
    count = int((fit.component >= 0).sum())
    return design.error_rates(count * (count - 1) // 2)


def _fitted_pairs(
    design: Design,
    fit: BlockFit,
    table: Table,
    bound: float,
    rates: ErrorRates,
    *,
    paired: bool,
    imported: bool = False,
) -> Iterator[PairConclusion]:
    difference, se, nu, n = (a.tolist() for a in (fit.pairs.difference, fit.pairs.se, fit.pairs.nu, fit.pairs.n))
    for i, j in combinations(np.flatnonzero(fit.component >= 0).tolist(), 2):
        shared = min(fit.runs[i], fit.runs[j]) >= RUNS_TO_SHARE
        estimate = Estimate(difference[i][j], se[i][j], nu[i][j] if shared else math.nan, n[i][j])
        if not estimate.se > 0:
            continue
        verdict = judge_pair(
            estimate,
            bound,
            _plain_mean(table, i, j, paired=paired),
            least_runs=0 if imported else LEAST_RUNS,
            alpha=rates.alpha,
            g=SCREEN_G,
            equivalence_alpha=rates.equivalence,
            serial=inflated(estimate, table.differences(i, j)) if paired else None,
            modes=two_modes(table.differences(i, j), estimate) if paired else None,
            one_look=design.one_look,
        )
        names, sigma = (design.stacks[i], design.stacks[j]), math.sqrt(fit.variance[i] + fit.variance[j])
        yield PairConclusion(*names, bound, verdict, False, sigma, rates, 0, table.y[i], table.y[j], paired)


def _plain_mean(table: Table, i: int, j: int, *, paired: bool) -> Estimate:
    if paired:
        return mean_of_differences(table.differences(i, j))
    return difference_of_means(table.of(i), table.of(j))


def _confirmed(
    design: Design, pairs: Sequence[Pair], table: Table, scatter: Scatter | None
) -> Iterator[PairConclusion]:
    rates = design.error_rates(len(pairs))
    for pair, verdict in zip(pairs, judge_pairs(design, pairs, table, scatter), strict=True):
        i, j = design.stacks.index(pair.a), design.stacks.index(pair.b)
        sigma = verdict.estimate.se * math.sqrt(verdict.estimate.n)
        counted = int(verdict.estimate.n)
        yield PairConclusion(
            pair.a, pair.b, pair.bound, verdict, True, sigma, rates, counted, table.y[i], table.y[j], True
        )


def explore(
    design: Design, table: Table, *, paired: bool
) -> tuple[BlockFit, dict[str, OwnLevel], tuple[PairConclusion, ...]]:
    """Fit every pair in an undeclared metric: the same model, without a margin; never proven."""
    fit = fit_table(table, paired=paired, one_look=design.one_look)
    pairs = _fitted_pairs(design, fit, table, 0.0, _shared_rates(design, fit), paired=paired)
    return fit, own_levels(design.stacks, fit, table), tuple(pairs)
