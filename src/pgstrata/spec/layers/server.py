"""A running server that is only measured: nothing is built, nothing of it is configured or checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

from pydantic import Field, field_validator

from pgstrata.errors import UsageError
from pgstrata.spec.durability_class import UNKNOWN, BackingFs, Promises
from pgstrata.spec.layers.kind import Filesystem
from pgstrata.spec.notation.term import Call
from pgstrata.spec.notation.tokens import quote as quote_word
from pgstrata.spec.notation.tokens import unquote

PARAMETERS = frozenset({"user", "service", "sslmode", "sslrootcert", "channel_binding", "connect_timeout", "options"})
"""Parameters of the address that are passed on; libpq finds passwords in its own files."""
NOT_ATTESTED = "not attested"
_PASSWORDS = "write it to the file that PGPASSFILE names, or to ~/.pgpass (chmod 600)"


class RunningServer(Filesystem):
    """A server that is there, measured from the host of the campaign in a database of its own."""

    kind: Literal["server"] = "server"

    attested: ClassVar[bool] = False
    not_options: ClassVar[frozenset[str]] = frozenset({"uri"})

    uri: str = Field(description="postgresql://[user@]host[:port]/database of a role with CREATEDB; no password")

    @field_validator("uri")
    @classmethod
    def _address(cls, text: str) -> str:
        found = _split(text)
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
        found = _split(self.uri)
        return found.netloc.rpartition("@")[2] or f"service={dict(parse_qsl(found.query))['service']}"

    def database_uri(self, database: str) -> str:
        """Return the address of another database of the server."""
        found = _split(self.uri)
        return f"postgresql://{found.netloc}/{quote(database)}{'?' if found.query else ''}{found.query}"

    @classmethod
    def takes_device(cls, asked: Mapping[str, Any]) -> bool:
        return False

    @property
    def capabilities(self) -> tuple[str, ...]:
        return ()

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        yield UNKNOWN, f"{NOT_ATTESTED}: a running server, which is only measured"

    def tears_pages(self, ground: BackingFs | None) -> bool:
        """Nothing is known of it, which `promises` says."""
        return False

    @classmethod
    def parse_call(cls, call: Call) -> dict[str, Any]:
        if not call.rest.startswith(":") or call.arguments is not None:
            raise UsageError(f"{call.text!r} names no server", hint='server:"postgresql://user@host/database"')
        return {"uri": unquote(call.rest[1:].strip())}

    def render(self, count: str = "") -> str:
        return f"{self.kind}:{quote_word(self.uri)}"


def _split(text: str) -> SplitResult:
    """Parse an address; ValueError without the text, which may hold a password."""
    try:
        found = urlsplit(text)
        _ = found.port
    except ValueError:
        raise ValueError("the address of a server is not valid: postgresql://user@host:port/database") from None
    return found
