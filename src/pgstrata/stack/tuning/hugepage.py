"""Transparent huge pages. (Explicit ones are the sysctl vm.nr_hugepages.)"""

from __future__ import annotations

from pgstrata.stack.step import Setting
from pgstrata.stack.tuning.setting import SettingCheck, Tuning

TRANSPARENT_HUGEPAGE = "/sys/kernel/mm/transparent_hugepage/enabled"


def plan_transparent_hugepage(mode: str | None) -> Tuning:
    """Sets `always`, `madvise` or `never`."""
    if mode is None:
        return Tuning("transparent huge pages")
    check = SettingCheck("transparent_hugepage", TRANSPARENT_HUGEPAGE, mode)
    return Tuning("transparent huge pages", (Setting(TRANSPARENT_HUGEPAGE, mode),), (check,))
