"""Places that are not built: an existing directory, a running server that is only measured, an imported stack."""

from __future__ import annotations

from typing import Any, ClassVar, Literal
from urllib.parse import SplitResult, parse_qsl, urlsplit
from urllib.parse import quote as percent_quote

from pydantic import Field, field_validator

from pgstrata.errors import UsageError
from pgstrata.spec.durability_class import SURVIVES, UNKNOWN, BackingFs, Promises, ground_promises
from pgstrata.spec.layers.kind import Filesystem, Look
from pgstrata.spec.notation.options import Call
from pgstrata.spec.notation.tokens import quote, unquote


class NotBuilt(Filesystem):
    """A place that needs nothing of the host to be built."""

    sits_on_device: ClassVar[bool] = False
    named: ClassVar[tuple[str, str, str]] = ("", "", "")
    """The field that stands behind the colon of short notation, in words, and an example."""

    @property
    def capabilities(self) -> tuple[str, ...]:
        return ()

    def tears_pages(self, ground: BackingFs | None) -> bool:
        """Nothing is known of it, which `promises` says."""
        return False

    @classmethod
    def parse_call(cls, call: Call) -> dict[str, Any]:
        field, what, example = cls.named
        if not call.rest.startswith(":") or call.arguments is not None:
            raise UsageError(f"{call.text!r} names no {what}", hint=example)
        return {field: unquote(call.rest[1:].strip())}

    def render(self, count: str = "") -> str:
        return f"{self.kind}:{quote(getattr(self, self.named[0]))}"


class Existing(NotBuilt):
    """A directory that is already there; works without root, is never formatted."""

    kind: Literal["dir"] = "dir"

    not_options: ClassVar[frozenset[str]] = frozenset({"path"})
    named: ClassVar[tuple[str, str, str]] = ("path", "directory", "dir:/path/to/directory")

    path: str = Field(description="absolute path")

    @field_validator("path")
    @classmethod
    def _absolute(cls, path: str) -> str:
        if not path.startswith("/"):
            raise ValueError(f"{path!r} is not an absolute path (for example /mnt/{path})")
        if not path.isprintable():
            raise ValueError(f"{path!r} holds a line break or another control character")
        if ".." in path.split("/"):
            raise ValueError(f"{path!r} goes up by `..`: write where it leads to")
        return path

    @property
    def directories(self) -> tuple[str, ...]:
        return (self.path,)

    def lies_on(self, look: Look) -> str:
        return look(self.path, False)

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        yield from ground_promises(ground, where)

    def tears_pages(self, ground: BackingFs | None) -> bool:
        return ground is not None and ground.tears_pages


PARAMETERS = frozenset({"user", "service", "sslmode", "sslrootcert", "channel_binding", "connect_timeout", "options"})
"""Parameters of the address that are passed on; libpq finds passwords in its own files."""
NOT_ATTESTED = "not attested"
_PASSWORDS = "write it to the file that PGPASSFILE names, or to ~/.pgpass (chmod 600)"


class RunningServer(NotBuilt):
    """A server that is there, measured from the host of the campaign in a database of its own."""

    kind: Literal["server"] = "server"

    attested: ClassVar[bool] = False
    not_options: ClassVar[frozenset[str]] = frozenset({"uri"})
    named: ClassVar[tuple[str, str, str]] = ("uri", "server", 'server:"postgresql://user@host/database"')

    uri: str = Field(description="postgresql://[user@]host[:port]/database of a role with CREATEDB; no password")

    @field_validator("uri")
    @classmethod
    def _address(cls, text: str) -> str:
        found = _split_address(text)
        if found.scheme not in ("postgresql", "postgres") or not text.isprintable():
            raise ValueError("the address of a server begins postgresql://")
        parameters = dict(parse_qsl(found.query, keep_blank_values=True))
        if found.password is not None or "password" in parameters:
            raise ValueError(f"the address of a server holds a password, which would be recorded: {_PASSWORDS}")
        if unknown := sorted(parameters.keys() - PARAMETERS):
            raise ValueError(
                f"{unknown[0]} is no parameter of a server's address here: {', '.join(sorted(PARAMETERS))}"
            )
        if "," in found.netloc:
            raise ValueError("the address of a server names several hosts: name one, which all runs are on")
        if not found.hostname and "service" not in parameters:
            raise ValueError("the address of a server names neither a host nor a service")
        return text

    @property
    def place(self) -> str:
        """The server's name: `host[:port]` as written, or `service=NAME`."""
        found = _split_address(self.uri)
        return found.netloc.rpartition("@")[2] or f"service={dict(parse_qsl(found.query))['service']}"

    def database_uri(self, database: str) -> str:
        """Return the address of another database of the server."""
        found = _split_address(self.uri)
        return f"postgresql://{found.netloc}/{percent_quote(database)}{'?' if found.query else ''}{found.query}"

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        yield UNKNOWN, f"{NOT_ATTESTED}: a running server, which is only measured"


def _split_address(text: str) -> SplitResult:
    """Parse an address; ValueError without the text, which may hold a password."""
    try:
        found = urlsplit(text)
        _ = found.port
    except ValueError:
        raise ValueError("the address of a server is not valid: postgresql://user@host:port/database") from None
    return found


SAID = "imported: pgstrata found it so where the runs were made"


class Imported(NotBuilt):
    """A stack that somebody else measured: known by name alone, cannot be built."""

    kind: Literal["imported"] = "imported"
    durability: Literal["survives power loss", "loses recent commits", "unknown", "loses on power loss"] = "unknown"
    """Durability as whoever measured it knew it."""

    offered: ClassVar[bool] = False

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        if self.durability == UNKNOWN:
            yield UNKNOWN, "imported figures: the configuration is not known"
        elif self.durability != SURVIVES:
            yield self.durability, SAID

    def render(self, count: str = "") -> str:
        return self.kind
