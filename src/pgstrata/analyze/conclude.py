"""From the runs of one metric in one cell to estimates, ranking and verdicts; knows nothing of directories.

The judge of recorded campaigns and the simulator both come through here, so that what is simulated is what is printed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pgstrata.analyze.badmode import BadMode, bad_modes
from pgstrata.analyze.comparison import (
    Design,
    ErrorRates,
    Pair,
    Replay,
    Table,
    judge_pairs,
    leading_pair,
    tabulate,
)
from pgstrata.analyze.equivalence import LEAST_RUNS, PairVerdict, difference_of_means, judge_pair, mean_of_differences
from pgstrata.analyze.fit import BlockFit, fit_cells
from pgstrata.analyze.forecast import pairs_needed
from pgstrata.analyze.hodges_lehmann import hodges_lehmann, hodges_lehmann_shift
from pgstrata.analyze.holm import holm_rejects
from pgstrata.analyze.hosts import HostTable, OverHosts, centred_by_host, hosts_of, over_hosts, tabulate_hosts
from pgstrata.analyze.interval import (
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
from pgstrata.analyze.screen import STOP_PROBABILITY, probability_within_margin, rank
from pgstrata.analyze.screened_scatter import Scatter, scatter_in_screening
from pgstrata.analyze.shared_scatter import RUNS_TO_SHARE, evident_in_table
from pgstrata.record.decision import Observation, Stage

COMPARISON: tuple[Stage, ...] = ("screen", "confirm")


@dataclass(frozen=True)
class PairConclusion:
    """A pair with its verdict and what is reported beside it; values on the scale of the model."""

    a: str
    b: str
    bound: float
    verdict: PairVerdict
    confirmed: bool
    """From fresh pairs (or pairs declared before the first run), not from screening."""
    sigma: float
    """Standard deviation of one paired difference."""
    rates: ErrorRates
    counted: int
    """Pairs that still count when more are run."""
    x: Floats
    y: Floats
    """Runs of a and b; in the same order where they are paired, with nan for a missing one."""
    paired: bool
    over: OverHosts | None = None
    """Of a campaign on several hosts: the pair on each, and over the kind of machine. `verdict` counts hosts then."""

    def cross_check(self) -> float:
        """Hodges-Lehmann estimate of the same difference."""
        if self.paired:
            d = self.x - self.y
            return hodges_lehmann(d[np.isfinite(d)])
        return hodges_lehmann_shift(self.x[np.isfinite(self.x)], self.y[np.isfinite(self.y)])

    def needed(self) -> int | None:
        """Further pairs until a verdict, by the forecast; at least one while it is open, None where too many."""
        if self.verdict.decided or not self.sigma > 0:
            return None
        rates = self.rates
        total = pairs_needed(self.verdict.estimate.value, self.sigma, self.bound, rates.alpha, rates.equivalence)
        return None if total is None else max(1, total - self.counted)


@dataclass(frozen=True)
class OwnLevel:
    """Level of one stack, on the scale of the model; the interval is infinite while there are too few runs."""

    level: float
    interval: Interval


@dataclass(frozen=True)
class CellConclusion:
    """Everything said about one metric in one cell."""

    fit: BlockFit
    own: dict[str, OwnLevel]
    ranking: tuple[str, ...]
    """Best first; stacks that cannot be chosen behind."""
    leader: str | None
    """First of the ranking where two can be compared, or where it is the only one that can be chosen."""
    chosen: bool
    """Whether the leader is chosen: see `is_chosen`."""
    bad_modes: tuple[BadMode, ...]
    screened: tuple[PairConclusion, ...]
    confirmed: tuple[PairConclusion, ...]
    apart: tuple[str, ...]
    """Stacks with runs that no chain of blocks connects with the ranked ones, or with too few runs."""
    hosts: HostTable | None = None
    """Of a campaign on several hosts."""


def conclude(
    design: Design,
    observations: Sequence[Observation],
    cell: str,
    *,
    imported: bool = False,
    paired: bool = True,
    replay: Replay | None = None,
) -> CellConclusion:
    """The conclusion about the primary metric, by the stages of the campaign.

    `replay` keeps the fits of stage 1 from one look at a growing campaign to the next, and from cell to cell.
    """
    if hosts_of(observations):
        return conclude_hosts(design, observations, cell)
    stages: tuple[Stage, ...] = ("screen",) if design.screens and not imported else COMPARISON
    table = tabulate(design, observations, cell, stages)
    fit = fit_table(table, paired=paired)
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
                scatter = scatter_in_screening(fit, design.stacks.index(leading.a), design.stacks.index(leading.b))
            counted = tabulate(design, observations, cell, ("confirm",))
    confirmed = tuple(c for c in _confirmed(design, pairs, counted, scatter) if c.verdict.estimate.n > 0)
    screened = tuple(_screened(design, fit, table, imported=imported, paired=paired))
    ranking, leader = _ranked(design, fit, survivors, confirmed)
    return CellConclusion(
        fit=fit,
        own=own_levels(design.stacks, fit, table),
        ranking=ranking,
        leader=leader,
        chosen=leader is not None and is_chosen(design, fit, leader, screened, confirmed, imported=imported),
        bad_modes=bad_modes(design.stacks, table if imported else tabulate(design, observations, cell, COMPARISON)),
        screened=screened,
        confirmed=confirmed,
        apart=tuple(n for k, n in enumerate(design.stacks) if n not in ranking and np.isfinite(table.y[k]).any()),
    )


def conclude_hosts(design: Design, observations: Sequence[Observation], cell: str) -> CellConclusion:
    """The same of a campaign on several hosts: about the kind of machine that they are a sample of.

    Every pair is declared: all stacks run on all hosts, so that nothing was selected and every run counts.
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
        chosen=leader is not None and not left_behind(design, fit, leader, (), confirmed),
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
    rejected = holm_rejects([anytime_p(over.estimate, CONFIRM_G) for over in found], rates.family)
    for pair, (i, j), over, different in zip(pairs, at, found, rejected, strict=True):
        verdict = judge_pair(
            over.estimate,
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


def fit_table(table: Table, *, paired: bool) -> BlockFit:
    """Stage 1's model, in which a stack that evidently scatters more keeps its own variance: what it says is a claim.

    Without blocks, or with one stack alone, every run belongs to one block.
    """
    rows = table.y.shape[0]
    stack, block = np.nonzero(np.isfinite(table.y))
    blocks = block if paired and rows > 1 else np.zeros_like(block)
    return fit_cells(stack, blocks, table.y[stack, block], rows, evident=evident_in_table)


def own_levels(stacks: Sequence[str], fit: BlockFit, table: Table) -> dict[str, OwnLevel]:
    """exp(a_k + mean b) with its interval from sqrt(v_k / n_k); a plain mean where a stack could not be fitted."""
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
        # Fresh pairs overrule the screening they came from.
        if design.screens and pair.verdict.verdict == "worse" and pair.a == leader:
            leader = pair.b
    return (leader, *(name for name in (*among, *apart) if name != leader)), leader


def is_chosen(
    design: Design,
    fit: BlockFit,
    leader: str,
    screened: Sequence[PairConclusion],
    confirmed: Sequence[PairConclusion],
    *,
    imported: bool,
) -> bool:
    """Whether a verdict stands behind the leader against every stack that could be chosen instead.

    Each must be proven worse or equal, by an interval that holds at any look. Where fresh pairs decided between the
    leader and the runner-up, it is enough of the others that screening left them behind: the sum of their chances to be
    better than the leader by more than the margin is at most 0.05.
    """
    open_rivals = left_behind(design, fit, leader, screened, confirmed)
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


def left_behind(
    design: Design,
    fit: BlockFit,
    leader: str,
    screened: Sequence[PairConclusion],
    confirmed: Sequence[PairConclusion],
) -> tuple[str, ...]:
    """Stacks that could be chosen instead of the leader, and that no verdict says are worse or equal."""
    fresh, all_runs = _against(leader, confirmed), _against(leader, screened)
    rivals = (n for k, n in enumerate(design.stacks) if n != leader and design.can_choose(n) and fit.component[k] >= 0)
    return tuple(n for n in rivals if not _favours(leader, fresh.get(n) or all_runs.get(n)))


def _against(leader: str, pairs: Sequence[PairConclusion]) -> dict[str, PairConclusion]:
    return {p.b if p.a == leader else p.a: p for p in pairs if leader in (p.a, p.b)}


def _favours(leader: str, pair: PairConclusion | None) -> bool:
    return pair is not None and pair.verdict.verdict in ("equal", "better" if pair.a == leader else "worse")


def is_bounded_by_screening(design: Design, observations: Sequence[Observation], cell: str, pair: Pair) -> bool:
    """Whether the screening's own runs have an interval for a pair; where a stack scatters unlike the others, three of
    its runs have none."""
    table = tabulate(design, observations, cell, ("screen",))
    screened = _screened(design, fit_table(table, paired=True), table, imported=False, paired=True)
    return any(_is_bounded(found) for found in screened if {found.a, found.b} == {pair.a, pair.b})


def _is_bounded(pair: PairConclusion | None) -> bool:
    return pair is not None and math.isfinite(pair.verdict.interval.low)


def _screened(design: Design, fit: BlockFit, table: Table, *, imported: bool, paired: bool) -> Iterator[PairConclusion]:
    """Every pair by the fit; imports get equivalence at 0.10 a pair, campaigns share it among the pairs."""
    count = int((fit.component >= 0).sum())
    shared = design.error_rates(count * (count - 1) // 2)
    equality = EQUIVALENCE_ALPHA / len(design.cells) if imported else shared.equivalence
    rates = ErrorRates(shared.family, shared.alpha, equality)
    # Confirmation would be of this pair alone, at the undivided error rate.
    future = design.error_rates(1)
    least = 0 if imported else LEAST_RUNS
    for i, j, verdict in _fitted_pairs(
        fit, table, design.bound, rates, paired=paired, least_runs=least, one_look=design.one_look
    ):
        sigma = math.sqrt(fit.variance[i] + fit.variance[j])
        counted = int(verdict.estimate.n) if imported else 0
        names = design.stacks[i], design.stacks[j]
        yield PairConclusion(
            *names, design.bound, verdict, False, sigma, future, counted, table.y[i], table.y[j], paired
        )


def _fitted_pairs(
    fit: BlockFit,
    table: Table,
    bound: float,
    rates: ErrorRates,
    *,
    paired: bool,
    least_runs: int = LEAST_RUNS,
    one_look: bool,
) -> Iterator[tuple[int, int, PairVerdict]]:
    difference, se, nu, n = (a.tolist() for a in (fit.pairs.difference, fit.pairs.se, fit.pairs.nu, fit.pairs.n))
    for i, j in combinations(np.flatnonzero(fit.component >= 0).tolist(), 2):
        shared = min(fit.runs[i], fit.runs[j]) >= RUNS_TO_SHARE
        estimate = Estimate(difference[i][j], se[i][j], nu[i][j] if shared else math.nan, n[i][j])
        if estimate.se > 0:
            yield (
                i,
                j,
                judge_pair(
                    estimate,
                    bound,
                    _plain_mean(table, i, j, paired=paired),
                    least_runs=least_runs,
                    alpha=rates.alpha,
                    g=SCREEN_G,
                    equivalence_alpha=rates.equivalence,
                    one_look=one_look,
                ),
            )


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
    """A metric that was not declared: the same fit for every pair, with no margin; never proven."""
    fit = fit_table(table, paired=paired)
    count = int((fit.component >= 0).sum())
    rates = design.error_rates(count * (count - 1) // 2)
    stacks = design.stacks
    pairs = []
    for i, j, verdict in _fitted_pairs(fit, table, 0.0, rates, paired=paired, one_look=design.one_look):
        sigma = math.sqrt(fit.variance[i] + fit.variance[j])
        pairs.append(
            PairConclusion(stacks[i], stacks[j], 0.0, verdict, False, sigma, rates, 0, table.y[i], table.y[j], paired)
        )
    return fit, own_levels(stacks, fit, table), tuple(pairs)
