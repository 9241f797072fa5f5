"""Refuses to unpickle classes and functions while this process talks to a Dask cluster.

Dask unpickles in dozens of places whatever workers and scheduler send: results, exceptions, events, types. Python
announces every class or function that a pickle names before it is imported (audit event `pickle.find_class`); while
`refused_unpickling` lasts, that is an error in the whole process. What is left of pickle then are numbers, texts and
containers, from which nothing can be called.
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
    """No thread of this process unpickles a class or function, `own_pickle` apart."""
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
    """Data that this very process has pickled: the tasks that its client gives to its scheduler."""
    token = _own.set(True)
    try:
        yield
    finally:
        _own.reset(token)


def _check(event: str, named: tuple[Any, ...]) -> None:
    if event == "pickle.find_class" and _blocks and not _own.get() and tuple(named) not in INERT:
        raise UnpicklingRefused(f"a pickle names {named[0]}.{named[1]}: only text and bytes may come from a cluster")
