"""Source of Debian packages: what the host's own apt is set to, never an address of ours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Host, command

COMPONENTS = ("main", "contrib")
"""zfs is in contrib: its licence does not go together with the kernel's, so it comes as source alone."""

_ONE_LINE = re.compile(r"^deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)$")
_PASSED_ON = re.compile(r"^Acquire::(?:https?|ftp)(?:::|\s)|^Acquire::Check-(?:Valid-Until|Date)\s")


@dataclass(frozen=True)
class Source:
    """One archive that apt reads packages from."""

    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str | None = None


def parse_one_line_sources(text: str) -> tuple[Source, ...]:
    """The `deb` lines of a sources.list (sources.list(5)); other lines are comments or sources of source code."""
    found = []
    for line in text.splitlines():
        match = _ONE_LINE.match(line.partition("#")[0].strip())
        if match:
            signed = re.search(r"signed-by=(\S+)", match["options"] or "")
            components = tuple(match["components"].split())
            found.append(Source(match["uri"], match["suite"], components, signed[1] if signed else None))
    return tuple(found)


def parse_deb822_sources(text: str) -> tuple[Source, ...]:
    """The enabled stanzas of a `.sources` file that give binary packages, one source for each URI and suite."""
    found: list[Source] = []
    for stanza in re.split(r"\n\s*\n", text):
        fields = _fields(stanza)
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
            continue
        key = fields.get("signed-by", "").strip()
        found += [
            Source(uri, suite, tuple(fields.get("components", "").split()), key if key.startswith("/") else None)
            for uri in fields.get("uris", "").split()
            for suite in fields.get("suites", "").split()
        ]
    return tuple(found)


def _fields(stanza: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1].isspace():
            fields[name] = f"{fields.get(name, '')} {line.strip()}"
        else:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
    return fields


def choose_sources(sources: Iterable[Source], release: str) -> tuple[str, ...]:
    """Lines for a sources.list of `release` from those archives of the host that carry it.

    PreflightError where the host reads that release from nowhere.
    """
    wanted = (release, f"{release}-updates", f"{release}-security")
    chosen = [s for s in sources if s.suite in wanted and "main" in s.components]
    if not any(s.suite == release for s in chosen):
        raise PreflightError(
            f"cannot build the lab image: apt of this host has no mirror of Debian {release}",
            hint=f"pgstrata lab build --mirror URL, the address of a mirror of Debian with {release}",
        )
    return tuple(dict.fromkeys(_render(s) for s in chosen))


def _render(source: Source) -> str:
    option = f"[signed-by={source.signed_by}] " if source.signed_by else ""
    return f"deb {option}{source.uri} {source.suite} {' '.join(COMPONENTS)}"


def parse_apt_config(text: str) -> tuple[str, ...]:
    """Lines of `apt-config dump` that say how to reach a mirror: proxies, time limits, checks of dates."""
    return tuple(line for line in text.splitlines() if _PASSED_ON.match(line))


def read_sources(host: Host) -> tuple[Source, ...]:
    """Every source that apt of the host is set to."""
    found: list[Source] = []
    if host.status("/etc/apt/sources.list") is not None:
        found += parse_one_line_sources(host.read_text("/etc/apt/sources.list"))
    directory = "/etc/apt/sources.list.d"
    for name in host.list_directory(directory) if host.status(directory) is not None else ():
        if name.endswith(".list"):
            found += parse_one_line_sources(host.read_text(f"{directory}/{name}"))
        elif name.endswith(".sources"):
            found += parse_deb822_sources(host.read_text(f"{directory}/{name}"))
    return tuple(found)


def read_apt_config(host: Host) -> tuple[str, ...]:
    """The host's own settings for reaching mirrors; none where it has no apt."""
    printed = host.run(command("apt-config", "dump", "Acquire"), check=False)
    return parse_apt_config(printed.stdout)
