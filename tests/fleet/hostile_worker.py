"""Preloaded by workers of tests: a worker whose host was taken over. It answers as HOSTILE says.

What it sends notes in the file MARK in which process it ran. A copy of Dask that keeps to no agreement about forms of
messages sends everything as pickle.
"""

from __future__ import annotations

import os
import pickle
from typing import Any

from distributed import get_worker
from distributed.comm.tcp import TCP

from pgstrata.fleet import calls, worker

MARK = os.environ["HOSTILE_MARK"]


class Evil(Exception):
    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"import os; open({MARK!r}, 'a').write(f'{{os.getpid()}} ')",)


def evil() -> Any:
    return Evil()


def raising() -> Any:
    raise Evil


def warning() -> Any:
    get_worker().log_event("warn", {"message": pickle.dumps(Evil()), "category": pickle.dumps(Evil())})
    return [b"t" + b"warned"]


def long_name() -> Any:
    return '{"hostname": "' + "x" * (1 << 20) + '", "machine": "m", "uid": 0}'


def unreadable() -> Any:
    return [b"e{}"]


MODES = {
    "result": ("call", evil),
    "exception": ("call", raising),
    "event": ("call", warning),
    "wrong answer": ("call", unreadable),
    "description": ("prepare", evil),
    "refusal to describe": ("prepare", raising),
    "wrong description": ("prepare", long_name),
}


pickling = False


async def _prepare(dask_worker: Any) -> Any:
    return _answer()


def _call(*args: Any) -> Any:
    return _answer()


def _answer() -> Any:
    global pickling
    mode, *pickled = os.environ["HOSTILE"].split("+")
    pickling = bool(pickled)
    return MODES[mode][1]()


def dask_setup(dask_worker: Any) -> None:
    name, _ = MODES[os.environ["HOSTILE"].partition("+")[0]]
    if name == "call":
        calls.call = _call  # type: ignore[assignment]
    else:
        worker.prepare = _prepare
    write = TCP.write

    async def write_pickled(self: Any, msg: Any, serializers: Any = None, on_error: str = "message") -> Any:
        return await write(self, msg, serializers=None if pickling else serializers, on_error=on_error)

    TCP.write = write_pickled
