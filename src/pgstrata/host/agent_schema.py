"""Answers that a far agent may give. The machine over there may be anybody's: each is looked at here, and only here.

An answer is a line of JSON with the number of its request and a value or an error. `read_answer` takes it apart;
`checked` says whether a value is one that its operation gives, in type and in size.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from pgstrata.errors import PreflightError
from pgstrata.host.agent import wire
from pgstrata.host.agent.files import CHUNK_BYTES, MOST_NAMES, MOST_READ_BYTES
from pgstrata.host.agent.processes import MOST_OUTPUT_BYTES

MOST_LINE_BYTES = 96 << 20
"""Both outputs of a command, or a file read in one piece, in base64, with room for the rest."""
MOST_TEXT = 64 << 10
LONGEST_NAME = 1024

OTHER_PROGRAM = "does another program run there as a worker?"
Answer = TypeVar("Answer")
Check = Callable[[Any], bool]


class WrongAnswer(ValueError):
    """Not an answer to what was asked."""


def read_answer(line: bytes) -> dict[str, Any]:
    """`id` and either `value` or a well-formed `error`; WrongAnswer for anything else."""
    if not line.endswith(b"\n"):
        raise WrongAnswer("a line without its end")
    try:
        answer = wire.decode(line)
    except (ValueError, TypeError, RecursionError) as error:
        raise WrongAnswer(f"a line that is no answer: {type(error).__name__}") from None
    if not isinstance(answer, dict) or type(answer.get("id")) is not int:
        raise WrongAnswer("a line that is no answer: it has no number")
    if not (_error(answer["error"]) if "error" in answer else "value" in answer):
        raise WrongAnswer("a line that is no answer: it has neither value nor error")
    return answer


def checked(operation: str, value: Any) -> Any:
    """The value, when it is one that this operation gives; WrongAnswer."""
    if not ANSWERS.get(operation, _nothing)(value):
        raise WrongAnswer(f"{operation} does not answer {repr(value)[:80]}")
    return value


def _error(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if value.get("kind") == "os":
        number = value.get("errno")
        known = number is None or (type(number) is int and number in errno.errorcode)
        return known and _maybe(_text)(value.get("message")) and _text(value.get("path"))
    return _text(value.get("kind")) and _text(value.get("message"))


def _nothing(value: Any) -> bool:
    return value is None


def _truth(value: Any) -> bool:
    return type(value) is bool


def _whole(value: Any) -> bool:
    return type(value) is int and -(1 << 63) <= value < 1 << 64


def _count(value: Any) -> bool:
    return _whole(value) and value >= 0


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MOST_TEXT and "\0" not in value


def _name(value: Any) -> bool:
    """True for the name of a file in its folder, never a way out of it."""
    return _text(value) and len(value) <= LONGEST_NAME and value not in ("", ".", "..") and "/" not in value


def _data(most_bytes: int) -> Check:
    return lambda value: isinstance(value, bytes) and len(value) <= most_bytes


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list(check: Check, most: int = 10_000) -> Check:
    return lambda value: isinstance(value, list) and len(value) <= most and all(check(one) for one in value)


def _pair(value: Any) -> bool:
    return _list(_count, 2)(value) and len(value) == 2


def _record(**checks: Check) -> Check:
    def check(value: Any) -> bool:
        return isinstance(value, dict) and value.keys() == checks.keys() and all(c(value[k]) for k, c in checks.items())

    return check


def _kind(value: Any) -> bool:
    return value in ("file", "directory", "block", "symlink", "other")


ANSWERS: dict[str, Check] = {
    "hello": _record(pid=_count, started=_maybe(_count), boot=_text, uid=_count),
    "run": _record(
        exit_code=_whole,
        stdout=_data(MOST_OUTPUT_BYTES),
        stderr=_data(MOST_OUTPUT_BYTES),
        duration_s=_number,
        timed_out=_truth,
    ),
    "start": _record(pid=_count, started=_count, exit_file=_text, keeper=_count, keeper_started=_maybe(_count)),
    "poll": _maybe(_whole),
    "wait": _maybe(_whole),
    "stop": _maybe(_whole),
    "stop_marked": _list(_count, MOST_NAMES),
    "processor_seconds": _record(busy_s=_number, own_s=_number, stolen_s=_number, processors=_count),
    "busiest": _list(_record(pid=_count, name=_text, cpu_share=_number, io_bytes_per_s=_number), MOST_NAMES),
    "read": _data(MOST_READ_BYTES),
    "read_chunk": _data(CHUNK_BYTES),
    "status": _maybe(
        _record(
            kind=_kind,
            size_bytes=_count,
            allocated_bytes=_count,
            mode=_count,
            uid=_count,
            gid=_count,
            inode=_count,
            device=_pair,
        )
    ),
    "space": _record(total_bytes=_count, free_bytes=_count),
    "list_directory": _list(_name, MOST_NAMES),
    "state_directory": _text,
    "try_lock": _maybe(_text),
    "lock_holder": _maybe(_text),
    "open_device": _record(
        handle=_count,
        path=_text,
        numbers=_pair,
        size_bytes=_count,
        sequence=_count,
        uses=_list(_text),
        passing=_list(_text),
    ),
    "other_handles": _list(_count),
    "first_content": _maybe(_count),
}
"""By operation; those that are not here answer nothing."""


def parsed(model: type[Answer], text: object, who: str) -> Answer:
    """The answer of a worker of another machine, in JSON. PreflightError that names the worker for anything else."""
    try:
        if isinstance(text, str | bytes):
            return TypeAdapter(model).validate_json(text)
        problem = f"{type(text).__name__} instead of text"
    except ValidationError as error:
        problem = f"{error.error_count()} errors, first {error.errors(include_url=False)[0]['msg']}"
    raise PreflightError(f"{who} gave a wrong answer: {problem}", hint=OTHER_PROGRAM)
