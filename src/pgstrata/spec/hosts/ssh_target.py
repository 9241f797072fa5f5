"""Names of machines behind ssh: the one place that knows the form `ssh://[user@]host[:port]`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pgstrata.errors import UsageError


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
