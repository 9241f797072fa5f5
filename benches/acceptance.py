"""The acceptance table of docs/statistics.md: simulated campaigns against the bounds that the method must hold.

The production policy decides and the production statistics judge; only the machine is made up. Prints figure, bound and
verdict of every row; ends with 1 when a row fails. `--mutant` weakens a rule, which must fail: a number makes every
interval narrower by that factor, the names of the other rules are listed by --help.
Example: nice .venv/bin/python benches/acceptance.py --campaigns 2000
"""

from __future__ import annotations

import os

# One thread a process: the matrices are small, and the campaigns run in parallel.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from types import ModuleType

import numpy as np
from scipy.signal import lfilter

from pgstrata.analyze import conclude as conclusions
from pgstrata.analyze import equivalence, shared_scatter
from pgstrata.analyze.changepoint import changepoints_s
from pgstrata.analyze.checkpoint_cycle import checkpoint_cycle
from pgstrata.analyze.comparison import Design, Replay
from pgstrata.analyze.conclude import CellConclusion, PairConclusion, conclude
from pgstrata.analyze.fit import BlockFit
from pgstrata.analyze.interval import Interval, Mixture
from pgstrata.analyze.periodogram import strongest_period
from pgstrata.analyze.screen import probability_within_margin
from pgstrata.analyze.simulate import (
    CELL,
    LEVELS,
    FleetScenario,
    Noise,
    Scenario,
    SimulatedCampaign,
    run_campaign,
)
from pgstrata.analyze.trend import trend_p, trend_per_hour
from pgstrata.record.decision import Observation
from pgstrata.spec.campaign import Goal
from pgstrata.trial.policy import FixedBlocks

MARGIN = 0.02
EQUAL_5 = (0.0, *(math.log(0.95),) * 11)
AHEAD = math.log(0.94)
"""What is behind where one is ahead."""
SPREAD = tuple(math.log(1 - x / 100) for x in (0, 5, 5, 7, 9, 12, 15, 20, 25, 30, 40, 50))
EQUIVALENT = Goal.model_validate({"kind": "equivalent", "equivalent": [["s00", "s01", MARGIN]]})
FIXED_10_H = 12 * 10 * LEVELS["typical"].trial_s / 3600


@dataclass(frozen=True)
class Job:
    """One campaign of one scenario."""

    name: str
    scenario: Scenario
    number: int
    looks: bool = False
    """Whether verdicts are read after every run, and any false one ever counts."""


@dataclass(frozen=True)
class Result:
    """What one campaign claimed, against the truth."""

    name: str
    false_claim: bool
    confirm_covers: bool | None
    """None without a bounded confirmation interval."""
    all_cover: bool
    best: bool
    proven: bool
    equal: bool
    pairs: int
    total_h: float
    screen_h: float
    chosen: bool
    wrongly_chosen: bool
    """At any look, where every run is looked at."""
    beside_open: bool
    """Chosen while a verdict against the runner-up is open."""
    told_apart: float
    """Share of the pairs that differ which a verdict says are different, the right way round."""
    says_reach: bool
    """Whether an open end says what could be proven."""
    runs: int
    all_proven: bool
    """Whether every confirmed pair is proven, the right way round."""


@dataclass(frozen=True)
class Check:
    """One figure against its bound."""

    row: str
    what: str
    figure: float
    at_most: bool
    bound: float
    count: int
    rate: bool = True

    def holds(self, sigmas: float = 0.0) -> bool:
        """With `sigmas` > 0 the bound is widened by so many standard errors of a rate from few campaigns."""
        slack = sigmas * math.sqrt(max(self.bound * (1 - self.bound), 0.01) / self.count) if self.rate else 0.0
        if not self.rate and sigmas:
            slack = 0.15 * self.bound
        return self.figure <= self.bound + slack if self.at_most else self.figure >= self.bound - slack


def scenarios() -> dict[str, tuple[Scenario, bool]]:
    """Every scenario by name, and whether it is looked at after every run."""
    typical = LEVELS["typical"]
    found: dict[str, tuple[Scenario, bool]] = {}
    for stacks in (2, 4, 12):
        zero = (0.0,) * stacks
        for level, noise in LEVELS.items():
            found[f"A/A {stacks} {level}"] = Scenario(zero, noise), False
        unequal = replace(typical, sigma_factors=tuple(np.geomspace(0.5, 2, stacks).tolist()))
        found[f"A/A {stacks} unequal sigmas"] = Scenario(zero, unequal), False
        found[f"A/A {stacks} t3"] = Scenario(zero, replace(typical, tails="t3")), False
        found[f"A/A {stacks} 8 % outliers"] = Scenario(zero, replace(typical, lost_share=0.08)), False
    for level, noise in LEVELS.items():
        found[f"equal-5 {level}"] = Scenario(EQUAL_5, noise), False
    found["spread typical"] = Scenario(SPREAD, typical), False
    found["equivalent 0 quiet"] = Scenario((0.0, 0.0), LEVELS["quiet"], EQUIVALENT), False
    apart = (math.log1p(MARGIN), 0.0)
    for level in ("quiet", "typical"):
        found[f"equivalent at margin {level}"] = Scenario(apart, LEVELS[level], EQUIVALENT), False
    found |= _declared_scenarios() | _hosts_scenarios()
    found |= _uneven_scenarios() | _rare_scenarios() | _proof_scenarios() | _shared_scatter_scenarios()
    found["looks A/A 2 typical"] = Scenario((0.0, 0.0), typical), True
    found["looks A/A 4 typical"] = Scenario((0.0,) * 4, typical), True
    found["looks at margin quiet"] = Scenario(apart, LEVELS["quiet"], EQUIVALENT), True
    return found


def _uneven_scenarios() -> dict[str, tuple[Scenario, bool]]:
    """Stacks whose runs scatter 2, 4 and 10 times as much as those of others; noise that remembers, with steps."""
    typical, found = LEVELS["typical"], {}
    for ratio in (2, 4, 10):
        noise = replace(typical, sigma_factors=tuple(np.geomspace(1, ratio, 4).tolist()))
        found[f"A/A 4 scatter {ratio}"] = Scenario((0.0,) * 4, noise), False
        for name, best in (("quietest", 0), ("noisiest", 3)):
            effects = tuple(0.0 if k == best else AHEAD for k in range(4))
            found[f"ahead 4 scatter {ratio}, {name}"] = Scenario(effects, noise), False
            found[f"looks ahead 4 scatter {ratio}, {name}"] = Scenario(effects, noise), True
    remembering = replace(typical, correlation=0.6, step_chance=0.05)
    for stacks in (2, 4):
        found[f"A/A {stacks} AR(1) with steps"] = Scenario((0.0,) * stacks, remembering), False
    return found


def _rare_scenarios() -> dict[str, tuple[Scenario, bool]]:
    """Two stacks, of which one loses much in a few runs, so that its mean is behind by more than the margin."""
    found = {}
    for share, loss, margin in ((0.10, 0.30, 0.02), (0.20, 0.30, 0.02), (0.20, 0.30, 0.05), (0.15, 0.50, 0.02),
                                (0.15, 0.50, 0.05)):  # fmt: skip
        goal = Goal.model_validate({"kind": "equivalent", "equivalent": [["s00", "s01", margin]]})
        noise = replace(LEVELS["quiet"], bad_share=share, bad_loss=loss)
        found[f"rare {share:.0%} x -{loss:.0%} margin {margin:.0%}"] = Scenario((0.0, 0.0), noise, goal), False
    return found


SHOWN = {"declared 4 blocks, 4 stacks, 0 -5 -10 -20 %": 0.64, "declared 4 blocks, 8 stacks, 0 ... -35 %": 0.70}
"""The share of all pairs that a declared number of blocks must tell apart, quiet."""


def _declared_scenarios() -> dict[str, tuple[Scenario, bool]]:
    """Numbers of blocks that were declared: intervals of one look, at the end, and what is said before it."""
    typical, calm, found = LEVELS["typical"], Noise(0.02), {}
    for stacks, blocks in ((2, 4), (4, 4), (4, 10), (8, 4), (8, 10)):
        noises = {
            "typical": typical,
            "t3": replace(typical, tails="t3"),
            "AR(1) with steps": replace(typical, correlation=0.6, step_chance=0.05),
            "unequal sigmas": replace(typical, sigma_factors=tuple(np.geomspace(0.5, 2, stacks).tolist())),
            "one 20 %, others 2 %": replace(calm, sigma_factors=(*(1.0,) * (stacks - 1), 10.0)),
            "half 20 %, half 2 %": replace(calm, sigma_factors=(*(1.0,) * (stacks // 2), *(10.0,) * (stacks // 2))),
            "scatter 1 to 10": replace(typical, sigma_factors=tuple(np.geomspace(1, 10, stacks).tolist())),
        }
        for name, noise in noises.items():
            equal = Scenario((0.0,) * stacks, noise, blocks=blocks)
            found[f"A/A declared {blocks} blocks of {stacks}, {name}"] = equal, False
    found["looks declared 10 blocks of 4, typical"] = Scenario((0.0,) * 4, typical, blocks=10), True
    for name, losses in zip(SHOWN, ((0, 5, 10, 20), range(0, 40, 5)), strict=True):
        effects = tuple(math.log(1 - loss / 100) for loss in losses)
        found[name] = Scenario(effects, LEVELS["quiet"], blocks=4), False
    return found


PROOF = {
    "proof against 4, 10 % at 3 %": (4, 0.10, 0.03, 22),
    "proof against 4, 20 % at 3 %": (4, 0.20, 0.03, 15),
    "proof against 8, 10 % at 3 %": (8, 0.10, 0.03, 44),
    "proof against 8, 20 % at 3 %": (8, 0.20, 0.03, 30),
    "proof against 8, 30 % at 10 %": (8, 0.30, 0.10, 57),
    "proof best 4, 20 % at 3 %": (4, 0.20, 0.03, 22),
    "proof best 12, 30 % at 3 %": (12, 0.30, 0.03, 45),
}
"""Stacks, how far the others are behind or one is ahead, run-to-run CV, and the most runs in the mean."""


def _proof_scenarios() -> dict[str, tuple[Scenario, bool]]:
    """A difference to be proven: of every stack against a baseline, or of one ahead of equals."""
    found = {}
    for name, (stacks, difference, sigma, _) in PROOF.items():
        against = name.startswith("proof against")
        ahead = (0.0, *(math.log1p(difference),) * (stacks - 1))
        effects = ahead if against else (math.log1p(difference), *(0.0,) * (stacks - 1))
        found[name] = Scenario(effects, Noise(sigma, lost_share=0.0), _AGAINST if against else Goal()), False
    return found


_AGAINST = Goal.model_validate({"against": "s00"})


def _shared_scatter_scenarios() -> dict[str, tuple[Scenario, bool]]:
    """Equal stacks whose scatter is told from all runs, in every noise that could make it false; in search of the best,
    in the noises in which the screening table claims most."""
    typical, calm = LEVELS["typical"], Noise(0.02)
    found = {}
    for stacks in (4, 8):
        noises = {
            "typical": typical,
            "t3": replace(typical, tails="t3"),
            "AR(1) with steps": replace(typical, correlation=0.6, step_chance=0.05),
            "10 % x -30 %": replace(typical, lost_share=0.10, lost=(0.30, 0.30)),
            "unequal sigmas": replace(typical, sigma_factors=tuple(np.geomspace(0.5, 2, stacks).tolist())),
            "baseline 20 %, others 2 %": replace(calm, sigma_factors=(10.0,)),
            "one 20 %, others 2 %": replace(calm, sigma_factors=(*(1.0,) * (stacks - 1), 10.0)),
            "half 20 %, half 2 %": replace(calm, sigma_factors=(*(1.0,) * (stacks // 2), *(10.0,) * (stacks // 2))),
            "scatter 1 to 10": replace(typical, sigma_factors=tuple(np.geomspace(1, 10, stacks).tolist())),
        }
        for name, noise in noises.items():
            found[f"A/A against {stacks}, {name}"] = Scenario((0.0,) * stacks, noise, _AGAINST), False
        for name in ("one 20 %, others 2 %", "half 20 %, half 2 %", "scatter 1 to 10"):
            found[f"A/A {stacks}, {name}"] = Scenario((0.0,) * stacks, noises[name]), False
    return found


def _hosts_scenarios() -> dict[str, tuple[Scenario, bool]]:
    """Several hosts of a kind, whose levels differ and of which some like one stack more than others do; all are looked
    at after every round."""
    typical = LEVELS["typical"]
    found: dict[str, tuple[Scenario, bool]] = {}
    for hosts in (6, 12, 20, 50):
        for sd in (0.0, 0.03, 0.10):
            name = f"hosts {hosts}, interaction {sd:.0%}"
            zero, goal = (0.0, 0.0), Goal()
            found[f"{name}, A/A 2"] = FleetScenario(zero, typical, goal, hosts=hosts, interaction_sd=sd), True
            if hosts <= 12:
                found[f"{name}, A/A 4"] = FleetScenario((0.0,) * 4, typical, goal, hosts=hosts, interaction_sd=sd), True
    tailed = replace(typical, tails="t3", lost_share=0.08)
    found["hosts 6, interaction 3%, A/A 2 t3"] = FleetScenario((0.0, 0.0), tailed, hosts=6, interaction_sd=0.03), True
    many = FleetScenario((0.0, 0.0), typical, hosts=6, interaction_sd=0.10, rounds=12, fixed=True)
    found["hosts 6, interaction 10%, 12 blocks each"] = many, True
    ahead = (0.0, math.log(0.90))
    found["hosts 12, interaction 3%, ahead 10 %"] = FleetScenario(ahead, typical, hosts=12, interaction_sd=0.03), True
    return found


def simulate(job: Job) -> Result:
    """Runs one campaign and holds its claims against the truth."""
    scenario = job.scenario
    seed = (_number(job.name), job.number)
    ever = wrongly = False
    replay = Replay(scenario.design)
    fixed = FixedBlocks(scenario.names, scenario.blocks) if scenario.blocks else None

    def look(campaign: SimulatedCampaign) -> None:
        nonlocal ever, wrongly
        seen = conclude(design_of(campaign), campaign.observations, CELL, replay=replay)
        ever = ever or _false_claim(scenario, seen)
        wrongly = wrongly or _wrongly_chosen(scenario, seen)

    campaign = run_campaign(scenario, seed, policy=fixed, look=look if job.looks else None)
    found = conclude(design_of(campaign), campaign.observations, CELL)
    confirm = found.confirmed[0] if found.confirmed else None
    bounded = confirm is not None and math.isfinite(confirm.verdict.interval.low)
    best = max(scenario.effects)
    reason = campaign.last.reason if campaign.last else ""
    return Result(
        name=job.name,
        false_claim=ever or _false_claim(scenario, found),
        confirm_covers=_covers(scenario, confirm) if confirm and bounded else None,
        all_cover=all(_covers(scenario, p) for p in (*found.screened, *found.confirmed)),
        best=found.leader is not None and _effect(scenario, found.leader) == best,
        proven=confirm is not None and _proves(scenario, confirm),
        equal=confirm is not None and confirm.verdict.verdict == "equal",
        pairs=int(confirm.verdict.estimate.n) if confirm else 0,
        total_h=campaign.elapsed_s / 3600,
        screen_h=campaign.screen_s / 3600,
        chosen=found.chosen,
        wrongly_chosen=wrongly or _wrongly_chosen(scenario, found),
        beside_open=found.chosen and confirm is not None and not confirm.verdict.decided,
        told_apart=_mean(_proves(scenario, p) for p in found.screened if _difference(scenario, p)),
        says_reach="smallest margin" in reason or (confirm is not None and confirm.verdict.decided),
        runs=len(campaign.observations),
        all_proven=bool(found.confirmed) and all(_proves(scenario, p) for p in found.confirmed),
    )


def design_of(campaign: SimulatedCampaign) -> Design:
    """The design of a look: a declared number of blocks has its own intervals at the end only."""
    scenario, design = campaign.scenario, campaign.scenario.design
    complete = len(campaign.observations) == len(scenario.names) * (scenario.blocks or 0)
    return replace(design, as_declared=complete)


def _wrongly_chosen(scenario: Scenario, found: CellConclusion) -> bool:
    """Chosen, though another is better by more than the margin."""
    if not found.chosen or found.leader is None:
        return False
    return _effect(scenario, found.leader) < max(scenario.effects) - scenario.design.bound


def _number(name: str) -> int:
    """A seed of the scenario's own, the same on every machine."""
    return int.from_bytes(name.encode(), "big") % (2**31 - 1)


def _effect(scenario: Scenario, name: str) -> float:
    return scenario.effects[scenario.names.index(name)]


def _difference(scenario: Scenario, pair: PairConclusion) -> float:
    return _effect(scenario, pair.a) - _effect(scenario, pair.b)


def _covers(scenario: Scenario, pair: PairConclusion) -> bool:
    return pair.verdict.interval.low <= _difference(scenario, pair) <= pair.verdict.interval.high


def _proves(scenario: Scenario, pair: PairConclusion) -> bool:
    """The true best proven faster, whichever of the two screening had put first."""
    difference = _difference(scenario, pair)
    return pair.verdict.verdict == ("better" if difference > 0 else "worse")


def _false_claim(scenario: Scenario, found: CellConclusion) -> bool:
    for pair in (*found.screened, *found.confirmed):
        difference, verdict = _difference(scenario, pair), pair.verdict.verdict
        wrong_way = (verdict == "better" and difference <= 0) or (verdict == "worse" and difference >= 0)
        if wrong_way or (verdict == "equal" and abs(difference) >= pair.bound):
            return True
    return False


# ---------------------------------------------------------------- rows


def campaign_checks(results: dict[str, list[Result]]) -> Iterator[Check]:
    """Rows 1 to 6 and 9 to 14, of whatever scenarios were run."""
    for name, found in results.items():
        count = len(found)
        false = _mean(r.false_claim for r in found)
        if name.startswith("A/A"):
            yield Check("1", f"{name}: false claim", false, True, 0.05, count)
        if name.startswith("looks"):
            yield Check("6", f"{name}: false claim, looked after every run", false, True, 0.05, count)
        if name.startswith("hosts"):
            yield Check("13", f"{name}: false claim, looked after every round", false, True, 0.05, count)
            if "ahead" in name:
                yield Check("13", f"{name}: proven", _mean(r.all_proven for r in found), False, 0.95, count)
            else:
                yield Check("13", f"{name}: all intervals cover", _mean(r.all_cover for r in found), False, 0.95, count)
            continue
        wrong = _mean(r.wrongly_chosen for r in found)
        yield Check("10", f"{name}: wrongly chosen", wrong, True, 0.05, count)
        beside = _mean(r.beside_open for r in found)
        yield Check("10", f"{name}: chosen beside an open verdict", beside, True, 0.0, count, rate=False)
        said = [not r.wrongly_chosen for r in found if r.chosen]
        if len(said) >= 20:
            yield Check("10", f"{name}: of the chosen, true", _mean(said), False, 0.95, len(said))
        if name in PROOF:
            yield Check("12", f"{name}: runs", _mean(r.runs for r in found), True, PROOF[name][-1], count, rate=False)
            yield Check("12", f"{name}: proven", _mean(r.all_proven for r in found), False, 0.95, count)
        if name in SHOWN:
            yield Check("14", f"{name}: told apart", _mean(r.told_apart for r in found), False, SHOWN[name], count)
        if name.startswith("rare"):
            yield Check("11", f"{name}: falsely equal", _mean(r.equal for r in found), True, 0.05, count)
        if name.startswith("equivalent at margin"):
            yield Check("5", f"{name}: falsely equal", _mean(r.equal for r in found), True, 0.05, count)
        covered = [r.confirm_covers for r in found if r.confirm_covers is not None]
        # Of a mixture with a bad mode the robust location is not the difference of the effects.
        if len(covered) >= 20 and not name.startswith("rare"):
            yield Check("2", f"{name}: confirm interval covers", _mean(covered), False, 0.95, len(covered))
        if name.startswith(("A/A", "equal-5", "spread", "declared")):
            yield Check("2", f"{name}: all intervals cover", _mean(r.all_cover for r in found), False, 0.95, count)
    yield from _speed_checks(results)


def _speed_checks(results: dict[str, list[Result]]) -> Iterator[Check]:
    for level, best, proven in (("quiet", 0.98, 0.95), ("typical", 0.98, 0.95), ("noisy", 0.95, 0.80)):
        found = results.get(f"equal-5 {level}", [])
        if found:
            yield Check("3", f"equal-5 {level}: best picked", _mean(r.best for r in found), False, best, len(found))
            share = _mean(r.proven for r in found)
            yield Check("3", f"equal-5 {level}: proven", share, False, proven, len(found))
    if found := results.get("spread typical", []):
        total, screen = _mean(r.total_h for r in found), _mean(r.screen_h for r in found)
        yield Check("4", "spread typical: total, h", total, True, 10.0, len(found), rate=False)
        yield Check(
            "4", "spread typical: screening / fixed-10", screen / FIXED_10_H, True, 0.40, len(found), rate=False
        )
        yield Check("4", "spread typical: best picked", _mean(r.best for r in found), False, 0.99, len(found))
    if found := results.get("equal-5 typical", []):
        share = _mean(r.screen_h for r in found) / FIXED_10_H
        yield Check("4", "equal-5 typical: screening / fixed-10", share, True, 0.60, len(found), rate=False)
    if found := results.get("equivalent 0 quiet", []):
        yield Check("5", "equivalent 0 quiet: equal", _mean(r.equal for r in found), False, 0.90, len(found))
        pairs = _mean(r.pairs for r in found)
        yield Check("5", "equivalent 0 quiet: pairs", pairs, True, 40, len(found), rate=False)
    if found := results.get("A/A 12 typical", []):
        share = _mean(r.total_h for r in found) / FIXED_10_H
        yield Check("9", "12 equal typical: total / fixed-10", share, True, 1.1, len(found), rate=False)
        says = _mean(r.says_reach for r in found)
        yield Check("9", "12 equal typical: smallest provable margin is given", says, False, 1.0, len(found))


def shape_checks(count: int) -> Iterator[Check]:
    """Row 7: false alarms on AR(1) seconds without trend, cycle, period or step."""
    rng = np.random.default_rng(7)
    series = [_ar1(rng, 3600) for _ in range(count)]
    starts = np.arange(0, 3601, 300, dtype=float)
    cycles = [f.p < 0.05 for s in series if (f := checkpoint_cycle(s, starts)) is not None]
    yield Check("7", "checkpoint cycle false alarm", _mean(cycles), True, 0.06, len(cycles))
    periods = [line.found for s in series if (line := strongest_period(s)) is not None]
    yield Check("7", "periodogram false alarm", _mean(periods), True, 0.05, len(periods))
    steps = [bool(changepoints_s(s)) for s in series]
    yield Check("7", "PELT false alarm", _mean(steps), True, 0.02, count)
    slopes = np.array([trend_per_hour(_ar1(rng, 300)) for _ in range(5 * count)]).reshape(-1, 5)
    trends = [trend_p(row) < 0.05 for row in slopes]
    yield Check("7", "trend false alarm", _mean(trends), True, 0.06, len(trends))


def _ar1(rng: np.random.Generator, seconds: int, phi: float = 0.8, cv: float = 0.1) -> np.ndarray:
    shocks = rng.normal(0, cv * math.sqrt(1 - phi**2), seconds + 100)
    return 2000 * (1 + lfilter([1], [1, -phi], shocks)[100:])


def robustness_checks(count: int) -> Iterator[Check]:
    """Row 8: the same seed gives the same conclusions, and no block or stack is indispensable."""
    same = crashes = dropped = 0
    for number in range(count):
        scenario = Scenario(SPREAD[:6], LEVELS["typical"])
        first, again = (run_campaign(scenario, (8, number)) for _ in range(2))
        same += _told(scenario.design, first.observations) == _told(scenario.design, again.observations)
        for part in _without_one(first.observations):
            dropped += 1
            try:
                _told(scenario.design, part)
            except Exception as error:
                print(f"row 8: {error!r} with {len(part)} of {len(first.observations)} runs", file=sys.stderr)
                crashes += 1
    yield Check("8", "same seed, same conclusions", same / count, False, 1.0, count)
    yield Check("8", "crashes with a block or stack left out", crashes / dropped, True, 0.0, dropped)


def _told(design: Design, observations: Sequence[Observation]) -> str:
    found = conclude(design, observations, CELL)
    verdicts = [(p.a, p.b, p.verdict) for p in (*found.screened, *found.confirmed)]
    return repr((found.ranking, found.chosen, found.leader, found.own, verdicts))


def _without_one(observations: Sequence[Observation]) -> Iterator[list[Observation]]:
    for block in sorted({o.block for o in observations}):
        yield [o for o in observations if o.block != block]
    for stack in sorted({o.stack for o in observations}):
        yield [o for o in observations if o.stack != stack]


# ---------------------------------------------------------------- running


def run_jobs(names: Iterable[str], campaigns: int, processes: int) -> dict[str, list[Result]]:
    """Results by scenario, in the order of the names."""
    known = scenarios()
    jobs = [Job(name, known[name][0], i, known[name][1]) for name in names for i in range(campaigns)]
    results: dict[str, list[Result]] = {job.name: [] for job in jobs}
    if processes <= 1:
        for job in jobs:
            results[job.name].append(simulate(job))
        return results
    # Forked, so that a mutant is inherited.
    with get_context("fork").Pool(processes) as pool:
        for result in pool.imap_unordered(simulate, jobs, chunksize=8):
            results[result.name].append(result)
    return results


def narrow_intervals(factor: float) -> Callable[[], None]:
    """The mutant: every interval of a verdict narrower by the factor; returns what undoes it."""
    honest = equivalence.interval

    def narrow(estimate: equivalence.Estimate, alpha: float, g: Mixture) -> Interval:
        found = honest(estimate, alpha, g)
        half = (found.high - found.low) / 2 / factor
        return Interval(estimate.value - half, estimate.value + half, found.level) if math.isfinite(half) else found

    def undo() -> None:
        equivalence.interval = honest

    equivalence.interval = narrow
    return undo


def weaken(rule: str) -> Callable[[], None]:
    """The mutant of a rule, or, given a number, of the intervals; returns what undoes it."""
    if rule not in RULES:
        return narrow_intervals(float(rule))
    return RULES[rule]()


def _without_plain_mean() -> Callable[[], None]:
    """Equal by the robust estimate alone."""
    honest = equivalence.t_interval
    equivalence.t_interval = lambda mean, alpha: Interval(0.0, 0.0, 1 - alpha)
    return lambda: setattr(equivalence, "t_interval", honest)


def _without_least_runs() -> Callable[[], None]:
    """Equal however few runs there are."""
    defaults = equivalence.judge_pair.__kwdefaults__
    honest = defaults["least_runs"]
    defaults["least_runs"] = 0
    return lambda: defaults.__setitem__("least_runs", honest)


def _chosen_by_screening() -> Callable[[], None]:
    """Chosen by the sum that screening stops at, without a verdict."""
    honest = conclusions.is_chosen

    def by_sum(design: Design, fit: BlockFit, leader: str, *_: object, imported: bool) -> bool:
        rivals, own = range(len(design.stacks)), design.stacks.index(leader)
        return probability_within_margin(fit, own, design.bound, rivals) >= 0.95

    conclusions.is_chosen = by_sum
    return lambda: setattr(conclusions, "is_chosen", honest)


def _without_own_scatter() -> Callable[[], None]:
    """A stack that evidently scatters more than the others takes their scatter too."""
    return _replaced(shared_scatter, "EVIDENT", 0.0)


def _without_own_scatter_in_the_table() -> Callable[[], None]:
    """The same in the screening table."""
    return _replaced(conclusions, "EVIDENT", 0.0)


def _without_hosts() -> Callable[[], None]:
    """The host is no factor: every block counts for itself, whichever host it ran on."""
    honest = conclusions.hosts_of
    conclusions.hosts_of = lambda observations: ()
    return lambda: setattr(conclusions, "hosts_of", honest)


def _intervals_of_one_look_at_any() -> Callable[[], None]:
    """A declared number of blocks has the intervals of its end before it is reached."""
    names = globals()
    honest = names["design_of"]
    names["design_of"] = lambda campaign: campaign.scenario.design
    return lambda: names.__setitem__("design_of", honest)


def _replaced(module: ModuleType, name: str, value: float) -> Callable[[], None]:
    honest = getattr(module, name)
    setattr(module, name, value)
    return lambda: setattr(module, name, honest)


RULES: dict[str, Callable[[], Callable[[], None]]] = {
    "plain-mean": _without_plain_mean,
    "least-runs": _without_least_runs,
    "chosen": _chosen_by_screening,
    "own-scatter": _without_own_scatter,
    "any-look": _intervals_of_one_look_at_any,
    "table-scatter": _without_own_scatter_in_the_table,
    "hosts": _without_hosts,
}
"""The rules that a mutant can weaken, beside the width of intervals."""


def print_checks(checks: Sequence[Check]) -> bool:
    """Prints the table; whether every row holds."""
    print(f"{'row':<4}{'what':<58}{'figure':>9}  {'bound':<9}{'n':>6}")
    for check in sorted(checks, key=lambda c: c.row):
        sign = "<=" if check.at_most else ">="
        verdict = "pass" if check.holds() else "FAIL"
        print(
            f"{check.row:<4}{check.what:<58}{check.figure:>9.4f}  {sign} {check.bound:<6g}{check.count:>6}  {verdict}"
        )
    return all(c.holds() for c in checks)


def _mean(values: Iterable[bool | float]) -> float:
    found = [float(v) for v in values]
    return sum(found) / len(found) if found else math.nan


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaigns", type=int, default=2000, help="of each scenario")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--mutant", default="", help=f"a factor for the intervals, or one of {', '.join(RULES)}")
    parser.add_argument("--only", default="", help="scenarios whose name holds this text; rows 7 and 8 are left out")
    options = parser.parse_args()
    if options.mutant:
        weaken(options.mutant)
        print(f"mutant: {options.mutant}; the table must fail")
    began = time.monotonic()
    names = [name for name in scenarios() if options.only in name]
    checks = list(campaign_checks(run_jobs(names, options.campaigns, options.processes)))
    if not options.only:
        checks += list(shape_checks(max(50, options.campaigns // 2)))
        checks += list(robustness_checks(max(3, options.campaigns // 100)))
    held = print_checks(checks)
    print(f"{options.campaigns} campaigns of each of {len(names)} scenarios in {time.monotonic() - began:.0f} s")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
