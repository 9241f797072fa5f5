"""Mounting a filesystem, and the mount options in effect according to the kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
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


def plan_mount(fstype: str, options: Iterable[MountOption | Argument], source: Argument, place: Place) -> Step:
    """Create the mount point and mount `source` there; every option is a separate `-o`, as some are Refs."""
    words = (word for option in options for word in (option.words if isinstance(option, MountOption) else (option,)))
    given = [part for word in words for part in ("--options", word)]
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


@dataclass(frozen=True)
class MountOption:
    """A mount option: its words for mount(8), and its expected value in the kernel's list; None if not checked."""

    words: tuple[str, ...] = ()
    expected: Expectation | None = None


def switch(
    what: str, wanted: bool, *, on: str = "", off: str = "", given: str = "", checked: bool = True
) -> MountOption:
    """Return a switch that the kernel shows only when it differs from its default: by `on`, otherwise by `off`, for
    which mount(8) may have another word."""
    words = (given or on or off,) if wanted == bool(on) else ()
    readings = ((on, "on"),) if on else ((off, "off"),)
    expected = Expectation(what, "on" if wanted else "off", readings, "off" if on else "on")
    return MountOption(words, expected if checked else None)


def switched_on(fs: object, names: Iterable[str]) -> Iterator[MountOption]:
    """Yield options that are off by default, and are given and checked only when they are configured."""
    yield from (switch(name, True, on=name) for name in names if getattr(fs, name))


def switched_off(fs: object, names: Mapping[str, str]) -> Iterator[MountOption]:
    """Yield options that are on by default, with the words that clear them; the same."""
    yield from (switch(name, False, off=off) for name, off in names.items() if not getattr(fs, name))


def setting(
    option: str,
    asked: object,
    default: object,
    *,
    shown: str | None = None,
    always: bool = False,
    checked: bool = True,
) -> MountOption:
    """Return an option `option=VALUE`, which the kernel shows, perhaps in another form, when it differs from its
    default. One that is not configured is checked only with `always`."""
    wanted = shown or str(default if asked is None else asked)
    expected = Expectation(option, wanted, ((f"{option}=", ""),), str(default))
    is_checked = checked and (always or asked is not None)
    return MountOption(() if asked is None else (f"{option}={asked}",), expected if is_checked else None)


def access_times(fs: object) -> tuple[MountOption, ...]:
    """Return the options for access times: relatime unless configured otherwise (the kernel's default since 2.6.30)."""
    noatime, nodiratime, strictatime = (getattr(fs, name, False) for name in ("noatime", "nodiratime", "strictatime"))
    readings = (("noatime", "noatime"), ("relatime", "relatime"))
    wanted = "noatime" if noatime else "strictatime" if strictatime else "relatime"
    return (
        MountOption(("noatime",) if noatime else (), Expectation("atime", wanted, readings, "strictatime")),
        switch("nodiratime", nodiratime, on="nodiratime"),
        MountOption(("strictatime",) if strictatime else ()),
    )


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
    options: tuple[MountOption, ...] = ()

    @property
    def expectations(self) -> tuple[Expectation, ...]:
        return tuple(option.expected for option in self.options if option.expected is not None)

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
