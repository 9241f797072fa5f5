"""Pooler between pgbench and the servers of a cluster, on the node that pgbench runs on. Pure.

It takes sessions by SCRAM-SHA-256 and opens those to the servers likewise. For that it needs the password itself, as
libpq does, which stands in a file that only the servers' user can read.
"""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pgstrata.host.protocol import Command, marked
from pgstrata.postgres.server import SUPERUSER, Server
from pgstrata.postgres.standby import PRIMARY_PASSFILE
from pgstrata.stack.network import Link


@dataclass(frozen=True)
class Sent:
    """Statements that the pooler has sent to a node since it was started."""

    reads: int
    writes: int


@dataclass(frozen=True)
class Pooler(ABC):
    """A pooler of `primary`'s user. `directory` is that user's alone."""

    program: ClassVar[str]
    port: ClassVar[int]
    files: ClassVar[tuple[str, ...]]
    """Their names."""
    console: ClassVar[str]
    """The database in which it answers its own statements."""
    states_query: ClassVar[str]
    sent_query: ClassVar[str]
    """Empty where it does not tell reads from writes."""
    beside: ClassVar[int]
    """Sessions that it opens to each server beside those of pgbench's clients."""

    primary: Server
    link: Link
    """Link of the node that it runs on."""
    backends: Mapping[str, str]
    """Addresses by the names of the nodes, the primary first."""
    directory: str
    sessions: int

    @property
    def address(self) -> str:
        return self.link.address

    def path(self, name: str) -> str:
        """Return the path of one of its files."""
        return f"{self.directory}/{name}"

    def plan_configure(self) -> tuple[Command, ...]:
        """Commands that create and write its files, readable only by its user; the text comes by standard input."""
        paths = tuple(self.path(name) for name in self.files)
        make = tuple(self.primary.as_user("install", "--mode", "0600", "/dev/null", path) for path in paths)
        return (*make, *(self.primary.as_user("tee", path) for path in paths))

    @abstractmethod
    def render_files(self, password: str) -> tuple[str, ...]:
        """The texts of `files`."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, str]:
        """Settings as its first file has them, without any password."""

    @abstractmethod
    def plan_start(self) -> Command:
        """Return the command that starts it in the foreground, so that it ends with SIGINT as its other programs do."""

    def ask(self, show: str) -> Command:
        """psql with one of its own statements, whose rows are printed with commas and a head."""
        asked = Command(
            (
                self.primary.installation.program("psql"), "--no-psqlrc", "--csv", "--no-password",
                "--host", self.address,
                "--port", str(self.port),
                "--username", SUPERUSER,
                "--dbname", self.console,
                "--command", show,
            ),
            timeout_s=60.0,
            user=self.primary.user,
            env=(
                *marked(self.primary.marker),
                ("PGPASSFILE", f"{self.primary.run_directory}/{PRIMARY_PASSFILE}"),
            ),
            cwd="/",
        )  # fmt: skip
        return self.link.enter(asked)

    @property
    @abstractmethod
    def expected_states(self) -> dict[str, str]:
        """Result of `states` while all is well."""

    @abstractmethod
    def states(self, text: str) -> dict[str, str]:
        """Return for each node what the pooler takes it for, from the output of `states_query`."""

    @abstractmethod
    def sent(self, text: str) -> dict[str, Sent]:
        """Return for each node what was sent there, from the output of `sent_query`."""

    def name_of(self, address: str) -> str:
        """Return the name of the node with that address; the address itself if no node has it."""
        return {own: name for name, own in self.backends.items()}.get(address, address)


def parse_rows(text: str) -> list[dict[str, str]]:
    """Rows by the names of their columns."""
    return [{name: value.strip() for name, value in row.items()} for row in csv.DictReader(text.splitlines())]
