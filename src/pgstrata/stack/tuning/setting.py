"""One file of /proc/sys or /sys that holds a setting: how its value reads, and what puts it back.

Several runs may hold a setting at once. `STATE/settings.jsonl` has a line for each time that a trial takes a setting or
gives it back, written under a lock and synced before the setting is. The last one that gives a setting back restores
what the first one found. What a dead trial took is given back when its journal is replayed; until then it binds nobody.
Lines of an earlier boot are void: the kernel has forgotten the settings too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any

from pgstrata.errors import PreflightError
from pgstrata.host.delivery import locked
from pgstrata.host.facts.system import parse_meminfo
from pgstrata.host.protocol import Host, command
from pgstrata.spec.units import render_size
from pgstrata.stack.step import Argument, Attested, Setting, compare_or_record, resolve

COUNTERPARTS = (
    ("/proc/sys/vm/dirty_bytes", "/proc/sys/vm/dirty_ratio"),
    ("/proc/sys/vm/dirty_background_bytes", "/proc/sys/vm/dirty_background_ratio"),
    ("/proc/sys/vm/overcommit_kbytes", "/proc/sys/vm/overcommit_ratio"),
)
"""Writing one of a pair sets the other to 0 (Documentation/admin-guide/sysctl/vm.rst), and the first of a dirty pair
cannot be set back to 0: writing the second is what does that."""


def parse_setting(text: str) -> str:
    """The value in a kernel file: the chosen word of `always [madvise] never`, else the text with blanks normed."""
    chosen = re.findall(r"\[([^\]]+)\]", text)
    return chosen[0] if len(chosen) == 1 else " ".join(text.split())


def read_setting(host: Host, path: str) -> str:
    """The present value of a setting."""
    return parse_setting(host.read_text(path))


def setting_path(host: Host, path: Argument, bindings: Mapping[str, str]) -> str:
    """Return the path of a setting on this host."""
    own, *parents = _places(resolve(path, bindings))
    if not parents or host.status(own) is not None:
        return own
    found = host.run(command("readlink", "--canonicalize-existing", parents[0]), check=False).stdout.strip()
    return found or own


def _places(path: str) -> list[str]:
    """A partition has the queue of its disk, one folder up."""
    return [path, path.replace("/queue/", "/../queue/")] if "/queue/" in path else [path]


IN_EFFECT: dict[str, Callable[[Host], str]] = {}
"""Files that take 0 for `leave it as it is`: what is in effect has to be written back. Layers add theirs."""


def plan_restore(host: Host, path: str) -> tuple[str, str]:
    """The path and the text that put the present value of a setting back; reads it now."""
    present = read_setting(host, path)
    if path in IN_EFFECT and present == "0":
        return path, IN_EFFECT[path](host)
    for pair in COUNTERPARTS:
        if path in pair and present == "0":
            other = pair[1] if path == pair[0] else pair[0]
            return other, read_setting(host, other)
    return path, present


@dataclass(frozen=True)
class Tuning:
    """Settings of one sort, and the checks that read them back."""

    name: str
    settings: tuple[Setting, ...] = ()
    checks: tuple[SettingCheck, ...] = ()
    host_wide: bool = True


@dataclass(frozen=True)
class SettingCheck:
    """A setting still holds its value; with `value` None it is only told what it is, where there is such a setting."""

    what: str
    path: Argument
    value: str | None

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        for path in _places(resolve(self.path, bindings)):
            with suppress(FileNotFoundError):
                return (compare_or_record(self.what, self.value, read_setting(host, path)),)
        return () if self.value is None else (Attested(self.what, self.value, "missing"),)


OVERCOMMIT_MEMORY = "/proc/sys/vm/overcommit_memory"
STRICT = "2"

ROOM_BYTES = 512 * 2**20
"""Bytes that must be left for the host's own programs."""


def commit_limit_bytes(meminfo: Mapping[str, int], *, ratio: int, kbytes: int) -> int:
    """CommitLimit as the kernel computes it: `kbytes` or `ratio` percent of the memory without huge pages, and swap.

    See vm_commit_limit() and Documentation/mm/overcommit-accounting.rst.
    """
    huge_bytes = meminfo.get("HugePages_Total", 0) * meminfo.get("Hugepagesize", 0)
    allowed = kbytes * 1024 if kbytes else (meminfo["MemTotal"] - huge_bytes) * ratio // 100
    return allowed + meminfo["SwapTotal"]


def require_room_to_commit(host: Host, path: str, value: str) -> None:
    """PreflightError when `value` is the strict mode and the host has committed too much for it; reads it now."""
    if path != OVERCOMMIT_MEMORY or value != STRICT:
        return
    meminfo = parse_meminfo(host.read_text("/proc/meminfo"))
    problem = room_problem(meminfo["CommitLimit"], meminfo["Committed_AS"], 0)
    if problem:
        raise PreflightError(f"vm.overcommit_memory=2 is refused on {host.name}: {problem}", hint=HINT)


HINT = "raise vm.overcommit_ratio (100 or more) in the stack's kernel settings, or stop other services"


def room_problem(limit_bytes: int, committed_bytes: int, wanted_bytes: int) -> str:
    """Return why so much cannot be committed in addition; empty if it can."""
    if committed_bytes + wanted_bytes + ROOM_BYTES <= limit_bytes:
        return ""
    return (
        f"{render_size(committed_bytes)} are committed and {render_size(wanted_bytes + ROOM_BYTES)} are needed, "
        f"the limit would be {render_size(limit_bytes)}"
    )


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


def boot_id(host: Host) -> str:
    """Return an id that differs after every boot of the host."""
    return host.read_text("/proc/sys/kernel/random/boot_id").strip()


def _read(host: Host) -> dict[str, _Group]:
    """Return what is held since this boot."""
    if host.status(_path(host)) is None:
        return {}
    boot, groups = boot_id(host), dict[str, _Group]()
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
    boot = boot_id(host)
    host.append_text(_path(host), "\n" + "".join(f"{json.dumps({'boot': boot, **line})}\n" for line in lines))


def _locked(host: Host) -> AbstractContextManager[None]:
    return locked(host, LOCK, "settings of the kernel", what="the kernel's settings", wait_s=LOCK_WAIT_S)
