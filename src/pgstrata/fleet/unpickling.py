"""Refuses to unpickle classes and functions while this process talks to a Dask cluster.

In dozens of places Dask unpickles messages of workers and scheduler: results, exceptions, events, types. Python
announces every class or function that a pickle names before it is imported (audit event `pickle.find_class`). During
`refused_unpickling` that is an error in the whole process, so pickles can contain only numbers, texts and containers,
and nothing in them can be called.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

INERT = frozenset({("builtins", "bytes")})
"""Dask names the type of each message that is bytes."""
_own: ContextVar[bool] = ContextVar("pgstrata_own_pickle", default=False)
_lock = threading.Lock()
_blocks = 0
_hooked = False


class UnpicklingRefused(TypeError):
    """Dask takes a TypeError for data that cannot be decoded."""


@contextmanager
def refused_unpickling() -> Iterator[None]:
    """Refuse to unpickle classes and functions in all threads of this process, except inside `own_pickle`."""
    global _blocks, _hooked
    with _lock:
        _blocks += 1
        if not _hooked:
            sys.addaudithook(_check)  # for good: Python has no way to remove one
            _hooked = True
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1


@contextmanager
def own_pickle() -> Iterator[None]:
    """Allow data that this process pickled itself: the tasks that its client sends to its scheduler."""
    token = _own.set(True)
    try:
        yield
    finally:
        _own.reset(token)


def _check(event: str, named: tuple[Any, ...]) -> None:
    if event == "pickle.find_class" and _blocks and not _own.get() and tuple(named) not in INERT:
        raise UnpicklingRefused(f"a pickle names {named[0]}.{named[1]}: only text and bytes may come from a cluster")
