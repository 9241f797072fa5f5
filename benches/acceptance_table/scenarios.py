"""What is simulated: stacks with their true effects, on machines with their noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from acceptance_table.simulated import FleetScenario
from acceptance_table.turns import sliced_scenarios
from pgstrata.analyze.campaign.simulate import LEVELS, Noise, Scenario
from pgstrata.spec.campaign import Goal

MARGIN = 0.02
EQUAL_5 = (0.0, *(math.log(0.95),) * 11)
AHEAD = math.log(0.94)
"""What is behind where one is ahead."""
SPREAD = tuple(math.log(1 - x / 100) for x in (0, 5, 5, 7, 9, 12, 15, 20, 25, 30, 40, 50))
EQUIVALENT = Goal.model_validate({"kind": "equivalent", "equivalent": [["s00", "s01", MARGIN]]})


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
    found |= (
        _remembering_scenarios()
        | _carry_over_scenarios()
        | _behind_scenarios()
        | _lossy_scenarios()
        | _modes_scenarios()
    )
    found |= _uneven_scenarios() | _rare_scenarios() | _proof_scenarios() | _shared_scatter_scenarios()
    found |= sliced_scenarios()
    found["looks A/A 2 typical"] = Scenario((0.0, 0.0), typical), True
    found["looks A/A 4 typical"] = Scenario((0.0,) * 4, typical), True
    found["looks at margin quiet"] = Scenario(apart, LEVELS["quiet"], EQUIVALENT), True
    return found


def _carry_over_scenarios() -> dict[str, tuple[Scenario, bool]]:
    """Equal stacks, of which the last slows the run after it by 5 %, on one host and on several. With two stacks half
    of the effect stays after an odd number of blocks, so hosts are looked at after four."""
    noise = replace(LEVELS["quiet"], carry_over=math.log(0.95))
    found: dict[str, tuple[Scenario, bool]] = {
        f"A/A {stacks}, carry-over -5 %": (Scenario((0.0,) * stacks, noise), False) for stacks in (2, 3, 4)
    }
    hosts = FleetScenario((0.0, 0.0), noise, hosts=6, rounds=4, fixed=True)
    found["hosts 6, interaction 0%, A/A 2 carry-over -5 %"] = hosts, False
    return found


BEHIND = {"behind 4, -52 % at 15 %": 0.92, "behind 6, -52 % at 15 %": 0.75}
"""The share of the pairs with the stack far behind that must be told."""


def _behind_scenarios() -> dict[str, tuple[Scenario, bool]]:
    """Stacks that scatter 6 %, and one far behind that scatters 15 %: after three blocks screening would drop it."""
    found: dict[str, tuple[Scenario, bool]] = {}
    for name in BEHIND:
        stacks = int(name.split()[1].rstrip(","))
        noise = Noise(0.06, sigma_factors=(*(1.0,) * (stacks - 1), 2.5))
        found[name] = Scenario((*(0.0,) * (stacks - 1), math.log(0.48)), noise), False
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
    for stacks in (2, 4, 12):
        found[f"A/A {stacks} AR(1) with steps"] = Scenario((0.0,) * stacks, remembering), False
    return found


RARER = {
    "hidden 7% x -80% margin 2%": (0.07, 0.80, 0.02),
    "hidden 5% x -80% margin 2%": (0.05, 0.80, 0.02),
}
"""Modes that 32 runs miss more often than in 0.05 of campaigns: share of the runs, loss and margin."""


def _rare_scenarios() -> dict[str, tuple[Scenario, bool]]:
    """Two stacks, of which one loses much in a few runs, so that its mean is behind by more than the margin."""
    found = {}
    told = ((0.10, 0.30, 0.02), (0.20, 0.30, 0.02), (0.20, 0.30, 0.05), (0.15, 0.50, 0.02), (0.15, 0.50, 0.05))
    for share, loss, margin in (*told, *RARER.values()):
        goal = Goal.model_validate({"kind": "equivalent", "equivalent": [["s00", "s01", margin]]})
        noise = replace(LEVELS["quiet"], bad_share=share, bad_loss=loss)
        kind = "rare" if share >= 0.10 else "hidden"
        found[f"{kind} {share:.0%} x -{loss:.0%} margin {margin:.0%}"] = Scenario((0.0, 0.0), noise, goal), False
    return found


REMEMBERING = {"memory .3 of 2": 0.05, "memory .5 of 2": 0.10, "memory .8 of 2": 0.33, "memory .5 of 4": 0.08}
"""False claims at most, where a run of one stack resembles its run before by so much: no method keeps 0.05 at .8."""


def _remembering_scenarios() -> dict[str, tuple[Scenario, bool]]:
    found: dict[str, tuple[Scenario, bool]] = {}
    for name in REMEMBERING:
        _, memory, _, stacks = name.split()
        found[name] = Scenario((0.0,) * int(stacks), replace(LEVELS["typical"], memory=float(memory))), False
    return found


MODES = {
    "modes 2, quiet": 0.11,
    "modes 2": 0.08,
    "modes 4": 0.075,
    "modes 2, 4 declared blocks": 0.07,
    "modes 2, 10 declared blocks": 0.05,
    "modes 4, 10 declared blocks": 0.05,
}
"""False claims at most, where the builds of one stack are 8 % faster or slower: no method sees a mode that did not
come."""


def _modes_scenarios() -> dict[str, tuple[Scenario, bool]]:
    found: dict[str, tuple[Scenario, bool]] = {}
    for name in MODES:
        noise = replace(LEVELS["quiet" if name.endswith("quiet") else "typical"], mode=0.08)
        blocks = int(name.split()[-3]) if name.endswith("declared blocks") else None
        found[name] = Scenario((0.0,) * int(name.split()[1].rstrip(",")), noise, blocks=blocks), False
    return found


LOSSY = {"lossy 2, 5 % ahead, 15% x -50%": 0.40, "lossy 4, 5 % ahead, 15% x -50%": 0.30}
"""In how many campaigns at most a stack is called better although its mean is lower: its bad runs may not have come."""


def _lossy_scenarios() -> dict[str, tuple[Scenario, bool]]:
    """The last stack is 5 % ahead of the others in most runs and loses half in 15 % of them: its mean is 3 % behind."""
    noise = replace(LEVELS["quiet"], bad_share=0.15, bad_loss=0.50)
    found: dict[str, tuple[Scenario, bool]] = {}
    for name in LOSSY:
        stacks = int(name.split()[1].rstrip(","))
        found[name] = Scenario((*(0.0,) * (stacks - 1), math.log(1.05)), noise), False
    return found


@dataclass(frozen=True)
class ExtendedScenario(Scenario):
    """More blocks are run than were declared."""

    run_blocks: int = 0


SHOWN = {"declared 4 blocks, 4 stacks, 0 -5 -10 -20 %": 0.64, "declared 4 blocks, 8 stacks, 0 ... -35 %": 0.70}
"""The share of all pairs that a declared number of blocks must tell apart, quiet."""
RARE_AND_BAD = "rare 15% x -50% margin 5%"


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
            if stacks > 2 and blocks == 4:
                found[f"A/A declared 4 blocks against one of {stacks}, {name}"] = replace(equal, goal=_AGAINST), False
    found["looks declared 10 blocks of 4, typical"] = Scenario((0.0,) * 4, typical, blocks=10), True
    found["looks declared 20 blocks of 2, typical"] = Scenario((0.0, 0.0), typical, blocks=20), True
    found["looks declared 4 blocks of 4, 16 run"] = ExtendedScenario((0.0,) * 4, typical, blocks=4, run_blocks=16), True
    for name, losses in zip(SHOWN, ((0, 5, 10, 20), range(0, 40, 5)), strict=True):
        effects = tuple(math.log(1 - loss / 100) for loss in losses)
        found[name] = Scenario(effects, LEVELS["quiet"], blocks=4), False
    return found


PROOF: dict[str, tuple[int, float, float, float]] = {
    "proof against 4, 10 % at 3 %": (4, 0.10, 0.03, 21),
    "proof against 4, 20 % at 3 %": (4, 0.20, 0.03, 15),
    "proof against 8, 10 % at 3 %": (8, 0.10, 0.03, 37),
    "proof against 8, 20 % at 3 %": (8, 0.20, 0.03, 28),
    "proof against 8, 30 % at 10 %": (8, 0.30, 0.10, 47),
    "proof best 4, 20 % at 3 %": (4, 0.20, 0.03, 17.5),
    "proof best 12, 30 % at 3 %": (12, 0.30, 0.03, 31),
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


SEARCHED = (
    "one 20 %, others 2 %",
    "half 20 %, half 2 %",
    "scatter 1 to 10",
    "10 % x -30 %",
    "bimodal, 10 % apart",
)
"""Noises in which the best of equal stacks is searched for, beside those of rows 1 and 2."""
_AGAINST = Goal.model_validate({"against": "s00"})


def _shared_scatter_scenarios() -> dict[str, tuple[Scenario, bool]]:
    """Equal stacks whose scatter is told from all runs, in every noise that could make it false; in search of the best,
    in the noises in which the screening table and the fresh pairs claim most."""
    typical, calm = LEVELS["typical"], Noise(0.02)
    found = {}
    for stacks in (4, 8, 12):
        noises = {
            "typical": typical,
            "t3": replace(typical, tails="t3"),
            "AR(1) with steps": replace(typical, correlation=0.6, step_chance=0.05),
            "10 % x -30 %": replace(typical, lost_share=0.10, lost=(0.30, 0.30)),
            "bimodal, 10 % apart": replace(typical, lost_share=0.5, lost=(0.10, 0.10)),
            "unequal sigmas": replace(typical, sigma_factors=tuple(np.geomspace(0.5, 2, stacks).tolist())),
            "baseline 20 %, others 2 %": replace(calm, sigma_factors=(10.0,)),
            "one 20 %, others 2 %": replace(calm, sigma_factors=(*(1.0,) * (stacks - 1), 10.0)),
            "half 20 %, half 2 %": replace(calm, sigma_factors=(*(1.0,) * (stacks // 2), *(10.0,) * (stacks // 2))),
            "scatter 1 to 10": replace(typical, sigma_factors=tuple(np.geomspace(1, 10, stacks).tolist())),
        }
        for name, noise in noises.items() if stacks < 12 else ():
            found[f"A/A against {stacks}, {name}"] = Scenario((0.0,) * stacks, noise, _AGAINST), False
        for name in SEARCHED:
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
