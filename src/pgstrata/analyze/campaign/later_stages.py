"""Stages after the comparison, if configured: latency at matched load, capacity, soak.

A closed loop gives throughput, but its percentiles hide stalls: a stalled client does not send. Latency is
therefore measured in an open loop, at rates that every remaining stack can sustain: shares of the slowest one's
throughput. The capacity under a latency objective is searched for each stack separately, but in blocks, so that all
stacks are always measured under the same conditions. Soak runs are long, because short runs on fresh data cannot show a
decline over hours.

Like every policy this is a pure function of the observations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean

from pgstrata.analyze.campaign.evidence import copies_on_write
from pgstrata.analyze.campaign.statements import Capacity, CapacityBracket
from pgstrata.analyze.stats.capacity import bracket, capacity_tps, least_transactions, meets, next_rate
from pgstrata.analyze.stats.comparison import seconds_by_stack
from pgstrata.record.decision import COMPARISON, Budget, Decision, Observation, OpenLoop, Policy
from pgstrata.spec.campaign import Campaign, Latency
from pgstrata.spec.expand import planned_slices
from pgstrata.spec.units import render_duration
from pgstrata.spec.workload import Cell

CONFIRMING_RUNS = 2
"""Further runs at the rate that the search found, interleaved with those of the other stacks."""
MOST_CAPACITY_BLOCKS = 16
"""Halving and bisecting to 2.5 % needs fewer; a stack whose runs scatter around its limit may never settle."""
LONGEST_STEP_S = 600.0
"""Maximum length of a run that is extended to have the transactions that its percentile needs."""
FAILURES_ALLOWED = 3
CAPACITY_START = 0.7
"""First rate of the search, as a share of a stack's closed-loop throughput."""


@dataclass(frozen=True)
class StagedPolicy:
    """The comparison by `main`, then the later stages in their order."""

    main: Policy
    campaign: Campaign

    def decide(self, observations: Sequence[Observation], blocks_done: int, elapsed_s: float) -> Decision:
        """Return the next decision; see `record.decision.Policy`."""
        later = [o for o in observations if o.stage not in COMPARISON]
        compared = [o for o in observations if o.stage in COMPARISON]
        later_blocks = len({o.block for o in later})
        decision = self.main.decide(compared, blocks_done - later_blocks, elapsed_s)
        if decision.stage != "done" or not compared:
            return decision
        attempts = blocks_done - 1 - max(o.block for o in compared)
        if attempts - later_blocks >= FAILURES_ALLOWED:
            return Decision("done", (), reason=f"{decision.reason}; later stages given up: their trials failed")
        stages: tuple[Callable[..., Decision | None], ...] = (_latency, _capacity, _soak)
        names = finalists(compared, self._asked_last(compared))
        for stage in stages:
            following = stage(self.campaign, compared, later, names)
            if following is not None:
                return self._within_budget(decision, following, compared, later, elapsed_s)
        return decision

    def _asked_last(self, compared: Sequence[Observation]) -> tuple[str, ...]:
        """Return the stacks planned for the last block of screening, whether or not their trials were valid."""
        screened = [o.block for o in compared if o.stage == "screen"]
        if not screened:
            return ()
        last = max(screened)
        return self.main.decide([o for o in compared if o.block < last], last, 0.0).run

    def _within_budget(
        self,
        ended: Decision,
        following: Decision,
        compared: Sequence[Observation],
        later: Sequence[Observation],
        elapsed_s: float,
    ) -> Decision:
        """Return one more block of a later stage, or the end if it would exceed the budget of the campaign."""
        budget_s = self.campaign.runs.budget
        needed_s = block_s(self.campaign, following, compared, later)
        if budget_s is None or Budget(budget_s).fits(needed_s, elapsed_s):
            return following
        begun = any(o.stage == following.stage for o in later)
        notice = (
            f"budget used: {render_duration(elapsed_s)} of {render_duration(budget_s)}; stage {following.stage} was "
            f"{'ended early' if begun else 'left out'}, as its next block takes about {render_duration(needed_s)}"
        )
        return replace(ended, reason=f"{ended.reason}; {notice}", budget_notice=notice)


def block_s(
    campaign: Campaign, decision: Decision, compared: Sequence[Observation], later: Sequence[Observation]
) -> float:
    """Return the expected machine time of a block of a later stage.

    Past blocks of the stage give it. Before the first, each stack's time in a block of the comparison is used, with
    this stage's runs instead of those. An unmeasured stack counts as the mean of the others.
    """
    own = seconds_by_stack(o for o in later if o.stage == decision.stage)
    before = seconds_by_stack(compared)
    expected = {}
    for name in decision.run:
        if name in own:
            expected[name] = own[name]
        elif name in before:
            cells = (decision.cells or {}).get(name, ())
            expected[name] = _with_runs_s(campaign, before[name], cells, decision.duration_s)
    return fmean(expected.values()) * len(decision.run) if expected else 0.0


def _with_runs_s(campaign: Campaign, block_s: float, cells: Sequence[Cell], duration_s: float | None) -> float:
    """Return the time of a block of the comparison with its runs replaced; the time for load and restarts is
    unchanged."""
    workload, grid = campaign.workload, campaign.workload.cells
    if workload.transactions is not None:  # the length of runs is not known beforehand
        return block_s * len(cells) / len(grid)
    slices = planned_slices(campaign)
    measured_s = slices.measured_s if slices else 0.0
    runs_s = sum(workload.warmup + (measured_s or workload.cell_duration_s(c) or 0.0) for c in grid)
    new_s = sum(workload.warmup + (duration_s or workload.cell_duration_s(c) or 0.0) for c in cells)
    return max(0.0, block_s - runs_s) + new_s


def finalists(observations: Sequence[Observation], asked: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the stacks that survived screening; without screening, every stack that was measured.

    `asked` are the stacks planned for its last block: a failed trial there eliminates no stack.
    """
    screened = [o for o in observations if o.stage == "screen"]
    last = max((o.block for o in screened), default=0)
    still_in = {o.stack for o in screened if o.block == last} | set(asked)
    return tuple(dict.fromkeys(o.stack for o in observations if not screened or o.stack in still_in))


def matched_cells(
    campaign: Campaign, compared: Sequence[Observation], share: float, names: Sequence[str]
) -> tuple[Cell, ...]:
    """Return the campaign's closed-loop cells at `share` of the slowest finalist's mean throughput in each."""
    cells = []
    for cell in campaign.workload.cells:
        means = [_mean(compared, name, cell) for name in names]
        if cell.rate_tps is None and means and min(means) > 0:
            cells.append(cell.model_copy(update={"rate_tps": _rounded(share * min(means))}))
    return tuple(cells)


def _mean(observations: Sequence[Observation], stack: str, cell: Cell) -> float:
    values = [o.value for o in observations if o.stack == stack and o.cell == cell.id]
    return fmean(values) if values else 0.0


def _rounded(rate_tps: float) -> float:
    """Round to three digits: a rate is part of a cell's name too."""
    return float(f"{rate_tps:.3g}")


def _latency(
    campaign: Campaign, compared: Sequence[Observation], later: Sequence[Observation], names: Sequence[str]
) -> Decision | None:
    asked = campaign.latency
    done = len({o.block for o in later if o.stage == "latency"})
    if asked is None or campaign.goal.primary != "tps" or done >= asked.blocks:
        return None
    cells = tuple(c for share in asked.rates for c in matched_cells(campaign, compared, share, names))
    if not cells:
        return None
    reason = f"latency at matched load, block {done + 1} of {asked.blocks}"
    lengthened_s = _lengthened_s(campaign, asked, cells)
    return Decision("latency", tuple(names), reason=reason, cells=dict.fromkeys(names, cells), duration_s=lengthened_s)


def _lengthened_s(campaign: Campaign, asked: Latency, cells: Iterable[Cell]) -> float | None:
    """Return the seconds of a run if the workload's own runs have too few transactions for the percentile; else
    None."""
    own = [campaign.workload.cell_duration_s(cell) for cell in cells]
    known_s = [s for s in own if s is not None]
    slowest_tps = min((cell.rate_tps for cell in cells if cell.rate_tps), default=math.inf)
    needed_s = float(math.ceil(least_transactions(asked.percentile) / slowest_tps))
    if not known_s or needed_s <= min(known_s):
        return None
    return min(max(needed_s, *known_s), max(LONGEST_STEP_S, *known_s))


def _capacity(
    campaign: Campaign, compared: Sequence[Observation], later: Sequence[Observation], names: Sequence[str]
) -> Decision | None:
    """Return one more rate for every stack whose bracket is still open."""
    asked = campaign.latency
    if asked is None or asked.objective_ms is None or campaign.goal.primary != "tps":
        return None
    done = len({o.block for o in later if o.stage == "capacity"})
    cells: dict[str, tuple[Cell, ...]] = {}
    for name in names:
        following = (_next_cell(campaign, asked, compared, later, name, cell) for cell in campaign.workload.cells)
        own = tuple(cell for cell in following if cell is not None)
        if own:
            cells[name] = own
    if not cells or done >= MOST_CAPACITY_BLOCKS:
        return None
    reason = f"capacity at {asked.percentile} <= {asked.objective_ms:g} ms, step {done + 1}"
    lengthened_s = _lengthened_s(campaign, asked, [c for own in cells.values() for c in own])
    return Decision("capacity", tuple(cells), reason=reason, cells=cells, duration_s=lengthened_s)


def _next_cell(
    campaign: Campaign,
    asked: Latency,
    compared: Sequence[Observation],
    later: Sequence[Observation],
    stack: str,
    cell: Cell,
) -> Cell | None:
    """Return the cell at the next rate of a stack's search; None if the search is finished."""
    assert asked.objective_ms is not None
    start_tps = CAPACITY_START * _mean(compared, stack, cell)
    if cell.rate_tps is not None or start_tps <= 0:
        return None
    rate_tps = _next_rate(asked.objective_ms, rates_tried(later, stack, cell), start_tps)
    if rate_tps is None or rate_tps * _longest_s(campaign, cell) < least_transactions(asked.percentile):
        return None
    return cell.model_copy(update={"rate_tps": rate_tps})


def _lowest(tried: Sequence[OpenLoop]) -> float:
    return min(r.rate_tps for r in tried)


def _longest_s(campaign: Campaign, cell: Cell) -> float:
    """Return the maximum length of a step with enough transactions; runs bounded by transactions have no maximum."""
    own_s = campaign.workload.cell_duration_s(cell)
    return math.inf if own_s is None else max(LONGEST_STEP_S, own_s)


def _next_rate(objective_ms: float, tried: Sequence[OpenLoop], start_tps: float) -> float | None:
    """Return the next rate of the search, or its result once more; None once that is confirmed, or no rate is left.

    A confirming run that misses the objective counts as a failing run: the search continues below it.
    """
    rates = [r.rate_tps for r in tried]
    rate_tps = next_rate(objective_ms, tried, start_tps)
    if rate_tps is not None and _rounded(rate_tps) not in rates:
        return _rounded(rate_tps)
    found = capacity_tps(objective_ms, tried)
    return found if found is not None and rates.count(found) <= CONFIRMING_RUNS else None


def rates_tried(observations: Sequence[Observation], stack: str, cell: Cell) -> tuple[OpenLoop, ...]:
    """Return every open-loop run of a stack in a cell of the grid."""
    return tuple(
        o.open_loop
        for o in observations
        if o.open_loop is not None
        and o.stack == stack
        and o.cell == cell.model_copy(update={"rate_tps": o.open_loop.rate_tps}).id
    )


def capacity_statement(
    campaign: Campaign, observations: Sequence[Observation], compared: Sequence[Observation], cell: Cell
) -> Capacity | None:
    """Return the statement on the capacity of every compared stack in a closed-loop cell; None if no rate was tried.

    `observations` are the open-loop runs, `compared` those of the comparison. Rates with too few transactions for the
    percentile do not count. If no other rate was tried, or lower rates would have too few as well, the capacity is
    unknown.
    """
    asked = campaign.latency
    if asked is None or asked.objective_ms is None:
        return None
    brackets, unknown, untried = [], [], []
    least = least_transactions(asked.percentile)
    for stack in dict.fromkeys(o.stack for o in compared):
        tried = rates_tried(observations, stack, cell)
        known = [r for r in tried if r.transactions >= least or not meets(asked.objective_ms, r)]
        found = bracket(asked.objective_ms, known)
        too_few = len(known) < len(tried) or (tried and _lowest(tried) / 2 * _longest_s(campaign, cell) < least)
        if not tried:
            untried.append(stack)
        elif found.low_tps is None and too_few:
            unknown.append(stack)
        else:
            is_open = _next_cell(campaign, asked, compared, observations, stack, cell) is not None
            brackets.append(CapacityBracket(name=stack, **asdict(found), unfinished=is_open))
    if len(untried) == len({o.stack for o in compared}):
        return None
    return Capacity(
        percentile=asked.percentile,
        objective_ms=asked.objective_ms,
        brackets=tuple(sorted(brackets, key=lambda one: -(one.low_tps or one.high_tps or 0.0))),
        unknown=tuple(unknown),
        untried=tuple(untried),
        least_transactions=least,
    )


def _soak(
    campaign: Campaign, compared: Sequence[Observation], later: Sequence[Observation], names: Sequence[str]
) -> Decision | None:
    asked = campaign.soak
    done = len({o.block for o in later if o.stage == "soak"})
    if asked is None or done >= asked.runs:
        return None
    measured = {o.stack for o in compared}
    wary = [s.name for s in campaign.stacks if s.name in measured and copies_on_write(s)]
    # a stack that this host cannot build was never measured
    chosen = tuple(n for n in asked.stacks if n in measured)
    run = chosen or tuple(dict.fromkeys((*names, *wary)))
    cells = dict.fromkeys(run, campaign.workload.soaked_cells)
    return Decision("soak", run, reason=f"soak, run {done + 1} of {asked.runs}", cells=cells, duration_s=asked.duration)
