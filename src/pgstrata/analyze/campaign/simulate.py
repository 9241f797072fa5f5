"""Simulated campaigns: a synthetic machine with the noise of a real one, run by the production policy and judged by the
production statistics.

Noise of a run's mean throughput (logarithm): run-to-run SD at 300 s of 2.0, 3.0 or 4.8 % (quiet, typical, noisy; it
holds the AR(1) noise of the seconds, CV 10 %, phi 0.8, which leaves 1.7 % in a mean of 300 s); drift of the machine, an
Ornstein-Uhlenbeck process with SD 2 % and a memory of 3 h, and -3 % a day; 2 % of the runs lose 5 to 25 %. Restore and
warm-up take 180 s in addition to the 300 s of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pgstrata.analyze.campaign.policy import MAX_PAIRS, AdaptivePolicy
from pgstrata.analyze.stats.comparison import Design
from pgstrata.record.decision import Decision, Observation, Policy, Stage
from pgstrata.spec.campaign import Goal
from pgstrata.spec.expand import following

CELL = "simulated"
BASE_TPS = 2000.0
STEP_SD = 0.05


@dataclass(frozen=True)
class Noise:
    """Scatter of a machine's runs."""

    sigma_run: float = 0.03
    """Run-to-run standard deviation, relative, at the run's length."""
    drift_sd: float = 0.02
    drift_memory_s: float = 3 * 3600.0
    trend_per_day: float = -0.03
    carry_over: float = 0.0
    """Effect of the last stack of the list on the run after it (logarithm)."""
    lost_share: float = 0.02
    """Share of runs with a loss ..."""
    lost: tuple[float, float] = (0.05, 0.25)
    """... and the range of that loss."""
    tails: Literal["normal", "t3"] = "normal"
    correlation: float = 0.0
    """AR(1) of the scatter from one run on the machine to the next."""
    memory: float = 0.0
    """AR(1) of the scatter of the last stack, from one of its runs to the next."""
    step_chance: float = 0.0
    """Probability of a step of the machine's level before a run, SD 5 %."""
    bad_share: float = 0.0
    """Share of the last stack's runs that are in its bad mode, ..."""
    bad_loss: float = 0.0
    """... and the loss in that mode."""
    mode: float = 0.0
    """The last stack's builds are by this much faster or slower (logarithm), half of them each."""
    sigma_factors: tuple[float, ...] = ()
    """Factor of sigma_run of each stack; 1 for stacks beyond the list."""
    run_s: float = 300.0
    overhead_s: float = 180.0
    """Restore and warm-up before each run."""

    @property
    def trial_s(self) -> float:
        return self.run_s + self.overhead_s


LEVELS: dict[str, Noise] = {"quiet": Noise(0.02), "typical": Noise(0.03), "noisy": Noise(0.048)}


@dataclass
class Machine:
    """A host whose clock advances with every trial."""

    noise: Noise
    rng: np.random.Generator
    clock_s: float = 0.0
    _drift: float = field(init=False)
    _scatter: float = 0.0
    _state: float | None = None
    _level: float = 0.0
    _carried: float = 0.0

    def __post_init__(self) -> None:
        self._drift = self.rng.normal(0, self.noise.drift_sd)

    def run(self, stack: int, effect: float, *, last: bool = False) -> float:
        """Return the TPS of one run of a stack with that true effect (logarithm); `last` marks the stack with a bad
        mode."""
        noise = self.noise
        keep = math.exp(-noise.trial_s / noise.drift_memory_s)
        self._drift = keep * self._drift + self.rng.normal(0, noise.drift_sd * math.sqrt(1 - keep**2))
        self.clock_s += noise.trial_s
        factor = noise.sigma_factors[stack] if stack < len(noise.sigma_factors) else 1.0
        shock = unit_shock(noise.tails, self.rng)
        self._scatter = noise.correlation * self._scatter + math.sqrt(1 - noise.correlation**2) * shock
        own = self._scatter
        if last and noise.memory:
            before = own if self._state is None else self._state
            own = self._state = noise.memory * before + math.sqrt(1 - noise.memory**2) * own
        y = effect + self._drift + noise.trend_per_day * self.clock_s / 86400
        y += factor * noise.sigma_run * own + self._rare(last) + self._carried
        self._carried = noise.carry_over if last else 0.0
        if self.rng.random() < noise.lost_share:
            y += math.log(1 - self.rng.uniform(*noise.lost))
        return BASE_TPS * math.exp(y)

    def _rare(self, last: bool) -> float:
        """Steps of the machine, the bad mode and the two modes; draws no random numbers for what is not configured."""
        noise = self.noise
        if noise.step_chance and self.rng.random() < noise.step_chance:
            self._level += self.rng.normal(0, STEP_SD)
        bad = last and noise.bad_share and self.rng.random() < noise.bad_share
        of_build = noise.mode * (1 if self.rng.random() < 0.5 else -1) if last and noise.mode else 0.0
        return self._level + of_build + (math.log(1 - noise.bad_loss) if bad else 0.0)


@dataclass(frozen=True)
class Scenario:
    """True effects of the stacks (logarithms), the noise, and the goal."""

    effects: tuple[float, ...]
    noise: Noise = LEVELS["typical"]
    goal: Goal = field(default_factory=Goal)
    budget_s: float | None = None
    max_pairs: int = MAX_PAIRS
    blocks: int | None = None
    """Declared number of blocks; None for an adaptive campaign."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"s{i:02d}" for i in range(len(self.effects)))

    @property
    def design(self) -> Design:
        if self.blocks is None:
            return Design(self.names, (CELL,), self.goal, proves=self.budget_s is not None)
        return Design(self.names, (CELL,), self.goal, self.blocks, fixed=True, as_declared=True)

    def policy(self) -> Policy:
        return AdaptivePolicy(self.design, self.max_pairs, self.budget_s)


@dataclass
class SimulatedCampaign:
    """The data and the actions of a simulated campaign."""

    scenario: Scenario
    observations: list[Observation] = field(default_factory=list)
    elapsed_s: float = 0.0
    screen_s: float = 0.0
    blocks: int = 0
    screen_blocks: int = 0
    last: Decision | None = None


Look = Callable[[SimulatedCampaign], None]


def run_campaign(
    scenario: Scenario, seed: int | Sequence[int], *, policy: Policy | None = None, look: Look | None = None
) -> SimulatedCampaign:
    """Run blocks as the scheduler does, in random order, until the policy is done. `look` sees every run."""
    rng = np.random.default_rng(seed)
    machine = Machine(scenario.noise, rng)
    campaign = SimulatedCampaign(scenario)
    policy = policy or scenario.policy()
    index = {name: k for k, name in enumerate(scenario.names)}
    before = ""
    for decision in decisions_of(campaign, policy):
        for name in following(before, [decision.run[at] for at in rng.permutation(len(decision.run))]):
            k, before = index[name], name
            value = machine.run(k, scenario.effects[k], last=k == len(index) - 1)
            observe(campaign, name, value, decision.stage)
            if look is not None:
                look(campaign)
    return campaign


def decisions_of(campaign: SimulatedCampaign, policy: Policy) -> Iterator[Decision]:
    """Yield the decision on each block until the policy is done, and count the blocks that were run."""
    while True:
        decision = campaign.last = policy.decide(campaign.observations, campaign.blocks, campaign.elapsed_s)
        if decision.stage == "done" or not decision.run:
            return
        yield decision
        campaign.blocks += 1
        campaign.screen_blocks += decision.stage == "screen"


def unit_shock(tails: Literal["normal", "t3"], rng: np.random.Generator) -> float:
    """Return a number of variance 1: Student t with 3 degrees of freedom has variance 3."""
    return float(rng.standard_t(3) / math.sqrt(3) if tails == "t3" else rng.normal())


def observe(
    campaign: SimulatedCampaign,
    name: str,
    value: float,
    stage: Stage,
    host: str = "",
    cost_s: float | None = None,
) -> None:
    cost_s = campaign.scenario.noise.trial_s if cost_s is None else cost_s
    campaign.observations.append(Observation(name, campaign.blocks, CELL, value, stage, cost_s, host=host))
    campaign.elapsed_s += cost_s
    if stage == "screen":
        campaign.screen_s += cost_s
