"""Requests and answers as lines of JSON; bytes as base64."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any


class AgentError(Exception):
    """Refused by an operation for a reason that is not an errno; `kind` says which."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def _encode_value(value: object) -> object:
    if isinstance(value, (bytes, memoryview)):
        return {"base64": base64.b64encode(value).decode()}
    raise TypeError(f"cannot send {type(value).__name__}")


def _decode_value(value: dict[str, Any]) -> Any:
    return base64.b64decode(value["base64"]) if value.keys() == {"base64"} else value


def encode(message: dict[str, Any]) -> bytes:
    """A message as one line."""
    return json.dumps(message, default=_encode_value).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """A message from one line."""
    value: dict[str, Any] = json.loads(line, object_hook=_decode_value)
    return value


def call(function: Callable[[], Any]) -> dict[str, Any]:
    """The answer to a request: its value, or its error in a form that `result` raises again on the other side."""
    try:
        return {"value": function()}
    except AgentError as error:
        return {"error": {"kind": error.kind, "message": str(error)}}
    except OSError as error:
        return {
            "error": {"kind": "os", "errno": error.errno, "message": error.strerror, "path": str(error.filename or "")}
        }
    except Exception as error:  # an answer must come in any case: the other side waits for it
        return {"error": {"kind": "bug", "message": repr(error)}}


def result(answer: dict[str, Any]) -> Any:
    error = answer.get("error")
    if error is None:
        return answer["value"]
    if error["kind"] == "os":
        raise OSError(error["errno"], error["message"], error["path"])
    raise AgentError(error["kind"], error["message"])
