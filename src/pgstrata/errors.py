"""Errors of pgstrata. A leaf: imports nothing of ours, and every package may import it.

An error says, in lower case and without a full stop, what failed, on what and why; `hint` holds the
command or change that mends it and is printed on a line of its own behind `HINT:`.
"""

from __future__ import annotations

import enum
import errno
import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar


class ExitCode(enum.IntEnum):
    """Exit codes of every verb (see docs/reference)."""

    DONE = 0
    INTERNAL = 1
    """A defect of pgstrata itself."""
    USAGE = 2
    REFUSED = 3
    TRIALS_FAILED = 4
    CONDITION_HELD = 5
    INTERRUPTED = 130


class PgstrataError(Exception):
    """An error meant for the user, with the exit code it ends the program with."""

    exit_code = ExitCode.REFUSED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nHINT: {self.hint}" if self.hint else self.message


class UsageError(PgstrataError):
    """The command line or the campaign is not valid; nothing was touched."""

    exit_code = ExitCode.USAGE


class PreflightError(PgstrataError):
    """A missing capability, an unsafe device, too little space: refused before anything was changed."""

    exit_code = ExitCode.REFUSED


def install_hint(name: str) -> str:
    """Return the command that adds an extra to the environment that runs this."""
    own = importlib.util.find_spec("pip") is not None  # not in the environment of a deb or rpm
    pip = f"{sys.executable} -m pip" if own else f"pip --python {sys.executable}"
    return f"{pip} install 'pgstrata[{name}]'"


@contextmanager
def extra(name: str, use: str) -> Iterator[None]:
    """A block that imports packages of an extra; PreflightError with the missing one and the command that adds it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise PreflightError(
            f"{use} needs the package {error.name}, which is not installed",
            hint=install_hint(name),
        ) from None


def all_at_once(refusals: Sequence[PreflightError]) -> PreflightError:
    """One error for several, each message and each hint once: nobody wants to learn of them one by one."""
    messages, hints = (dict.fromkeys(texts) for texts in ((r.message for r in refusals), (r.hint for r in refusals)))
    return PreflightError("; ".join(messages), hint="; ".join(hint for hint in hints if hint))


class TrialError(PgstrataError):
    """One trial failed; it is recorded with its reason and the campaign goes on."""

    exit_code = ExitCode.TRIALS_FAILED


class TrialExcluded(TrialError):
    """One trial does not count, for a reason that was known without looking at its figures."""


class RecordError(PreflightError):
    """The campaign directory cannot be written; no trial can go on without it, and the campaign stays resumable."""


class NotUnderstood(PgstrataError, ValueError):
    """Output of a program or content of a file that is not as it should be."""


Parsed = ParamSpec("Parsed")
Value = TypeVar("Value")
BUILT_HERE = ("strata-disk", "strata-load")
"""Programs of the same sources, whose output changes with them."""
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


def parser_of(what: str) -> Callable[[Callable[Parsed, Value]], Callable[Parsed, Value]]:
    """Convert the failures of a parser of program output to NotUnderstood."""

    def decorate(parse: Callable[Parsed, Value]) -> Callable[Parsed, Value]:
        @functools.wraps(parse)
        def guarded(*args: Parsed.args, **kwargs: Parsed.kwargs) -> Value:
            try:
                return parse(*args, **kwargs)
            except PgstrataError:
                raise
            except _DAMAGE as error:
                why = str(error)[:200] or type(error).__name__
                said, hint = f"output of {what} is not understood: {why}", ""
                if what.partition(" ")[0] in BUILT_HERE:
                    said, hint = (
                        f"{said}: the program is of another version than pgstrata",
                        "make setup builds it again",
                    )
                raise NotUnderstood(said, hint=hint) from error

        return guarded

    return decorate


_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """An OSError within is one of the campaign directory, not of a host under test: RecordError says so."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            hint = "free space there, then run the same command again"
            raise RecordError(f"no space left to write {path}", hint=hint) from error
        hint = "make it writable, then run the same command again; or choose another folder with --out DIR"
        raise RecordError(f"cannot write {path}: {error.strerror or error}", hint=hint) from error
