"""Two-level screening designs: Plackett-Burman with fold-over.

Plackett & Burman, The Design of Optimum Multifactorial Experiments, Biometrika 33 (1946); Box & Wilson, On the
Experimental Attainment of Optimum Conditions, J. R. Stat. Soc. B 13 (1951), for the fold-over: every row also runs
with all levels exchanged. A main effect is then an alias of no two-factor interaction. Two-factor interactions may be
aliases of one another. The rows contain the start alone and all changes together. The tests compare the designs with
published tables.
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
_CYCLES = {12: "+-+++---+--", 20: "--++----+-+-++++--+"}
"""Rows that are shifted in turn, with exchanged levels (Plackett & Burman 1946); designs of other sizes are doubled."""


@cache
def screening_rows(factors: int) -> tuple[Row, ...]:
    """The design, the start first; true stands for the second level."""
    design = _orthogonal(4 * (factors // 4 + 1))[:, 1 : factors + 1]
    rows = {tuple(row) for row in (*design.tolist(), *(~design).tolist())}
    return tuple(sorted(rows, key=lambda row: (sum(row), row[::-1])))


def _orthogonal(size: int) -> npt.NDArray[np.bool_]:
    """Return a square in which any two columns agree in half of the rows; all of the first column is true."""
    if size == 1:
        return np.ones((1, 1), dtype=bool)
    if size not in _CYCLES:
        half = _orthogonal(size // 2)
        return np.block([[half, half], [half, ~half]])
    cycle = np.array([sign == "+" for sign in _CYCLES[size]])
    rows = [np.ones(size - 1, dtype=bool), *(np.roll(cycle, -shift) for shift in range(size - 1))]
    return np.column_stack([np.ones(size, dtype=bool), np.array(rows)])


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
