"""Transparent huge pages. (Explicit ones are the sysctl vm.nr_hugepages.)"""

from __future__ import annotations

from pgstrata.stack.parts import Check
from pgstrata.stack.step import Setting
from pgstrata.stack.tuning.setting import SettingCheck

TRANSPARENT_HUGEPAGE = "/sys/kernel/mm/transparent_hugepage/enabled"


def plan_transparent_hugepage(mode: str | None) -> tuple[str, tuple[Setting, ...], bool, tuple[Check, ...]]:
    """Sets `always`, `madvise` or `never`."""
    if mode is None:
        return "transparent huge pages", (), True, ()
    check = SettingCheck("transparent_hugepage", TRANSPARENT_HUGEPAGE, mode)
    return "transparent huge pages", (Setting(TRANSPARENT_HUGEPAGE, mode),), True, (check,)
