"""Kernel settings that several runs hold at once: who set what, and what was there before the first of them.

`STATE/settings.jsonl` has a line for each time that a trial takes a setting or gives it back, written under a lock and
synced before the setting is. The last one that gives a setting back restores what the first one found. What a dead
trial took is given back when its journal is replayed; until then it binds nobody. Lines of an earlier boot are void:
the kernel has forgotten the settings too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from pgstrata.errors import PreflightError
from pgstrata.host.delivery import locked
from pgstrata.host.protocol import Host
from pgstrata.stack.tuning.setting import COUNTERPARTS, parse_setting, plan_restore

LOCK = "settings"
LOCK_WAIT_S = 60.0

Wanted = Sequence[tuple[str, str]]
"""Paths of settings and their values."""


@dataclass
class _Group:
    """Settings that change one another, mostly one alone."""

    restore: tuple[str, str]
    """The path and the text that bring back what the first holder found."""
    holders: dict[str, dict[str, str]] = field(default_factory=dict)
    """By trial: path -> value."""


def group_of(path: str) -> str:
    """One name for all paths of settings that change one another: a pair, or one file by several names."""
    if "/queue/" in path:
        return "/".join(path.split("/")[-3:])  # sda/queue/scheduler, also below /sys/devices
    return next((pair[0] for pair in COUNTERPARTS if path in pair), path)


def refuse_held(host: Host, wanted: Wanted, trial: str = "") -> None:
    """PreflightError when another trial that runs holds one of these settings at another value."""
    with _locked(host):
        _refuse(host, _read(host), wanted, trial)


def take_settings(host: Host, trial: str, wanted: Wanted) -> None:
    """Notes that a trial sets these, and what was there; PreflightError as `refuse_held`. Their undo is journaled."""
    with _locked(host):
        groups = _read(host)
        _refuse(host, groups, wanted, trial)
        lines: list[dict[str, object]] = []
        for path, value in wanted:
            name = group_of(path)
            group = groups.get(name) or _Group(plan_restore(host, path))
            groups[name] = group
            lines.append({"group": name, "trial": trial, "path": path, "value": value, "restore": group.restore})
        _append(host, lines)


def give_back(host: Host, trial: str, name: str) -> str:
    """Restores a setting unless another trial that runs still needs it; says what was done, empty for nothing."""
    with _locked(host):
        groups = _read(host)
        group = groups.get(name)
        if group is None or trial not in group.holders:
            return ""
        others = [other for other in group.holders if other != trial and _runs(host, other)]
        gone = [holder for holder in group.holders if holder not in others]
        if others:
            line = f"left {group.restore[0]} as it is: trial {others[0]} needs it"
        else:
            line = _restore(host, *group.restore)
            del groups[name]
        if groups:
            _append(host, [{"group": name, "trial": holder} for holder in gone])
        else:
            host.remove(_path(host))
        return line


def _restore(host: Host, path: str, text: str) -> str:
    if host.status(path) is None:
        return ""
    host.write_text(path, text)
    return f"set {path} back to {text}"


def _refuse(host: Host, groups: dict[str, _Group], wanted: Wanted, trial: str) -> None:
    for path, value in wanted:
        group = groups.get(group_of(path))
        for holder, held in group.holders.items() if group is not None else ():
            same = parse_setting(held.get(path, "")) == parse_setting(value)
            if holder != trial and not same and _runs(host, holder):
                shown = ", ".join(f"{name} at {text}" for name, text in held.items())
                raise PreflightError(
                    f"{path} cannot be set to {value} on {host.name}: trial {holder}, which runs there, holds {shown}",
                    hint="wait for it to end, or ask for the same value",
                )


def _runs(host: Host, trial: str) -> bool:
    return host.lock_holder(f"trial-{trial}") is not None


def _path(host: Host) -> str:
    return f"{host.state_directory()}/settings.jsonl"


def _boot(host: Host) -> str:
    return host.read_text("/proc/sys/kernel/random/boot_id").strip()


def _read(host: Host) -> dict[str, _Group]:
    """Return what is held since this boot."""
    if host.status(_path(host)) is None:
        return {}
    boot, groups = _boot(host), dict[str, _Group]()
    for line in host.read_text(_path(host)).split("\n"):
        entry = _parse(line)
        if entry.get("boot") != boot:
            continue
        if "value" in entry:
            group = groups.setdefault(entry["group"], _Group((entry["restore"][0], entry["restore"][1])))
            group.holders.setdefault(entry["trial"], {})[entry["path"]] = entry["value"]
        elif entry["group"] in groups:
            groups[entry["group"]].holders.pop(entry["trial"], None)
            if not groups[entry["group"]].holders:
                del groups[entry["group"]]
    return groups


def _parse(line: str) -> dict[str, Any]:
    """Empty for a line that was cut short: its setting had not been written yet."""
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}
    return found


def _append(host: Host, lines: list[dict[str, object]]) -> None:
    """Begins with a line break, so that a line that was cut short spoils no other."""
    host.make_directory(host.state_directory())
    boot = _boot(host)
    host.append_text(_path(host), "\n" + "".join(f"{json.dumps({'boot': boot, **line})}\n" for line in lines))


def _locked(host: Host) -> AbstractContextManager[None]:
    return locked(host, LOCK, "settings of the kernel", what="the kernel's settings", wait_s=LOCK_WAIT_S)
