"""Connections without the token, and a view in a process of its own: neither others nor the run suffer from them."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from awaiting import wait_until
from live_view import TOKEN, Served, serving
from pgstrata_fake.campaigns import Shape, write_campaign

for name in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(name, reason=f"{name} is not installed: pip install 'pgstrata[watch]'")

BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_campaign(tmp_path_factory.mktemp("watch") / "c", Shape(stacks=("ext4",), blocks=2, duration_s=5))


@contextmanager
def idle_connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(count)]


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Both ends of the connections are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("the hard limit of open files is below 4,096")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("descriptors")
def test_idle_connections_keep_nobody_with_the_token_out(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(directory) as served, idle_connections(served.port, 1500) as idle:
        assert served.get("/metrics")[0] == 200
        assert idle[0].recv(1) == b"", "the first gave way to later ones"
        assert served.get("/metrics")[0] == 200
    assert capfd.readouterr().err == ""


def test_a_connection_that_shows_no_token_has_a_deadline(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgstrata.watch.server.DEADLINE_S", 0.05)
    with serving(directory) as served, socket.create_connection(("127.0.0.1", served.port), timeout=60) as one:
        assert one.recv(1) == b""
        assert served.get("/metrics")[0] == 200


def test_accept_errors_are_printed_once(capfd: pytest.CaptureFixture[str]) -> None:
    import asyncio

    from pgstrata.watch.server import Crowd

    crowd, loop = Crowd(), asyncio.new_event_loop()
    for _ in range(3):
        crowd.report(loop, {"message": "socket.accept() out of system resource", "exception": OSError(24, "Too many")})
    loop.close()
    assert capfd.readouterr().err.count("\n") == 1


def test_a_token_in_other_letters_beside_a_valid_one(directory: Path) -> None:
    with serving(directory) as served:
        status, _, told = served.get("/?token=%E2%82%AC", BEARER)
    assert status == 303
    assert "pgstrata_watch" not in told


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def fill_memory(pid: int) -> None:
    """Allocations of the view fail from now on."""
    resource.prlimit(pid, resource.RLIMIT_AS, (1 << 20, 1 << 20))


@pytest.mark.parametrize("harm", [kill, stop, fill_memory])
def test_the_run_goes_on_without_its_view(directory: Path, harm: Callable[[int], None]) -> None:
    from pgstrata.watch.server import served_beside

    bound = socket.create_server(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    with served_beside(directory, TOKEN, bound) as pid:
        assert Served(port).get("/metrics")[0] == 200
        harm(pid)
    assert not Path(f"/proc/{pid}").exists()


_RUN = """
import socket, sys, time
from pathlib import Path
from pgstrata.watch.server import served_beside
if __name__ == "__main__":
    bound = socket.create_server(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    with served_beside(Path(sys.argv[1]), sys.argv[2], bound) as pid:
        print(pid, port, flush=True)
        time.sleep(600)
"""


@pytest.mark.parametrize("stopped", [False, True])
def test_the_view_dies_with_a_run_that_is_killed(directory: Path, tmp_path: Path, stopped: bool) -> None:
    script = tmp_path / "run.py"
    script.write_text(_RUN)
    with subprocess.Popen([sys.executable, script, directory, TOKEN], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pid, port = (int(word) for word in run.stdout.readline().split())
        assert Served(port).get("/metrics")[0] == 200
        if stopped:
            stop(pid)
        run.kill()
    wait_until(lambda: not _alive(pid), "the view to end")


def _alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
