"""`pgstrata watch`: a campaign in the browser while it runs."""

from __future__ import annotations

import errno
import os
import re
import secrets
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgstrata.cli.output import JsonFlag, argument, option, print_json, print_notice, print_text
from pgstrata.errors import PreflightError, UsageError, extra

if TYPE_CHECKING:
    from pgstrata.watch.server import View

LOOPBACK = "127.0.0.1"
LEAST_TOKEN = 16
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
"""Not where a link leads to."""
_TOKEN = re.compile(r"[A-Za-z0-9_.~-]*")


@dataclass(frozen=True)
class _Listening:
    """A socket that is bound, and where a browser finds it."""

    socket: socket.socket
    port: int
    token: str

    @property
    def address(self) -> str:
        host = self.socket.getsockname()[0]
        shown = LOOPBACK if host == "0.0.0.0" else f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}/?token={self.token}"


def watch(
    directory: Annotated[Path, argument("DIR", "Campaign directory, also one that has not started yet.")],
    port: Annotated[int, option("--port", "Port; 0 picks a free one.", min=0, max=65535)] = 0,
    bind: Annotated[str, option("--bind", "Address to listen on.", metavar="ADDRESS")] = LOOPBACK,
    token_file: Annotated[
        Path | None,
        option("--token-file", "File with the access token, for Prometheus; created if missing.", metavar="FILE"),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Serve a campaign while it runs: page, /events and /metrics, for those who have the printed address."""
    if directory.is_file():
        raise UsageError(f"{directory} is a file", hint=f"a bundle does not change: pgstrata report {directory}")
    _require_extra()
    from pgstrata.watch.server import make_server, serve

    token = _token(token_file)
    with _listen(bind, port) as bound:
        listening = _Listening(bound, bound.getsockname()[1], token)
        server = make_server(_view(directory), token, listening.port)
        if json:
            print_json({"address": listening.address, "port": listening.port, "token": token})
        else:
            print_text(listening.address)
            print_notice(f"ends with Ctrl-C; from elsewhere: ssh -L {listening.port}:{LOOPBACK}:{listening.port} HOST")
        serve(server, bound)


@contextmanager
def watching(directory: Path) -> Iterator[None]:
    """The same beside a run, in a process of its own; prints the address and ends with the block."""
    _require_extra()
    from pgstrata.watch.server import served_beside

    token = secrets.token_urlsafe()
    bound = _listen(LOOPBACK, 0)
    address = _Listening(bound, bound.getsockname()[1], token).address
    with served_beside(directory, token, bound):
        print_notice(f"watch: {address}")
        yield


def _view(directory: Path) -> View:
    from pgstrata.watch.follow import Follower
    from pgstrata.watch.server import View

    follower = Follower(directory)
    return View(follower, follower.look())


def _require_extra() -> None:
    with extra("watch", "the live view"):
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401


def _listen(address: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=512)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PreflightError(
                f"port {port} of {address} is in use", hint="choose another with --port N; --port 0 takes a free one"
            ) from None
        raise PreflightError(
            f"cannot listen on {address}, port {port}: {error.strerror or error}",
            hint="leave --bind out to listen on this machine alone; ports below 1024 require root",
        ) from None


def _token(path: Path | None) -> str:
    if path is None:
        return secrets.token_urlsafe()
    try:
        with suppress(FileExistsError), os.fdopen(os.open(path, _NEW, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe() + "\n")
        mode = stat.S_IMODE(path.stat().st_mode)
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the token cannot be read from {path}: {error}", hint="name another --token-file") from None
    if mode & 0o007:
        raise UsageError(
            f"everybody may read or change the token in {path}",
            hint=f"name a file that is not there yet; or, where {path} holds nothing but the token: chmod o= {path}",
        )
    if not _TOKEN.fullmatch(token):
        raise UsageError(
            f"the token in {path} contains characters that are not allowed in a URL",
            hint="letters, digits, - and _; or name a file that is not there yet",
        )
    if len(token) < LEAST_TOKEN:
        raise UsageError(
            f"{path} holds a token of less than {LEAST_TOKEN} characters", hint="name a file that is not there yet"
        )
    return token


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata watch out/demo --port 8080")(watch)
