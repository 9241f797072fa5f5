"""Serves the live view: one reader of the directory for all viewers; each gets the newest message, never a backlog.

A message is made once and shared by all viewers. A viewer that does not read misses messages, and costs no more memory
than a full socket. The number of simultaneous viewers is limited.
"""

from __future__ import annotations

import asyncio
import ctypes
import hmac
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from http.cookies import CookieError, SimpleCookie
from multiprocessing import get_context, parent_process
from pathlib import Path
from socket import socket
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.findings import Findings
from pgstrata.errors import PgstrataError
from pgstrata.record.reader import CampaignData
from pgstrata.report.html import html_text, live_page, live_verdict
from pgstrata.report.pictures.drawing import shapes_of
from pgstrata.watch.follow import Follower, Progress
from pgstrata.watch.metrics import CONTENT_TYPE, render_metrics

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


# ---------------------------------------------------------------- serving

LOOK_EVERY_S = 1.0
JUDGE_SHARE = 0.02
"""Maximum share of time for judging: a verdict that took a second is recomputed a minute later at the earliest."""
STILL_HERE_S = 15.0
MOST_VIEWERS = 500
NICE = 19
Scope = dict[str, Any]
Send = Callable[[Any], Awaitable[None]]

_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class _Message:
    """A message for every viewer; `number` grows with each new one."""

    number: int = 0
    content: bytes = b""


@dataclass
class View:
    """State of the campaign, and the newest messages."""

    follower: Follower
    progress: Progress
    findings: Findings | None = None
    _data: CampaignData | None = None
    _messages: dict[str, _Message] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _ended: bool = False
    viewers: int = 0
    crowd: Crowd = field(default_factory=Crowd)

    def publish(self, event: str, value: Any) -> None:
        """Replace the message of that event; wake viewers if it has changed."""
        content = f"event: {event}\ndata: {json.dumps(value, default=vars)}\n\n".encode()
        before = self._messages.get(event, _Message())
        if content == before.content:
            return
        self._messages[event] = _Message(before.number + 1, content)
        self._news.set()
        self._news = asyncio.Event()

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield to one viewer the newest message of each event, as fast as it reads."""
        seen: dict[str, int] = {}
        self.viewers += 1
        try:
            while not self._ended:
                news = self._news
                for event, message in tuple(self._messages.items()):
                    if seen.get(event) != message.number:
                        seen[event] = message.number
                        yield message.content
                try:
                    await asyncio.wait_for(news.wait(), STILL_HERE_S)
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self.viewers -= 1

    def end(self) -> None:
        """End the streams of all viewers."""
        self._ended = True
        self._news.set()

    async def follow(self) -> None:
        """Read repeatedly until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            verdicts = None
            while True:
                self.progress = await asyncio.to_thread(self.follower.look)
                self.publish("progress", {**asdict(self.progress), "shapes": shapes_of(len(self.progress.stacks))})
                verdicts = verdicts or tasks.create_task(self._follow_verdict())
                await asyncio.sleep(LOOK_EVERY_S)

    async def _follow_verdict(self) -> None:
        """Judge if trials have finished since; then rest, so that the campaign gets the machine."""
        loop, judged = asyncio.get_running_loop(), 0
        while True:
            began_s, finished = loop.time(), self.follower.finished
            if finished != judged:
                with suppress(PgstrataError, OSError):  # it vanished, or is being copied: the progress reports that
                    self._data, self.findings, verdict = await asyncio.to_thread(self._judge)
                    self.publish("verdict", verdict)
                    judged = finished
            await asyncio.sleep(max(LOOK_EVERY_S, (loop.time() - began_s) * (1 / JUDGE_SHARE - 1)))

    def _judge(self) -> tuple[CampaignData, Findings, dict[str, Any]]:
        data = self.follower.data()
        findings = judge(data)
        return data, findings, live_verdict(data, findings)

    def report(self) -> str | None:
        """Return the whole page as of the last verdict; None before the first."""
        data, findings = self._data, self.findings
        return None if data is None or findings is None else html_text(data, findings)


def make_app(view: View, token: str, port: int) -> Any:
    """Return the application, behind its guard."""

    async def page(request: Request) -> Response:
        given = query_token(request.url.query)
        if given:  # remove it from the address, so that it is in no history and no screenshot
            response: Response = RedirectResponse("./", status_code=303)
            if is_token(given, token):
                response.set_cookie(cookie_name(port), given, httponly=True, samesite="strict")
            return response
        live = live_page()
        return Response(live.text, media_type="text/html", headers={"Content-Security-Policy": live.policy})

    async def events(request: Request) -> Response:
        if view.viewers >= MOST_VIEWERS:
            return PlainTextResponse(f"{MOST_VIEWERS} viewers are served at once\n", status_code=503)
        return StreamingResponse(view.messages(), media_type="text/event-stream")

    async def metrics(request: Request) -> Response:
        return Response(render_metrics(view.progress, view.findings), headers={"Content-Type": CONTENT_TYPE})

    async def report(request: Request) -> Response:
        text = await asyncio.to_thread(view.report)
        if text is None:
            return PlainTextResponse("nothing is judged yet\n", status_code=404)
        return Response(text, media_type="text/html")

    @asynccontextmanager
    async def following(app: Starlette) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_exception_handler(view.crowd.report)
        task = asyncio.create_task(view.follow())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    routes = [Route("/", page), Route("/events", events), Route("/metrics", metrics), Route("/report", report)]
    return _guarded(Starlette(routes=routes, lifespan=following), view.crowd, token, port)


def _guarded(app: Starlette, crowd: Crowd, token: str, port: int) -> Any:
    async def guard(scope: Scope, receive: Any, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = _refusal(scope, headers, token, port)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        crowd.prove(scope.get("client"))

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                added = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        await app(scope, receive, with_headers)

    return guard


def _refusal(scope: Scope, headers: Headers, token: str, port: int) -> Response | None:
    address = (scope.get("server") or ("", 0))[0]
    if not is_own_host(headers.get("host", ""), address):
        return PlainTextResponse("this name is not the one of this server\n", status_code=421)
    if not is_own_origin(headers):
        return PlainTextResponse("pages of other sites are told nothing\n", status_code=403)
    query = scope.get("query_string", b"").decode("latin-1")
    if not is_token(given_token(headers, query, port), token) and not is_token(query_token(query), token):
        return PlainTextResponse("the address that pgstrata watch printed holds the token\n", status_code=401)
    return None


class _Server(uvicorn.Server):  # type: ignore[misc]
    """Server that ends streams before it stops, because streams do not end by themselves: uvicorn would cancel them
    with a traceback each. Connections of viewers that do not read are closed."""

    def __init__(self, config: uvicorn.Config, view: View) -> None:
        super().__init__(config)
        self._view = view

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        self._view.end()
        for connection in list(self.server_state.connections):
            if connection.transport.get_write_buffer_size():
                connection.transport.abort()
        await super().shutdown(sockets)


def make_server(view: View, token: str, port: int) -> uvicorn.Server:
    """Create the server without a log of requests: their addresses may contain the token."""
    config = uvicorn.Config(
        make_app(view, token, port),
        http=view.crowd.protocol,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=1,
        lifespan="on",
        h11_max_incomplete_event_size=16 << 10,
    )
    return _Server(config, view)


def serve(server: uvicorn.Server, listening: socket) -> None:
    """Serve until told to exit, at the lowest priority for this thread and those that it starts."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
    with suppress(OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server.run(sockets=[listening])


# ---------------------------------------------------------------- access

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
MOST_HEADER = 4096


def cookie_name(port: int) -> str:
    """Return the cookie's name, with the port: browsers keep cookies by host, and one machine may have two views."""
    return f"pgstrata_watch_{port}"


def is_own_host(host: str, address: str) -> bool:
    """Return True if a Host header names this machine; the port is not checked, because a tunnel may change it."""
    name, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "")
    if port and not port.isdigit():
        return False
    bracketed = f"[{address}]" if ":" in address else address
    return name.lower() in LOOPBACK or name == bracketed


def is_own_origin(headers: Mapping[str, str]) -> bool:
    """Return True if a request comes from a page of this server, or from no page at all."""
    origin = headers.get("origin")
    if origin is not None and origin not in (f"http://{headers.get('host', '')}",):
        return False
    site = headers.get("sec-fetch-site", "none")
    # A link on another site may open the page itself; that site cannot read any of it.
    opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return site in ("none", "same-origin") or opened


def given_token(headers: Mapping[str, str], query: str, port: int) -> str:
    """Return the token in `Authorization: Bearer`, the cookie or the query; empty if there is none."""
    bearer = headers.get("authorization", "")
    if bearer.lower().startswith("bearer "):
        return bearer[len("bearer ") :].strip()
    try:
        cookie = SimpleCookie(headers.get("cookie", "")[:MOST_HEADER]).get(cookie_name(port))
    except CookieError:
        cookie = None
    return cookie.value if cookie is not None else query_token(query)


def query_token(query: str) -> str:
    return (parse_qs(query[:MOST_HEADER]).get("token") or [""])[0]


def is_token(given: str, token: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(errors="surrogatepass"), token.encode())


# ---------------------------------------------------------------- a process of its own

PATIENCE_S = 3.0
"""Seconds after which a stopped or busy view is killed."""
_SET_PARENT_DEATH_SIGNAL = 1


@contextmanager
def served_beside(directory: Path, token: str, bound: socket) -> Iterator[int]:
    """Yield the process's number; take over the socket, so that no connection to a dead view is possible."""
    context = get_context("spawn")
    with bound:
        process = context.Process(target=_serve, args=(directory, token, bound), name="watch", daemon=True)
        process.start()
    try:
        yield process.pid or 0
    finally:
        process.terminate()
        process.join(PATIENCE_S)
        process.kill()
        process.join()


def _serve(directory: Path, token: str, bound: socket) -> None:
    _die_with_parent()
    follower = Follower(directory)
    serve(make_server(View(follower, follower.look()), token, bound.getsockname()[1]), bound)


def _die_with_parent() -> None:
    """End this process with its parent, even if the run is killed. Ctrl-C is left to the run. The OOM killer prefers
    this process."""
    with suppress(OSError):
        os.setsid()
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    parent = parent_process()
    if parent is None or os.getppid() != parent.pid:
        os._exit(1)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
