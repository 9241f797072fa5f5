"""Mounting a filesystem, and the mount options in effect according to the kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pgstrata.errors import parser_of
from pgstrata.host.protocol import Host, command
from pgstrata.stack.place import Place
from pgstrata.stack.step import Argument, Attested, Step, planned
from pgstrata.stack.undo import RemovePath, Unmount

MOUNT_TIMEOUT_S = 120.0
"""Mounting can replay a journal."""


@dataclass(frozen=True)
class Mount:
    """One line of /proc/PID/mountinfo."""

    device: tuple[int, int]
    target: str
    fstype: str
    source: str
    options: tuple[str, ...]
    """Options of this mount (atime, read-only) followed by those of the filesystem."""


@parser_of("/proc/self/mountinfo")
def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """Parse all mounts of a /proc/PID/mountinfo, in order (a later one covers an earlier one at the same target).

    The fields before ` - ` are id, parent, major:minor, root, target, options and optional tags (proc(5)).
    """
    return tuple(_parse_mount(line) for line in text.splitlines() if line.strip())


def _parse_mount(line: str) -> Mount:
    left, separator, right = line.partition(" - ")
    before, after = left.split(" "), right.split(" ")
    if not separator or len(before) < 6 or len(after) < 3:
        raise ValueError(f"not a line of mountinfo: {line!r}")
    major, minor = before[2].split(":")
    return Mount(
        device=(int(major), int(minor)),
        target=_unescape(before[4]),
        fstype=after[0],
        source=_unescape(after[1]),
        options=(*before[5].split(","), *after[2].split(",")),
    )


def _unescape(text: str) -> str:
    r"""Blanks, tabs, newlines and backslashes are written as `\040` and so on."""
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)


def list_mounts(host: Host) -> tuple[Mount, ...]:
    """List all mounts visible to the host's programs."""
    return parse_mountinfo(host.read_text("/proc/self/mountinfo"))


def mount_at(host: Host, target: str) -> Mount | None:
    """Return the mount visible at `target`, if any."""
    found = [m for m in list_mounts(host) if m.target == target]
    return found[-1] if found else None


def find_mount(mounts: tuple[Mount, ...], path: str) -> Mount | None:
    """Find the mount of a path (links resolved): the longest target above it, the last of equals."""
    above = [m for m in mounts if path == m.target or path.startswith(m.target.rstrip("/") + "/")]
    return max(enumerate(above), key=lambda pair: (len(pair[1].target), pair[0]))[1] if above else None


def plan_mount(fstype: str, options: tuple[Argument, ...], source: Argument, place: Place) -> Step:
    """Create the mount point and mount `source` there; every option is a separate `-o`, as some are Refs."""
    given = [part for option in options for part in ("--options", option)]
    return Step(
        name=f"mount {fstype} for {place.role}",
        commands=(
            planned("mkdir", "--parents", place.mount_point),
            planned("mount", ["--types", fstype], given, source, place.mount_point, timeout_s=MOUNT_TIMEOUT_S),
        ),
        undo=(RemovePath(path=place.mount_point), Unmount(target=place.mount_point)),
    )


@dataclass(frozen=True)
class Expectation:
    """Expected value of a mount option: `wanted`, among the values that its readings can give."""

    what: str
    wanted: str
    readings: tuple[tuple[str, str], ...]
    """(option as the kernel shows it, its meaning); the meaning of an option ending in `=` is its value."""
    otherwise: str
    """Meaning if none of them is shown: the kernel's default."""

    def actual(self, options: tuple[str, ...]) -> str:
        for option in options:
            for shown, meaning in self.readings:
                if option == shown:
                    return meaning
                if shown.endswith("=") and option.startswith(shown):
                    return option.removeprefix(shown)
        return self.otherwise


def flag(what: str, wanted: bool, *, on: str = "", off: str = "") -> Expectation:
    """Expect a switch that the kernel shows only when it differs from its default: by `on`, otherwise by `off`."""
    readings = ((on, "on"),) if on else ((off, "off"),)
    return Expectation(what, "on" if wanted else "off", readings, "off" if on else "on")


def number(option: str, wanted: int | None, default: int) -> tuple[Expectation, ...]:
    """Expect a number that is configured; the kernel shows it only when it differs from its default."""
    return () if wanted is None else (value(option, str(wanted), str(default)),)


def value(option: str, wanted: str | None, default: str) -> Expectation:
    """Expect an option `option=VALUE` that is not shown at its default."""
    return Expectation(option, default if wanted is None else wanted, ((f"{option}=", ""),), default)


def atime_expectations(*, noatime: bool, nodiratime: bool, strictatime: bool = False) -> tuple[Expectation, ...]:
    """Expect access times: relatime unless configured otherwise (the kernel's default since 2.6.30)."""
    readings = (("noatime", "noatime"), ("relatime", "relatime"))
    wanted = "noatime" if noatime else "strictatime" if strictatime else "relatime"
    return (
        Expectation("atime", wanted, readings, "strictatime"),
        flag("nodiratime", nodiratime, on="nodiratime"),
    )


def atime_options(*, noatime: bool, nodiratime: bool, strictatime: bool = False) -> tuple[str, ...]:
    """Return the mount options for access times."""
    given = {"noatime": noatime, "nodiratime": nodiratime, "strictatime": strictatime}
    return tuple(name for name, wanted in given.items() if wanted)


WRITABLE = Expectation("access", "rw", (("ro", "ro"),), "rw")


def _node_of(host: Host, source: str) -> str:
    """Resolve a source to its device node: mount(8) shows /dev/dm-0 by its link in /dev/mapper."""
    if not source.startswith("/dev/mapper/"):
        return source
    found = host.run(command("readlink", "--canonicalize-existing", source), check=False)
    return found.stdout.strip() or source


@dataclass(frozen=True)
class MountCheck:
    """Checks mount point, source and options of a filesystem; no other options may be set."""

    role: str
    target: str
    fstype: str
    source: Argument | None
    """None if the source has no name of its own (tmpfs) or one of several devices is shown."""
    expectations: tuple[Expectation, ...]

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        mount = mount_at(host, self.target)
        prefix = f"{self.role} mount"
        if mount is None:
            return (Attested(f"{prefix} fstype", self.fstype, "not mounted"),)
        rows = [Attested(f"{prefix} fstype", self.fstype, mount.fstype)]
        if self.source is not None:
            wanted = self.source if isinstance(self.source, str) else self.source.resolve(bindings)
            rows.append(Attested(f"{prefix} source", wanted, _node_of(host, mount.source)))
        for expectation in (WRITABLE, *self.expectations):
            actual = expectation.actual(mount.options)
            rows.append(Attested(f"{prefix} {expectation.what}", expectation.wanted, actual))
        return tuple(rows)
