"""Functions by their names, and their results as bytes: everything that travels between this process and others.

An answer is one byte for its kind, then its content: text, bytes, a number, an error of pgstrata, or the loss of the
worker's session. The reader checks it, because a worker may run any program.

In dozens of places Dask unpickles messages of workers and scheduler: results, exceptions, events, types. Python
announces every class or function that a pickle names before it is imported (audit event `pickle.find_class`). During
`refused_unpickling` that is an error in the whole process, so pickles can contain only numbers, texts and containers,
and nothing in them can be called.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pydantic import ValidationError

from pgstrata.errors import PgstrataError, PreflightError, TrialError, UsageError
from pgstrata.host.protocol import HostLost
from pgstrata.spec.model import Model

Datum = str | bytes | int
MOST_BYTES = 4 << 30
"""Bytes of an answer: a trial with the logs of its transactions."""
MOST_TEXT = 4 << 10
MOST_ERROR_BYTES = 64 << 10
CHUNK_BYTES = 256 << 20
"""Bytes of one piece of an answer: Dask's messages have a bound."""
ERRORS: dict[str, type[PgstrataError]] = {
    error.__name__: error for error in (PgstrataError, UsageError, PreflightError, TrialError, HostLost)
}


class WrongAnswer(PgstrataError):
    """A worker gave an answer of no valid form."""


class WorkerLost(Exception):
    """The worker of a piece is gone, or has given the piece up: another worker may do it."""


class _Failure(Model):
    """An error on its way from a worker."""

    kind: str
    message: str
    hint: str = ""


def name_of(function: Callable[..., Any]) -> str:
    """`module:function`; a function without such a name cannot be sent."""
    name = f"{function.__module__}:{function.__qualname__}"
    assert _named(name) is function, f"{name} is no function of a module"
    return name


def _named(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function, None)


def call(name: str, *data: Datum) -> list[bytes]:
    """Run a function by its name, in another process; return its answer in pieces. Raises nothing."""
    answer = _answer(name, data)
    return [answer[at : at + CHUNK_BYTES] for at in range(0, len(answer), CHUNK_BYTES)]


def _answer(name: str, data: tuple[Datum, ...]) -> bytes:
    try:
        return _encode(_named(name)(*data))
    except WorkerLost as error:
        return b"l" + str(error).encode()
    except PgstrataError as error:
        kind = next(one.__name__ for one in type(error).__mro__ if one.__name__ in ERRORS)
        failure = _Failure(kind=kind, message=error.message[:MOST_TEXT], hint=error.hint[:MOST_TEXT])
    except Exception as error:  # a defect, or a machine that lacks something
        failure = _Failure(kind="PgstrataError", message=f"{type(error).__name__}: {error}"[:MOST_TEXT])
    return b"e" + failure.model_dump_json().encode()


def _encode(value: Datum) -> bytes:
    if isinstance(value, bytes):
        return b"b" + value
    return b"t" + value.encode() if isinstance(value, str) else b"i" + str(value).encode()


def result_of(answer: object, *, most_bytes: int = MOST_BYTES) -> Datum:
    """Return the function's result, or raise its error; WrongAnswer for anything else."""
    content = _joined(answer, most_bytes)
    kind, rest = content[:1], content[1:]
    if kind == b"b":
        return rest
    try:
        if kind == b"t":
            return rest.decode()
        if kind == b"i" and len(rest) <= 20:
            return int(rest)
        if kind == b"l" and len(rest) <= MOST_ERROR_BYTES:
            raise WorkerLost(rest.decode())
        if kind == b"e" and len(rest) <= MOST_ERROR_BYTES:
            failure = _Failure.model_validate_json(rest)
            raise ERRORS.get(failure.kind, PgstrataError)(failure.message, hint=failure.hint)
    except (UnicodeDecodeError, ValidationError):
        raise WrongAnswer("it answered with text that cannot be read") from None
    except ValueError as error:
        if isinstance(error, PgstrataError):
            raise
    raise WrongAnswer(f"its answer is of no known kind: {kind!r}")


def _joined(answer: object, most_bytes: int) -> bytes:
    if not isinstance(answer, list | tuple) or not answer or not all(type(part) is bytes for part in answer):
        raise WrongAnswer(f"it answered with {type(answer).__name__}, not with bytes")
    if (size := sum(map(len, answer))) > most_bytes:
        raise WrongAnswer(f"it answered with {size} bytes, {most_bytes} at most")
    return answer[0] if len(answer) == 1 else b"".join(answer)


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
