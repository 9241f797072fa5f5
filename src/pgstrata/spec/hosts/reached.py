"""Other hosts that a campaign uses, and their addresses: shared by nodes of clusters and the client of a load."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from pgstrata.errors import UsageError
from pgstrata.spec.hosts.lab import MACHINE_NAME, RUNNING_LAB
from pgstrata.spec.hosts.targets import parse_target, underlay_problem
from pgstrata.spec.model import Model, Refused

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
