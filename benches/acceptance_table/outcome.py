"""One simulated campaign: what it claimed, against the truth."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from acceptance_table.scenarios import ExtendedScenario
from acceptance_table.simulated import run_simulated
from pgstrata.analyze.campaign.conclude import CellConclusion, PairConclusion, conclude
from pgstrata.analyze.campaign.pair_findings import unseen_mode
from pgstrata.analyze.campaign.simulate import CELL, Scenario, SimulatedCampaign
from pgstrata.analyze.stats.comparison import Design, Replay
from pgstrata.trial.scheduling import FixedBlocks


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
    number: int
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
    hides_mode: bool = False
    """Equal, though the last stack has a mode that is not as rare as those that could have been missed."""
    growing: bool = False
    """Whether the difference of a pair of the leader is told to grow or shrink."""
    unbounded: bool = False
    """Whether any pair of the leader ends without an interval."""
    lossy_better: bool = False
    """Whether the last stack is chosen or called better than any other."""
    both_came: bool = False
    """A false claim on a pair whose differences had come from both modes of the last stack's builds."""
    told_behind: float = math.nan
    """Share of the stacks that differ from the leader which a verdict says are worse."""


def simulate(job: Job) -> Result:
    """Runs one campaign and holds its claims against the truth."""
    scenario = job.scenario
    seed = (_number(job.name), job.number)
    ever = wrongly = False
    replay = Replay(scenario.design)
    blocks = scenario.run_blocks if isinstance(scenario, ExtendedScenario) else scenario.blocks
    fixed = FixedBlocks(scenario.names, blocks) if blocks else None

    def look(campaign: SimulatedCampaign) -> None:
        nonlocal ever, wrongly
        seen = conclude(design_of(campaign), campaign.observations, CELL, replay=replay)
        ever = ever or _false_claim(scenario, seen)
        wrongly = wrongly or _wrongly_chosen(scenario, seen)

    campaign = run_simulated(scenario, seed, policy=fixed, look=look if job.looks else None)
    found = conclude(design_of(campaign), campaign.observations, CELL)
    confirm = found.confirmed[0] if found.confirmed else None
    bounded = confirm is not None and math.isfinite(confirm.verdict.interval.low)
    best = max(scenario.effects)
    leading = [p for p in found.screened if found.leader in (p.a, p.b)]
    reason = campaign.last.reason if campaign.last else ""
    return Result(
        name=job.name,
        number=job.number,
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
        beside_open=found.chosen and _is_beside_open(found),
        told_apart=mean(_proves(scenario, p) for p in found.screened if _difference(scenario, p)),
        says_reach="smallest margin" in reason or (confirm is not None and confirm.verdict.decided),
        runs=len(campaign.observations),
        all_proven=bool(found.confirmed) and all(_proves(scenario, p) for p in found.confirmed),
        hides_mode=any(
            unseen < scenario.noise.bad_share for p in found.confirmed if (unseen := unseen_mode(p.verdict))
        ),
        growing=any(True for _ in found.ageing()),
        unbounded=any(math.isinf(p.verdict.interval.low) for p in leading),
        lossy_better=_is_better(scenario.names[-1], found),
        both_came=any(_is_false(scenario, p) and _had_both(scenario, p) for p in (*found.screened, *found.confirmed)),
        told_behind=mean(_proves(scenario, p) for p in leading if _difference(scenario, p)),
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


def _is_better(name: str, found: CellConclusion) -> bool:
    pairs = [p for p in (*found.screened, *found.confirmed) if name in (p.a, p.b)]
    return (found.chosen and found.leader == name) or any(
        p.verdict.verdict == ("better" if p.a == name else "worse") for p in pairs
    )


def _is_beside_open(found: CellConclusion) -> bool:
    """Whether fresh pairs of the leader left open which of the two is better."""
    return any(found.leader in (p.a, p.b) and not p.verdict.decided for p in found.confirmed)


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
    return any(_is_false(scenario, pair) for pair in (*found.screened, *found.confirmed))


def _is_false(scenario: Scenario, pair: PairConclusion) -> bool:
    difference, verdict = _difference(scenario, pair), pair.verdict.verdict
    wrong_way = (verdict == "better" and difference <= 0) or (verdict == "worse" and difference >= 0)
    return wrong_way or (verdict == "equal" and abs(difference) >= pair.bound)


def _had_both(scenario: Scenario, pair: PairConclusion) -> bool:
    """Whether differences lie beyond half a mode on both sides of the truth."""
    off, half = pair.in_blocks - _difference(scenario, pair), scenario.noise.mode / 2
    return half > 0 and bool((off > half).any() and (off < -half).any())


def mean(values: Iterable[bool | float]) -> float:
    found = [float(v) for v in values]
    return sum(found) / len(found) if found else math.nan
