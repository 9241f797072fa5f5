"""Stage 1 decisions: the leader, the dropped stacks, and the end of screening.

Leader L is the best survivor. Screening stops when the sum over all other stacks, dropped ones included, of
P(T_nu > (a_L - a_k + bound) / se) is at most 0.05: then L is within the margin of the best with that probability
(a union bound; ranking and selection, Kim & Nelson 2006). A stack is dropped when P(T_nu > (a_L - a_k) / se) < 0.025,
worst first, keeping two. "Dropped" saves machine time; it proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from pgstrata.analyze.stats.distributions import t_cdf
from pgstrata.analyze.stats.fit import BlockFit

STOP_PROBABILITY = 0.05
DROP_PROBABILITY = 0.025
"""In simulations 0.01 takes more machine time than fixed blocks, 0.05 misses the best too often
(docs/statistics.md)."""
KEEP = 2
MIN_BLOCKS = 3
EARLY_FREEDOM = 10
"""Degrees of freedom that allow screening to end after two blocks without having dropped a stack."""


@dataclass(frozen=True)
class Screening:
    """The state after a block; stacks are indices."""

    order: tuple[int, ...]
    """Survivors, best first; those that cannot be chosen last."""
    probability_within_margin: float
    dropped: tuple[int, ...]
    """Newly dropped, worst first."""

    @property
    def leader(self) -> int:
        return self.order[0]


def screen(
    fit: BlockFit,
    survivors: Sequence[int],
    names: Sequence[str],
    bound: float,
    cells: int = 1,
    candidates: Set[str] | None = None,
) -> Screening | None:
    """Return leader, certainty and stacks to drop; None while no two survivors can be compared.

    Higher effects are better; `bound` is the margin on the scale of the model, `cells` divides the error rates. Only
    `candidates` can lead; for the others it suffices to know on which side of the leader they are.
    """
    order = rank(fit, survivors, names)
    if len(order) < 2:
        return None
    among = [k for k in order if candidates is None or names[k] in candidates]
    among, apart = (among, [k for k in order if k not in among]) if among else (list(order), [])
    leader = among[0]
    dropped = [k for k in apart if _clear(fit, leader, k) < DROP_PROBABILITY / cells]
    left = len(among)
    for k in reversed(among[1:]):
        if left <= KEEP:
            break
        if _behind(fit, leader, k) < DROP_PROBABILITY / cells:
            dropped.append(k)
            left -= 1
    kept = tuple(k for k in (*among, *apart) if k not in dropped)
    rivals = [k for k, name in enumerate(names) if candidates is None or name in candidates or not apart]
    return Screening(kept, probability_within_margin(fit, leader, bound, rivals), tuple(dropped))


def _behind(fit: BlockFit, leader: int, k: int) -> float:
    """Return P(T_nu > (a_L - a_k) / se) = P(T_nu < -x): small if k is worse."""
    pairs = fit.pairs
    return float(t_cdf(pairs.nu[leader, k], -pairs.difference[leader, k] / pairs.se[leader, k]))


def _clear(fit: BlockFit, leader: int, k: int) -> float:
    """Return the same probability for the worse of the two."""
    behind = _behind(fit, leader, k)
    return min(behind, 1 - behind)


def rank(fit: BlockFit, stacks: Sequence[int], names: Sequence[str]) -> tuple[int, ...]:
    """Return comparable stacks, best first; ties break by name. Only the part connected with most stacks is ranked."""
    counted = [k for k in stacks if fit.component[k] >= 0]
    if not counted:
        return ()
    parts = [int(fit.component[k]) for k in counted]
    largest = max(parts, key=lambda part: (parts.count(part), -part))
    inside = (k for k, part in zip(counted, parts, strict=True) if part == largest)
    return tuple(sorted(inside, key=lambda k: (-fit.effect[k], names[k])))


def probability_within_margin(fit: BlockFit, leader: int, bound: float, rivals: Sequence[int]) -> float:
    """Return max(0, 1 - sum over the rivals of P(T_nu > (a_L - a_k + bound) / se)): the rule of screening, not a
    claim."""
    pairs = fit.pairs
    others = np.zeros(pairs.se.shape[0], dtype=bool)
    others[list(rivals)] = True
    others &= np.isfinite(pairs.se[leader])
    others[leader] = False
    t = (pairs.difference[leader, others] + bound) / pairs.se[leader, others]
    return max(0.0, 1.0 - float(t_cdf(pairs.nu[leader, others], -t).sum()))
