"""Who is told what: token, names, origins, methods; viewers that read and one that never does."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from awaiting import wait_until
from live_view import TOKEN, RunningTrial, Served, serving
from pgstrata.cli.main import app
from pgstrata.errors import PreflightError, UsageError
from pgstrata.watch.follow import Progress
from pgstrata.watch.server import is_own_host
from pgstrata_fake.campaigns import Shape, write_campaign

for name in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(name, reason=f"{name} is not installed: pip install 'pgstrata[watch]'")

BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_campaign(tmp_path_factory.mktemp("watch") / "c", Shape(stacks=("ext4", "xfs"), blocks=3, duration_s=5))


@pytest.fixture(scope="module")
def served(directory: Path) -> Iterator[Served]:
    with serving(directory) as one:
        yield one


def test_the_token_opens_the_page_and_leaves_the_address(served: Served) -> None:
    status, _, told = served.get(f"/?token={TOKEN}", {"X": ""})
    assert status == 303
    assert told.startswith("./ ")
    assert f"pgstrata_watch_{served.port}={TOKEN}; HttpOnly; Path=/; SameSite=strict" in told
    status, body, _ = served.get("/", {"Cookie": f"pgstrata_watch_{served.port}={TOKEN}"})
    assert status == 200
    assert TOKEN not in body


@pytest.mark.parametrize("path", ["/", "/events", "/metrics", "/report", "/nowhere"])
@pytest.mark.parametrize(
    "headers",
    [
        {"X": "no token"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Cookie": "pgstrata_watch_1=" + TOKEN},
        {"Cookie": "\x7f=;;;"},
    ],
)
def test_without_the_token_nothing_is_told(served: Served, path: str, headers: dict[str, str]) -> None:
    status, body, _ = served.get(path, headers)
    assert status == 401
    assert "made-up" not in body


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:80"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "localhost:nonsense"}, 421),
        ({"Host": "localhost:9999"}, 200),
        ({"Host": "[::1]:80"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
    ],
)
def test_other_names_and_other_sites_are_refused(served: Served, headers: dict[str, str], status: int) -> None:
    assert served.get("/metrics", {**BEARER, **headers})[0] == status


def test_the_address_that_was_bound_is_a_name_of_its_own() -> None:
    assert is_own_host("192.0.2.7:80", "192.0.2.7")
    assert is_own_host("[2001:db8::7]:80", "2001:db8::7")
    assert not is_own_host("192.0.2.8", "192.0.2.7")
    assert not is_own_host("", "192.0.2.7")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_can_only_be_read(served: Served, method: str) -> None:
    assert served.get("/", method=method)[0] == 405


def test_events_tell_progress_and_verdict(served: Served) -> None:
    connection = socket.create_connection(("127.0.0.1", served.port), timeout=60)
    with connection, connection.makefile("rwb") as file:
        file.write(f"GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        file.flush()
        told: dict[str, dict[str, object]] = {}
        event = ""
        while set(told) < {"progress", "verdict"}:
            line = file.readline().decode().strip()
            event = line.removeprefix("event: ") if line.startswith("event: ") else event
            if line.startswith("data: "):
                told[event] = json.loads(line.removeprefix("data: "))
    assert told["progress"]["name"] == "made-up figures"
    assert told["verdict"]["trials"] == 6


def test_the_report_is_the_one_of_now(served: Served) -> None:
    wait_until(lambda: served.get("/report")[0] == 200, "a verdict")
    assert "made-up figures" in served.get("/report")[1]


def test_metrics_are_those_of_the_record(served: Served) -> None:
    wait_until(lambda: "pgstrata_stack_estimate" in served.get("/metrics")[1], "a verdict")
    lines = served.get("/metrics")[1].splitlines()
    assert 'pgstrata_trials{stack="ext4",status="failed"} 1.0' in lines
    assert "pgstrata_machine_time_seconds_total 114.0" in lines
    assert lines[-1] == "# EOF"


def test_a_viewer_that_never_reads_gets_the_newest_and_no_backlog(directory: Path) -> None:
    from pgstrata.watch.follow import Follower
    from pgstrata.watch.server import View

    async def view_it() -> list[bytes]:
        follower = Follower(directory)
        view = View(follower, follower.look())
        view.publish("progress", 0)
        viewer = view.messages()
        first = await anext(viewer)
        for number in range(1, 1000):
            view.publish("progress", number)
        kept = len(view._messages)
        second = await anext(viewer)
        await viewer.aclose()  # type: ignore[attr-defined]
        assert (kept, view.viewers) == (1, 0)
        return [first, second]

    assert asyncio.run(view_it()) == [b"event: progress\ndata: 0\n\n", b"event: progress\ndata: 999\n\n"]


def test_viewers_are_let_go_when_it_ends_and_nothing_is_said_of_it(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(directory) as one:
        connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=60)
        connection.request("GET", "/events", headers=BEARER)
        answer = connection.getresponse()
        assert answer.readline().startswith(b"event: ")
    assert answer.read().endswith(b"\n\n"), "to its end"
    connection.close()
    assert capfd.readouterr().err == ""


def test_a_viewer_that_never_reads_is_let_go_too_and_nothing_is_said_of_it(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from pgstrata.watch.follow import Follower
    from pgstrata.watch.server import View, make_server

    async def serve_it(bound: socket.socket) -> None:
        follower = Follower(directory)
        view = View(follower, follower.look())
        server = make_server(view, TOKEN, bound.getsockname()[1])
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        while not server.started:
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection("127.0.0.1", bound.getsockname()[1])
        request = f"GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        writer.write(request.encode())
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        (connection,) = server.server_state.connections
        number = 0
        while not connection.flow.write_paused:
            number += 1
            view.publish("number", [number, "x" * 1_000_000])
            await asyncio.sleep(0.01)
        server.should_exit = True
        await serving
        writer.transport.abort()

    with socket.create_server(("127.0.0.1", 0)) as bound:
        asyncio.run(asyncio.wait_for(serve_it(bound), 100))
    assert capfd.readouterr().err == ""


def test_everything_that_serves_has_the_lowest_priority(directory: Path) -> None:
    """Reading and judging run in threads of their own, which have that of the one that began them."""
    from pgstrata.watch.follow import Follower
    from pgstrata.watch.server import NICE, View, make_server, serve

    class Looking(Follower):
        def look(self) -> Progress:
            priorities.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            return super().look()

    priorities: list[int] = []
    follower = Looking(directory)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = make_server(View(follower, follower.look()), TOKEN, bound.getsockname()[1])
        thread = threading.Thread(target=serve, args=(server, bound))
        thread.start()
        try:
            wait_until(lambda: len(priorities) > 1, "a look of the server's")
            served = os.getpriority(os.PRIO_PROCESS, thread.native_id or 0)
        finally:
            server.should_exit = True
            thread.join()
    assert (priorities[1], served) == (NICE, NICE)
    assert os.getpriority(os.PRIO_PROCESS, 0) == priorities[0], "the rest of the process keeps its own"


def test_a_browser_that_never_reads_takes_nothing_from_others_and_no_memory(directory: Path) -> None:
    """Two real connections, one of which is not read: the other is sent the newest, little is kept for the first."""
    from pgstrata.watch.follow import Follower
    from pgstrata.watch.server import View, make_server

    filler, last = "x" * 100_000, 100

    async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        request = f"GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        writer.write(request.encode())
        await reader.readuntil(b"\r\n\r\n")
        return reader, writer

    async def serve_both(bound: socket.socket) -> int:
        follower = Follower(directory)
        view = View(follower, follower.look())
        server = make_server(view, TOKEN, bound.getsockname()[1])
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        while not server.started:
            await asyncio.sleep(0.01)
        _, stuck = await connect(bound.getsockname()[1])
        stuck.transport.pause_reading()  # type: ignore[attr-defined]
        reader, writer = await connect(bound.getsockname()[1])
        for number in range(last + 1):
            view.publish("number", [number, filler])
            await asyncio.sleep(0)
        while f"[{last}, ".encode() not in await reader.readuntil(b"\n"):
            pass
        kept = max(one.transport.get_write_buffer_size() for one in server.server_state.connections)
        server.should_exit = True
        for one in (stuck, writer):
            one.transport.abort()
        await serving
        return int(kept)

    with socket.create_server(("127.0.0.1", 0)) as bound:
        assert asyncio.run(asyncio.wait_for(serve_both(bound), 100)) < 10 * len(filler)


def test_the_same_again_wakes_nobody(directory: Path) -> None:
    from pgstrata.watch.follow import Follower
    from pgstrata.watch.server import View

    async def view_it() -> bool:
        follower = Follower(directory)
        view = View(follower, follower.look())
        view.publish("progress", 1)
        news = view._news
        view.publish("progress", 1)
        return news.is_set()

    assert not asyncio.run(view_it())


def test_a_campaign_that_vanishes_and_comes_back_is_told(directory: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(directory, tmp_path / "c")
    with serving(copy) as served:
        wait_until(lambda: 'campaign="made-up figures"' in served.get("/metrics")[1], "the campaign")
        shutil.move(copy, tmp_path / "away")
        wait_until(lambda: 'campaign="c"' in served.get("/metrics")[1], "that it is gone")
        shutil.move(tmp_path / "away", copy)
        wait_until(lambda: 'campaign="made-up figures"' in served.get("/metrics")[1], "the campaign again")
        assert 'campaign="c"' not in served.get("/metrics")[1]


def test_the_running_second_is_a_metric(directory: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(directory, tmp_path / "c")
    (tmp_path / "aside").mkdir()
    running = RunningTrial.of(copy, tmp_path / "aside")
    running.measure()
    running.second(1, 1234.5)
    with serving(copy) as served:
        assert 'pgstrata_running_tps{host="local",stack=' in served.get("/metrics")[1]


def test_a_port_in_use_is_told(directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = CliRunner().invoke(app, ["watch", str(directory), "--port", str(taken.getsockname()[1])])
    assert isinstance(done.exception, PreflightError)
    assert "is in use" in done.exception.message
    assert "--port 0" in done.exception.hint


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "prometheus_client"])
def test_without_the_extra_it_says_how_to_install_it(
    directory: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    done = CliRunner().invoke(app, ["watch", str(directory)])
    assert isinstance(done.exception, PreflightError)
    assert package in done.exception.message
    assert done.exception.hint == f"{sys.executable} -m pip install 'pgstrata[watch]'"


def test_a_token_file_is_made_for_its_owner_and_read_again(directory: Path, tmp_path: Path) -> None:
    from pgstrata.cli.verbs.watch import _token

    path = tmp_path / "token"
    token = _token(path)
    assert (path.stat().st_mode & 0o777, _token(path)) == (0o600, token)
    path.write_text("short\n")
    with pytest.raises(UsageError, match="less than 16"):
        _token(path)


def test_a_token_file_is_refused_where_it_keeps_no_secret(tmp_path: Path) -> None:
    from pgstrata.cli.verbs.watch import _token

    path, elsewhere = tmp_path / "token", tmp_path / "elsewhere"
    path.symlink_to(elsewhere)
    with pytest.raises(UsageError, match="cannot be read"):
        _token(path)
    assert not elsewhere.exists()
    with pytest.raises(UsageError, match="cannot be read"):
        _token(tmp_path / "no folder" / "token")
    elsewhere.write_text(f"{TOKEN}\n")
    elsewhere.chmod(0o640)
    assert _token(path) == TOKEN
    elsewhere.chmod(0o644)
    with pytest.raises(UsageError, match="everybody may read or change") as error:
        _token(path)
    assert error.value.hint == (
        f"name a file that is not there yet; or, where {path} holds nothing but the token: chmod o= {path}"
    )
    elsewhere.write_text("sixteen characters & more\n")
    elsewhere.chmod(0o600)
    with pytest.raises(UsageError, match="not allowed in a URL"):
        _token(path)
