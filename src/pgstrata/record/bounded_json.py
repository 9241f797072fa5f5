"""JSON from files that anybody may have written: bounded in size, depth and number of values."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

MAX_JSON_BYTES = 16 << 20
MAX_NODES = 1_000_000
"""Values of one file of JSON: each takes some sixty bytes of memory, and as little as three of the file."""


def parse_json(content: bytes) -> Any:
    """Parse a whole file. ValueError for more than the bounds, and for anything that is not JSON."""
    require_bounded(content)
    return parse_text(content.decode(json.detect_encoding(content)))


def require_bounded(content: bytes) -> None:
    """Raise ValueError for more than the bounds."""
    if len(content) > MAX_JSON_BYTES:
        raise ValueError(f"it is longer than {MAX_JSON_BYTES} bytes")
    if sum(map(content.count, (b",", b"[", b"{"))) > MAX_NODES:
        raise ValueError(f"it holds more than {MAX_NODES} values")


def parse_text(text: str) -> Any:
    """Parse a text whose size is known to be within the bounds."""
    return _DECODER.decode(text)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text[:30]} is too large")
    return value


def _integer(text: str) -> int:
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{text[:30]} is too large")
    return value


_DECODER = json.JSONDecoder(parse_constant=_no_number, parse_int=_integer, parse_float=_finite)
