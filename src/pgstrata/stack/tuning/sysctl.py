"""Settings below /proc/sys: vm.*, kernel.*, fs.*."""

from __future__ import annotations

from collections.abc import Mapping

from pgstrata.stack.step import Setting
from pgstrata.stack.tuning.overcommit import OVERCOMMIT_MEMORY
from pgstrata.stack.tuning.setting import SettingCheck, Tuning, parse_setting


def sysctl_path(name: str) -> str:
    """`vm.dirty_ratio` -> `/proc/sys/vm/dirty_ratio`."""
    return "/proc/sys/" + name.replace(".", "/")


def plan_sysctl(values: Mapping[str, str]) -> tuple[Tuning, ...]:
    """Writes each value; huge pages are attested by the same read, as the kernel may give fewer than asked for.

    Strict overcommit comes last and is restored first, so that it holds with the ratio it was checked with.
    """
    strict = {name: value for name, value in values.items() if sysctl_path(name) == OVERCOMMIT_MEMORY}
    others = {name: value for name, value in values.items() if name not in strict}
    return (_tuning("sysctl settings", others), _tuning("sysctl vm.overcommit_memory", strict))


def _tuning(title: str, values: Mapping[str, str]) -> Tuning:
    settings = tuple(Setting(sysctl_path(name), value) for name, value in values.items())
    checks = tuple(
        SettingCheck(f"sysctl {name}", sysctl_path(name), parse_setting(value)) for name, value in values.items()
    )
    return Tuning(title, settings, checks)
