"""From what the user wrote behind `host:` to a host."""

from __future__ import annotations

from pgstrata.errors import UsageError
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Host
from pgstrata.host.ssh import SshHost
from pgstrata.spec.hosts.ssh_target import parse_target


def connect(text: str) -> Host:
    """A host from `local` or `ssh://[user@]host[:port]`.

    `lab` is not known here: the lab starts a machine and hands over an ssh host of its own.
    """
    if text == "local":
        return LocalHost()
    if text.startswith("ssh://"):
        return SshHost(parse_target(text))
    raise UsageError(f"not a host: {text}", hint="use local, ssh://[user@]host[:port], lab or lab/NAME")
