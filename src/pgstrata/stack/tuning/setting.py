"""One file of /proc/sys or /sys that holds a setting: how its value reads, and what puts it back."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from pgstrata.errors import PreflightError
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
