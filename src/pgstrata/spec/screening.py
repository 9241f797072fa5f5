"""Two-level screening designs: Plackett-Burman with fold-over.

Plackett & Burman, The Design of Optimum Multifactorial Experiments, Biometrika 33 (1946); Box & Wilson, On the
Experimental Attainment of Optimum Conditions, J. R. Stat. Soc. B 13 (1951), for the fold-over: every row also runs
with all levels exchanged. A main effect is then an alias of no two-factor interaction. Two-factor interactions may be
aliases of one another. The rows contain the start alone and all changes together. pyDOE3 makes the designs; the tests
compare them with published tables.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

Row = tuple[bool, ...]
ALIAS = 0.99
"""Correlation of two interactions from which on no run tells them apart."""
START = "start"


@cache
def screening_rows(factors: int) -> tuple[Row, ...]:
    """The design, the start first; true stands for the second level."""
    from pyDOE3 import fold, pbdesign

    design = fold(pbdesign(factors))
    rows = {tuple(bool(level > 0) for level in row) for row in design}
    return tuple(sorted(rows, key=lambda row: (sum(row), row[::-1])))


def row_names(count: int) -> tuple[str, ...]:
    """Names of the stacks of a design; the first is the start."""
    return (START, *(f"row {number:02d}" for number in range(2, count + 1)))


def signs(rows: tuple[Row, ...]) -> npt.NDArray[np.float64]:
    """Return the design as -1 and 1, row x factor."""
    return np.where(np.array(rows, dtype=bool), 1.0, -1.0)


def interaction_aliases(rows: tuple[Row, ...], pair: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Return the other pairs of factors whose interaction the design cannot tell from that of `pair`."""
    levels = signs(rows)
    own = levels[:, pair[0]] * levels[:, pair[1]]
    others = (other for other in combinations(range(levels.shape[1]), 2) if other != pair)
    return tuple(
        other for other in others if abs(own @ (levels[:, other[0]] * levels[:, other[1]])) >= ALIAS * len(rows)
    )
