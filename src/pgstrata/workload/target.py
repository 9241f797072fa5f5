"""The server as a load reaches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pgstrata.host.protocol import Command, marked


@dataclass(frozen=True)
class Target:
    """The server that a load runs against, and the client programs to use. All paths are on the host."""

    programs: str
    """Folder of pgbench and psql."""
    major: int
    """Major of pgbench and psql."""
    server: str
    """The directory of its socket, or its address."""
    port: int
    os_user: str | None
    """The OS user of the clients; None for the caller."""
    superuser: str = "postgres"
    database: str = "postgres"
    marker: str = ""
    enter: Callable[[Command], Command] | None = None
    """The same command on the node that the load runs on, where that is not the server's."""
    passfile: str = ""
    """With the superuser's password, where the server asks for one."""
    uri: str = ""
    """The address of a database of a running server, instead of server, port, superuser and database."""
    env: tuple[tuple[str, str], ...] = ()
    """Further environment of the clients: where libpq finds its files."""

    def client(self, program: str, *options: str, timeout_s: float, stdin: str = "") -> Command:
        """Return a command of pgbench or psql, connected to the database."""
        connection = (
            "--host", self.server,
            "--port", str(self.port),
            "--username", self.superuser,
        )  # fmt: skip
        argv = (f"{self.programs}/{program}", *(() if self.uri else connection), *options, self.uri or self.database)
        return self.command(argv, timeout_s=timeout_s, stdin=stdin)

    def psql(self, text: str, *options: str, timeout_s: float) -> Command:
        """Return psql that runs a text, ends at its first error and prints bare columns."""
        flags = ("--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--set=ON_ERROR_STOP=1", "--file=-")
        return self.client("psql", *flags, *options, timeout_s=timeout_s, stdin=text)

    def command(
        self,
        argv: tuple[str, ...],
        *,
        timeout_s: float,
        stdin: str = "",
        env: tuple[tuple[str, str], ...] = (),
    ) -> Command:
        """Return a command of the load's user, where the load runs; `PGPASSFILE` is set where there is a password."""
        password = (("PGPASSFILE", self.passfile),) if self.passfile else ()
        command = Command(
            argv,
            timeout_s=timeout_s,
            stdin=stdin,
            user=self.os_user,
            env=(*marked(self.marker), *password, *self.env, *env),
            cwd="/",
        )
        return self.enter(command) if self.enter is not None else command
