"""Names and addresses of hosts: behind ssh, inside a container, and those that a campaign uses besides its own.

Besides its own are nodes of clusters, and the client of a load.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import Field, field_validator

from pgstrata.errors import UsageError
from pgstrata.spec.hosts.lab import MACHINE_NAME, RUNNING_LAB
from pgstrata.spec.model import Model, Refused


@dataclass(frozen=True)
class SshTarget:
    """`ssh://[user@]host[:port]`; `host` may be an alias of the user's ssh configuration."""

    host: str
    user: str | None = None
    port: int | None = None

    @property
    def text(self) -> str:
        user = f"{self.user}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"ssh://{user}{host}" + (f":{self.port}" if self.port else "")

    @property
    def destination(self) -> str:
        return f"{self.user}@{self.host}" if self.user else self.host

    @property
    def argv(self) -> list[str]:
        return [*(["-p", str(self.port)] if self.port else []), "--", self.destination]


_TARGET = re.compile(
    r"ssh://(?:(?P<user>[^@/\s-][^@/\s]*)@)?(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^-:/@\s\[\]][^:/@\s\[\]]*))"
    r"(?::(?P<port>\d{1,5}))?/?"
)


def parse_target(text: str) -> SshTarget:
    """UsageError when it is not `ssh://[user@]host[:port]`."""
    found = _TARGET.fullmatch(text)
    if found is None:
        raise UsageError(f"not an ssh host: {text}", hint="write ssh://[user@]host[:port], e.g. ssh://root@db1:22")
    port = int(found["port"]) if found["port"] else None
    if port is not None and not 0 < port < 65536:
        raise UsageError(f"not an ssh host: {text}: there is no port {port}", hint="a port is 1 to 65535")
    return SshTarget(found["six"] or found["host"], found["user"], port)


EXEC = "exec:"
CONTAINER_PROGRAMS = ("podman", "docker", "nerdctl", "kubectl")
_OPTIONS = ("--namespace", "-n", "--container", "-c", "--context", "--user", "-u")
_SWITCHES = ("-i", "--interactive", "--stdin")
_NAME = re.compile(r"[A-Za-z0-9][\w./@:-]*", re.ASCII)
_FORMS = "exec:podman exec -i NAME, exec:docker exec -i NAME, exec:kubectl exec -i POD --"


@dataclass(frozen=True)
class ExecTarget:
    """A program with the arguments before the command that it runs over there."""

    argv: tuple[str, ...]

    @property
    def text(self) -> str:
        return EXEC + shlex.join(self.argv)


def parse_exec(text: str) -> ExecTarget:
    """UsageError when it is not `exec:PROGRAM [ARGUMENT...]`."""
    try:
        argv = tuple(shlex.split(text.removeprefix(EXEC)))
    except ValueError as error:
        raise UsageError(f"not an exec host: {text}: {error}", hint=_FORMS) from None
    if not argv or argv[0].startswith("-"):
        raise UsageError(f"not an exec host: {text}: no program is named", hint=_FORMS)
    return ExecTarget(argv)


def exec_problem(text: str) -> str:
    """Return why a campaign's file cannot name this host; empty if it can.

    A file may be someone else's, and planning it connects to its host: it names a container, and no other program.
    """
    try:
        program, *words = parse_exec(text).argv
    except UsageError as error:
        return f"{error.message} ({error.hint})"
    if program not in CONTAINER_PROGRAMS or "exec" not in words:
        return f"a campaign's file names a container ({_FORMS}); other programs are for --host"
    while words:
        word = words.pop(0)
        if word in _OPTIONS and words:
            word = words.pop(0)
        elif word in _SWITCHES or (word == "--" and not words):
            continue
        if not _NAME.fullmatch(word):
            return f"{word!r} does not stand in the host of a campaign's file: name it with --host"
    return ""


PRIVATE = tuple(
    map(
        ipaddress.ip_network,
        ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "127.0.0.0/8",
         "fc00::/7", "::1/128"),
    )
)  # fmt: skip
"""RFC 1918, shared (RFC 6598), link-local and loopback; of IPv6 unique local (RFC 4193) and loopback."""


def underlay_problem(text: str) -> str:
    """Return why hosts must not reach each other by that address; empty if they may."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return f"{text!r} is no IP address"
    if isinstance(address, ipaddress.IPv6Address) and (address.is_link_local or address.scope_id):
        return f"address {text} is of one interface: a tunnel has none to send by"
    if any(address in network for network in PRIVATE if network.version == address.version):
        return ""
    return f"address {text} is public: WAL and the data would travel unencrypted"


def mixed_families(addresses: Iterable[str]) -> str:
    """Return one address of IPv4 and one of IPv6, in words, if both are among the addresses; else empty."""
    by_version = {ipaddress.ip_address(text).version: text for text in addresses}
    return f"{by_version[4]} is of IPv4 and {by_version[6]} of IPv6" if len(by_version) > 1 else ""


LOCAL = "local"


def private_address(address: str | None) -> str | None:
    """The address; ValueError for one that is not private."""
    if address is not None and (problem := underlay_problem(address)):
        raise ValueError(problem)
    return address


def reached_host(text: str, whose: str) -> str:
    """The name of a host behind ssh or of a lab machine that is up; Refused for any other."""
    if re.fullmatch(RUNNING_LAB + MACHINE_NAME, text):
        return text
    try:
        return parse_target(text).text
    except UsageError as error:
        raise Refused(f"{whose}: {error.message}", error.hint) from None


class LoadClient(Model):
    """A host that runs the load's program, which reaches the server over the network."""

    host: str = Field(
        description="ssh://[user@]host[:port], lab/NAME (one that is up), or local beside a remote server"
    )
    address: str | None = Field(
        None,
        description="of the server's host, where the client reaches it; private, and by default the one on the way to "
        "the client",
    )

    _private = field_validator("address")(private_address)

    @field_validator("host")
    @classmethod
    def _reached(cls, text: str) -> str:
        return text if text == LOCAL else reached_host(text, "a client is behind ssh or on a lab machine")
