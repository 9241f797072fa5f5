"""Settings below /proc/sys: vm.*, kernel.*, fs.*."""

from __future__ import annotations

from collections.abc import Mapping

from pgstrata.stack.step import Setting
from pgstrata.stack.tuning.setting import SettingCheck, Tuning, parse_setting


def sysctl_path(name: str) -> str:
    """`vm.dirty_ratio` -> `/proc/sys/vm/dirty_ratio`."""
    return "/proc/sys/" + name.replace(".", "/")


def plan_sysctl(values: Mapping[str, str]) -> Tuning:
    """Writes each value; huge pages are attested by the same read, as the kernel may give fewer than asked for."""
    settings = tuple(Setting(sysctl_path(name), value) for name, value in values.items())
    checks = tuple(
        SettingCheck(f"sysctl {name}", sysctl_path(name), parse_setting(value)) for name, value in values.items()
    )
    return Tuning("sysctl settings", settings, checks)
