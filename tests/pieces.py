"""Pieces of work for tests of executors, by their names as any other."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from pgstrata.errors import UsageError
from pgstrata.fleet.calls import WorkerLost


def doubled(number: int) -> int:
    return 2 * number


def echoed(value: str | bytes | int) -> str | bytes | int:
    return value


def given_up() -> str:
    raise WorkerLost("stopped")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def killed_once(folder: str, number: int) -> int:
    """The first one to come ends its process; every run of a piece that reaches its end leaves a file."""
    first = Path(folder) / "first"
    try:
        first.touch(exist_ok=False)
    except FileExistsError:
        (Path(folder) / f"{number}.{os.urandom(8).hex()}").touch()
        return 2 * number
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("lives on")


def refused(text: str) -> str:
    raise UsageError(text, hint="ask for something else")


def process_id() -> str:
    return str(os.getpid())


def orders() -> str:
    """On a worker of a Dask cluster: orders for its scheduler, which whoever has the certificate may send. The answer,
    or `refused`, by the operation."""
    from distributed import get_worker

    worker = get_worker()
    return json.dumps(
        worker.loop.asyncio_loop
        and asyncio.run_coroutine_threadsafe(_orders(worker), worker.loop.asyncio_loop).result(60)
    )


async def _orders(worker: Any) -> dict[str, str]:
    from distributed.core import connect, send_recv
    from distributed.protocol.pickle import dumps

    told = {}
    run = {"function": dumps(os.getpid), "args": dumps(()), "kwargs": dumps({})}
    for message in (
        {"op": "run_function", **run},
        {"op": "register_scheduler_plugin", "plugin": dumps(os.getpid), "name": "x"},
        {"op": "broadcast", "msg": {"op": "run", **run}},
        {"op": "update-graph", "client": "x"},
    ):
        comm = await connect(worker.scheduler.address, **worker.connection_args)
        try:
            answer = await send_recv(comm, **message)
            told[str(message["op"])] = str(answer)
        except OSError:
            told[str(message["op"])] = "refused"
        finally:
            comm.abort()
    return told


def held(folder: str) -> str:
    """Runs until there is a file `go`, and says that it runs."""
    (Path(folder) / f"held.{os.getpid()}").touch()
    while not (Path(folder) / "go").exists():
        time.sleep(0.05)
    (Path(folder) / f"ended.{os.getpid()}").touch()
    return folder
