"""Settings of the servers: differences between stacks, and the settings of each server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pgstrata.record.reader import CampaignData, TrialData
from pgstrata.record.schema import SettingRecord
from pgstrata.report.sentences.figures import NOT_KNOWN

PLACES = frozenset(
    {
        "data_directory", "config_file", "hba_file", "ident_file", "external_pid_file", "unix_socket_directories",
        "port",
    }
)  # fmt: skip
"""Settings with the location of a server, which differs in every trial."""

_UNIT = re.compile(r"(\d*)(B|kB|MB|GB|TB|us|ms|s|min|h|d)")
_SIZES = (("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10), ("B", 1))
_TIMES = (
    ("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1000), ("us", 1),
)  # fmt: skip


@dataclass(frozen=True)
class SettingRow:
    """One setting over all stacks, in the order of `SettingTable.stacks`."""

    name: str
    values: tuple[str, ...]
    default: str


@dataclass(frozen=True)
class SettingTable:
    """The settings that differ between stacks; `same` counts the recorded ones that do not."""

    stacks: tuple[str, ...]
    rows: tuple[SettingRow, ...]
    same: int


@dataclass(frozen=True)
class StackSetting:
    """One setting of one stack's server."""

    name: str
    value: str
    default: str
    changed: bool


def render_setting(setting: str | None, unit: str | None) -> str:
    """Format like SHOW, in the largest unit that divides the value: `128MB` for 16384 of `8kB`."""
    if setting is None:
        return NOT_KNOWN
    match = _UNIT.fullmatch(unit or "")
    if match is None or not re.fullmatch("[1-9][0-9]{0,17}", setting):
        return setting or "(empty)"
    scale = _SIZES if match[2] in dict(_SIZES) else _TIMES
    whole = int(setting) * int(match[1] or 1) * dict(scale)[match[2]]
    name, size = next((name, size) for name, size in scale if whole % size == 0)
    return f"{whole // size}{name}"


def setting_table(data: CampaignData) -> SettingTable | None:
    """Return the table; None unless the settings of at least two stacks were recorded."""
    found = _by_stack(data.trials)
    if len(found) < 2:
        return None
    names = sorted({name for settings in found.values() for name in settings} - PLACES)
    rows = tuple(_row(name, found) for name in names)
    differing = tuple(row for row in rows if len(set(row.values)) > 1)
    return SettingTable(tuple(found), differing, len(rows) - len(differing))


def stack_settings(trials: Iterable[TrialData]) -> tuple[StackSetting, ...]:
    """Return the settings of the servers in one stack's trials, changed ones first."""
    found = _merged(t.settings for t in trials)
    rows = [
        StackSetting(name, _values(records), _default(records), any(r.setting != r.default for r in records))
        for name, records in sorted(found.items())
        if name not in PLACES
    ]
    return tuple(sorted(rows, key=lambda row: not row.changed))


Merged = Mapping[str, tuple[SettingRecord, ...]]
"""Distinct states by name of the setting."""


def _by_stack(trials: Iterable[TrialData]) -> dict[str, Merged]:
    groups: dict[str, list[tuple[SettingRecord, ...]]] = {}
    for trial in trials:
        if trial.settings:
            groups.setdefault(trial.trial.stack, []).append(trial.settings)
    return {stack: _merged(group) for stack, group in groups.items()}


def _merged(several: Iterable[tuple[SettingRecord, ...]]) -> Merged:
    found: dict[str, dict[SettingRecord, None]] = {}
    for settings in several:
        for one in settings:
            found.setdefault(one.name, {})[one] = None
    return {name: tuple(records) for name, records in found.items()}


def _row(name: str, found: Mapping[str, Merged]) -> SettingRow:
    """Return a row. A server of the same version without a record of a setting has its default."""
    defaults = {_version(settings): _default(settings[name]) for settings in found.values() if name in settings}
    values = tuple(
        _values(settings[name]) if name in settings else defaults.get(_version(settings), NOT_KNOWN)
        for settings in found.values()
    )
    return SettingRow(name, values, " | ".join(dict.fromkeys(defaults.values())))


def _version(settings: Merged) -> str:
    return _values(settings.get("server_version", ()))


def _values(records: Iterable[SettingRecord]) -> str:
    return " | ".join(dict.fromkeys(render_setting(r.setting, r.unit) for r in records))


def _default(records: Iterable[SettingRecord]) -> str:
    return " | ".join(dict.fromkeys(render_setting(r.default, r.unit) for r in records))
