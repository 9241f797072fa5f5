"""Simulated campaigns of several hosts, and of stacks that take turns: run by the production policies, as those of one
machine (`pgstrata.analyze.campaign.simulate`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from pgstrata.analyze.campaign.hosts_policy import HostsPolicy
from pgstrata.analyze.campaign.simulate import (
    BASE_TPS,
    Look,
    Machine,
    Scenario,
    SimulatedCampaign,
    decisions_of,
    observe,
    run_campaign,
    unit_shock,
)
from pgstrata.record.decision import Policy
from pgstrata.spec.expand import following, turn_order


def run_simulated(
    scenario: Scenario, seed: int | Sequence[int], *, policy: Policy | None = None, look: Look | None = None
) -> SimulatedCampaign:
    """Run a campaign of any kind; `look` sees every run, every round of several hosts, or every block of slices."""
    if isinstance(scenario, FleetScenario):
        return _run_fleet(scenario, seed, policy or scenario.policy(), look)
    if isinstance(scenario, SlicedScenario):
        return _run_sliced(scenario, seed, policy or scenario.policy(), look)
    return run_campaign(scenario, seed, policy=policy, look=look)


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


def _run_sliced(
    scenario: SlicedScenario, seed: int | Sequence[int], policy: Policy, look: Look | None
) -> SimulatedCampaign:
    """Run blocks of slices until the policy is done; `look` sees every block."""
    rng, noise = np.random.default_rng(seed), scenario.slices
    campaign, machine = SimulatedCampaign(scenario), rng.normal(0, noise.machine_sd)
    for decision in decisions_of(campaign, policy):
        order = [scenario.names.index(decision.run[at]) for at in rng.permutation(len(decision.run))]
        machine, values = _sliced_block(scenario, order, machine, rng)
        for k in sorted(order):
            cost_s = noise.build_s + noise.turns * noise.turn_s
            observe(campaign, scenario.names[k], values[k], decision.stage, cost_s=cost_s)
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
            y = scenario.effects[k] + machine + builds[k] + noise.turn_sd * unit_shock(noise.turn_tails, rng)
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
    level = own_sd * unit_shock(noise.build_tails, rng)
    return level + (noise.mode * (1 if rng.random() < 0.5 else -1) if last and noise.mode else 0.0)


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
                observe(campaign, name, value, campaign.last.stage, f"host{host:02d}")
            campaign.blocks += 1
            campaign.screen_blocks += 1
        if look is not None:
            look(campaign)
    return campaign
