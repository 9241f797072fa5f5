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
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from pgstrata.analyze.campaign.hosts_policy import HostsPolicy
from pgstrata.analyze.campaign.policy import MAX_PAIRS, AdaptivePolicy
from pgstrata.analyze.stats.comparison import Design
from pgstrata.record.decision import Decision, Observation, Policy, Stage
from pgstrata.spec.campaign import Goal
from pgstrata.spec.expand import following, turn_order

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
        shock = _shock(noise.tails, self.rng)
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
        """Steps of the machine and the bad mode; draws no random numbers if neither is configured."""
        noise = self.noise
        if noise.step_chance and self.rng.random() < noise.step_chance:
            self._level += self.rng.normal(0, STEP_SD)
        bad = last and noise.bad_share and self.rng.random() < noise.bad_share
        return self._level + (math.log(1 - noise.bad_loss) if bad else 0.0)


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


@dataclass(frozen=True)
class FleetScenario(Scenario):
    """A kind of machine: `effects` are those over all of its hosts; a campaign has a random sample of the hosts."""

    hosts: int = 6
    host_sd: float = 0.20
    """SD of the level from host to host, ..."""
    interaction_sd: float = 0.0
    """... and of the difference of two stacks."""
    rounds: int = 6
    fixed: bool = False

    def policy(self) -> Policy:
        return HostsPolicy(replace(self.design, max_blocks=self.rounds, fixed=self.fixed), self.budget_s)


@dataclass(frozen=True)
class SliceNoise:
    """Scatter of stacks that take turns, as it was measured on three filesystems (docs/statistics.md, "Slices"): the
    machine's level wanders for all of them, each build has a level of its own, each turn scatters."""

    machine_sd: float = 0.092
    machine_memory_s: float = 7.0
    turn_sd: float = 0.045
    build_sd: float = 0.03
    """Standard deviation of the difference of two stacks."""
    last_build_sd: float | None = None
    """The same for the last stack against one that has none."""
    turn_tails: Literal["normal", "t3"] = "normal"
    build_tails: Literal["normal", "t3"] = "normal"
    stall_share: float = 0.0
    """Share of the turns that lose half."""
    mode: float = 0.0
    """The last stack's builds are by this much faster or slower (logarithm), half of them each."""
    carry_over: float = 0.0
    """Effect of the last stack on the turn after it (logarithm)."""
    ageing: float = 0.0
    """Change of the last stack from one of its turns to the next (logarithm)."""
    turns: int = 4
    turn_s: float = 2.1
    build_s: float = 4.0


@dataclass(frozen=True)
class SlicedScenario(Scenario):
    """Stacks that stand side by side in each block and take turns."""

    slices: SliceNoise = field(default_factory=SliceNoise)


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
    """Run blocks as the scheduler does, in random order, until the policy is done. `look` sees every run, or every
    round of several hosts."""
    if isinstance(scenario, FleetScenario):
        return _run_fleet(scenario, seed, policy or scenario.policy(), look)
    if isinstance(scenario, SlicedScenario):
        return _run_sliced(scenario, seed, policy or scenario.policy(), look)
    rng = np.random.default_rng(seed)
    machine = Machine(scenario.noise, rng)
    campaign = SimulatedCampaign(scenario)
    policy = policy or scenario.policy()
    index = {name: k for k, name in enumerate(scenario.names)}
    before = ""
    for decision in _decisions(campaign, policy):
        for name in following(before, [decision.run[at] for at in rng.permutation(len(decision.run))]):
            k, before = index[name], name
            value = machine.run(k, scenario.effects[k], last=k == len(index) - 1)
            _observe(campaign, name, value, decision.stage)
            if look is not None:
                look(campaign)
    return campaign


def _decisions(campaign: SimulatedCampaign, policy: Policy) -> Iterator[Decision]:
    """Yield the decision on each block until the policy is done, and count the blocks that were run."""
    while True:
        decision = campaign.last = policy.decide(campaign.observations, campaign.blocks, campaign.elapsed_s)
        if decision.stage == "done" or not decision.run:
            return
        yield decision
        campaign.blocks += 1
        campaign.screen_blocks += decision.stage == "screen"


def _run_sliced(
    scenario: SlicedScenario, seed: int | Sequence[int], policy: Policy, look: Look | None
) -> SimulatedCampaign:
    """Run blocks of slices until the policy is done; `look` sees every block."""
    rng, noise = np.random.default_rng(seed), scenario.slices
    campaign, machine = SimulatedCampaign(scenario), rng.normal(0, noise.machine_sd)
    for decision in _decisions(campaign, policy):
        order = [scenario.names.index(decision.run[at]) for at in rng.permutation(len(decision.run))]
        machine, values = _sliced_block(scenario, order, machine, rng)
        for k in sorted(order):
            cost_s = noise.build_s + noise.turns * noise.turn_s
            _observe(campaign, scenario.names[k], values[k], decision.stage, cost_s=cost_s)
        if look is not None:
            look(campaign)
    return campaign


def _sliced_block(
    scenario: SlicedScenario, order: Sequence[int], machine: float, rng: np.random.Generator
) -> tuple[float, dict[int, float]]:
    """Return the machine's level after a block, and the throughput of each stack over all of its turns."""
    machine, rounds = simulated_turns(scenario, order, machine, rng)
    own = {k: [BASE_TPS * math.exp(dict(turns)[k]) for turns in rounds] for k in order}
    return machine, {k: math.fsum(found) / len(found) for k, found in own.items()}


def simulated_turns(
    scenario: SlicedScenario, order: Sequence[int], machine: float, rng: np.random.Generator
) -> tuple[float, list[list[tuple[int, float]]]]:
    """Return the machine's level after a block, and the rounds of its turns: stack and logarithm of its throughput over
    BASE_TPS."""
    noise, last = scenario.slices, len(scenario.effects) - 1
    machine = _wandered(machine, noise, noise.build_s * len(order), rng)
    builds = {k: _build(noise, rng, last=k == last) for k in order}
    rounds: list[list[tuple[int, float]]] = []
    before = turn_order(order, -1)[-1]  # the warm-up of the stack that begins
    for turn in range(noise.turns):
        rounds.append([])
        for k in turn_order(order, turn):
            machine = _wandered(machine, noise, noise.turn_s, rng)
            y = scenario.effects[k] + machine + builds[k] + noise.turn_sd * _shock(noise.turn_tails, rng)
            y += noise.carry_over if before == last else 0.0
            y += noise.ageing * turn if k == last else 0.0
            y += math.log(0.5) if noise.stall_share and rng.random() < noise.stall_share else 0.0
            rounds[-1].append((k, y))
            before = k
    return machine, rounds


def _wandered(machine: float, noise: SliceNoise, seconds: float, rng: np.random.Generator) -> float:
    keep = math.exp(-seconds / noise.machine_memory_s)
    return float(keep * machine + rng.normal(0, noise.machine_sd * math.sqrt(1 - keep**2)))


def _build(noise: SliceNoise, rng: np.random.Generator, *, last: bool) -> float:
    own_sd = noise.build_sd / math.sqrt(2)
    if last and noise.last_build_sd is not None:
        own_sd = noise.last_build_sd
    level = own_sd * _shock(noise.build_tails, rng)
    return level + (noise.mode * (1 if rng.random() < 0.5 else -1) if last and noise.mode else 0.0)


def _shock(tails: Literal["normal", "t3"], rng: np.random.Generator) -> float:
    """Return a number of variance 1: Student t with 3 degrees of freedom has variance 3."""
    return float(rng.standard_t(3) / math.sqrt(3) if tails == "t3" else rng.normal())


def _run_fleet(
    scenario: FleetScenario, seed: int | Sequence[int], policy: Policy, look: Look | None
) -> SimulatedCampaign:
    """Run rounds of one block on every host."""
    rng = np.random.default_rng(seed)
    machines = [Machine(scenario.noise, rng) for _ in range(scenario.hosts)]
    count, own_sd = len(scenario.names), scenario.interaction_sd / math.sqrt(2)
    level = rng.normal(0, scenario.host_sd, scenario.hosts)[:, None] + rng.normal(0, own_sd, (scenario.hosts, count))
    campaign = SimulatedCampaign(scenario)
    before = [""] * scenario.hosts
    for done in range(scenario.rounds + 1):
        campaign.last = policy.decide(campaign.observations, done, campaign.elapsed_s / scenario.hosts)
        if campaign.last.stage == "done":
            break
        for host, machine in enumerate(machines):
            for name in following(before[host], [scenario.names[at] for at in rng.permutation(count)]):
                k, before[host] = scenario.names.index(name), name
                value = machine.run(k, scenario.effects[k] + level[host, k], last=k == count - 1)
                _observe(campaign, name, value, campaign.last.stage, f"host{host:02d}")
            campaign.blocks += 1
            campaign.screen_blocks += 1
        if look is not None:
            look(campaign)
    return campaign


def _observe(
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
