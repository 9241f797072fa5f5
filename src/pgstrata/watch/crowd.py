"""Bounds the connections of the live view before anything is read from them.

A connection is unauthenticated until one of its requests has the token. Such connections have few slots: a new one
replaces the oldest, and each has a deadline. So idle connections take neither descriptors nor slots from authenticated
ones.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_STRANGERS = 128
MOST_CONNECTIONS = 700
DEADLINE_S = 10.0
"""Seconds within which a request with the token must arrive."""


class Crowd:
    """The connections of one server, by the address of the other end."""

    def __init__(self) -> None:
        self._strangers: dict[Any, tuple[asyncio.Transport, asyncio.TimerHandle]] = {}
        self._known: set[Any] = set()
        self._reported = False

    def come(self, transport: asyncio.Transport) -> bool:
        """Register a connection; return False if there is no slot for it."""
        if len(self._strangers) >= MOST_STRANGERS:
            self._cut(next(iter(self._strangers)))
        if len(self._strangers) + len(self._known) >= MOST_CONNECTIONS:
            return False
        peer = _peer(transport.get_extra_info("peername"))
        timer = asyncio.get_running_loop().call_later(DEADLINE_S, self._cut, peer)
        self._strangers[peer] = transport, timer
        return True

    def prove(self, client: Any) -> None:
        """Mark the connection of that client as authenticated."""
        stranger = self._strangers.pop(_peer(client), None)
        if stranger is not None:
            stranger[1].cancel()
            self._known.add(_peer(client))

    def leave(self, transport: asyncio.Transport) -> None:
        """Unregister a connection that ended."""
        peer = _peer(transport.get_extra_info("peername"))
        stranger = self._strangers.get(peer)
        if stranger is None:
            self._known.discard(peer)
        elif stranger[0] is transport:
            del self._strangers[peer]
            stranger[1].cancel()

    def report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle errors of the loop: accept repeats its error for each waiting connection, and it is printed once."""
        if not str(context.get("message", "")).startswith("socket.accept()"):
            loop.default_exception_handler(context)
        elif not self._reported:
            self._reported = True
            print(f"the live view cannot accept connections: {context.get('exception')}", file=sys.stderr, flush=True)

    def _cut(self, peer: Any) -> None:
        stranger = self._strangers.pop(peer, None)
        if stranger is not None:
            stranger[1].cancel()
            stranger[0].abort()

    def protocol(self, **arguments: Any) -> _Protocol:
        """Create the protocol for uvicorn, once for each connection."""
        return _Protocol(self, **arguments)


class _Protocol(H11Protocol):  # type: ignore[misc]
    def __init__(self, crowd: Crowd, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._crowd = crowd

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if not self._crowd.come(transport):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.leave(self.transport)
        super().connection_lost(exc)


def _peer(address: Any) -> Any:
    return tuple(address[:2]) if address else None
