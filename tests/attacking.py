"""How many tries an attack makes."""

from __future__ import annotations

import os


def scaled(count: int) -> int:
    """That many tries at PGSTRATA_ATTACK_SCALE=1, which is what holds without it; at least one."""
    return max(1, round(count * float(os.environ.get("PGSTRATA_ATTACK_SCALE", "1"))))
