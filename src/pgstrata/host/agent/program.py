"""The agent as a program: at the far end of a connection, or beside a background program."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
from typing import Any, BinaryIO

from pgstrata.host.agent.operations import OPERATIONS, Agent
from pgstrata.host.agent.processes import UMASK, environment, identity, memory_file, start_time
from pgstrata.host.agent.wire import call, decode, encode


def _serve(state_directory: str | None = None) -> None:
    """Answers requests from standard input until it ends; each in a thread, so that a long one blocks no other."""
    source = sys.stdin.buffer  # not a new file: this one may have read ahead of the bootstrap
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    agent, lock = Agent(state_directory), threading.Lock()

    def end(*_: object) -> None:
        agent.close()
        os._exit(0)

    def answer(request: dict[str, Any]) -> None:
        operation = request["op"]
        if operation not in OPERATIONS:
            reply = {"error": {"kind": "protocol", "message": f"no operation {operation}"}}
        else:
            reply = call(lambda: getattr(agent, operation)(**request["args"]))
        with lock, contextlib.suppress(BrokenPipeError):
            sink.write(encode({"id": request["id"], **reply}))
            sink.flush()

    signal.signal(signal.SIGTERM, end)
    for line in source:
        threading.Thread(target=answer, args=(decode(line),), daemon=True).start()
    end()


def _keep() -> None:
    """Starts one program, tells its pid, and stays until it ends to note the exit code."""
    request = decode(sys.stdin.buffer.readline())
    if os.fork():
        os._exit(0)
    # A shell ignores it for what it starts in the background, and ignored signals are inherited; we stop with it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    process: subprocess.Popen[bytes] | None = None
    # held until the program has ended and its exit code is written: see remove_ended
    fcntl.flock(os.open(request["exit_file"], os.O_RDONLY), fcntl.LOCK_EX)

    def begin() -> dict[str, Any]:
        nonlocal process
        process = _spawn(request)
        keeper = os.getpid()
        handle = {"pid": process.pid, "started": start_time(process.pid) or 0, "exit_file": request["exit_file"]}
        return {**handle, "keeper": keeper, "keeper_started": start_time(keeper)}

    sys.stdout.buffer.write(encode(call(begin)))
    sys.stdout.flush()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # after the program, which would inherit it
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.chdir("/")
    if process is not None:
        code = process.wait()
        part = request["exit_file"] + ".part"
        with open(part, "w", encoding="ascii") as file:
            used = os.times()  # whoever reaps this process is none of ours: its time would be counted as that of others
            file.write(f"{code} {sum(used[:4])}")
        os.rename(part, request["exit_file"])


def _open_output(path: str) -> BinaryIO:
    """A file made here and now; never one that lies there already, which may be another's or lead elsewhere."""
    kind = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_APPEND if path != os.devnull else 0
    return os.fdopen(os.open(path, os.O_WRONLY | kind, 0o600), "wb", buffering=0)


def _spawn(request: dict[str, Any]) -> subprocess.Popen[bytes]:
    stdin = memory_file(request["stdin"])
    same = request["stderr"] == request["stdout"]
    with _open_output(request["stdout"]) as out, out if same else _open_output(request["stderr"]) as err:
        return subprocess.Popen(
            request["argv"],
            stdin=stdin,
            stdout=out,
            stderr=err,
            env=environment(request["env"]),
            cwd=request["cwd"],
            start_new_session=True,
            umask=UMASK,
            **identity(request["user"]),
        )


def main(arguments: list[str]) -> None:
    """Run as a program: `serve [STATE-DIRECTORY]` or `keep`."""
    {"serve": _serve, "keep": _keep}[arguments[0]](*arguments[1:])
