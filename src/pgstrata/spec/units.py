"""Sizes, durations and shares as people write them.

Sizes follow the storage tools' habit: `k`, `m`, `g`, `t`, with or without `i`/`b`, are powers of 1024.
"""

from __future__ import annotations

import re

_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmgtp]?)(?:i?b)?\s*$", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|sec|m|min|h|d)?(?![a-z])", re.IGNORECASE)
LARGEST_BYTES = 1 << 50
LONGEST_S = 366 * 86400.0
_SECONDS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_size_bytes(value: object) -> int:
    """Bytes of `8k`, `4GiB`, `512 MB` or an integer; ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{value!r} is not a size (for example 8k, 512M, 4GiB)")
    if isinstance(value, int):
        return _bounded_size(value, value)
    match = _SIZE.match(value)
    if match is None:
        raise ValueError(f"{value!r} is not a size (for example 8k, 512M, 4GiB)")
    exponent = " kmgtp".index(match[2].lower() or " ")
    size_bytes = float(match[1]) * 1024.0**exponent
    return _bounded_size(round(size_bytes) if size_bytes <= LARGEST_BYTES else LARGEST_BYTES + 1, value)


def _bounded_size(size_bytes: int, written: object) -> int:
    if size_bytes <= 0:
        raise ValueError(f"{_short(written)} is not a size: it is not above 0")
    if size_bytes > LARGEST_BYTES:
        raise ValueError(f"{_short(written)} is not a size: it is above {render_size(LARGEST_BYTES)}")
    return size_bytes


def _bounded_duration(duration_s: float, written: object) -> float:
    if not 0 <= duration_s <= LONGEST_S:
        raise ValueError(f"{_short(written)} is not a duration: it is not between 0 and {render_duration(LONGEST_S)}")
    return duration_s


def _short(written: object) -> str:
    text = str(written)
    return text if len(text) <= 40 else f"{text[:37]}..."


def parse_duration_s(value: object) -> float:
    """Seconds of `90`, `90s`, `1h30min`; ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not a duration (for example 90s, 15min, 1h)")
    if isinstance(value, int | float):
        return _bounded_duration(min(value, LONGEST_S + 1), value)
    text = value.strip()
    parts = list(_DURATION.finditer(text))
    if not parts or "".join(p[0] for p in parts).replace(" ", "") != text.replace(" ", ""):
        raise ValueError(f"{value!r} is not a duration (for example 90s, 15min, 1h)")
    return _bounded_duration(sum(float(p[1]) * _SECONDS[(p[2] or "s").lower()] for p in parts), value)


def parse_fraction(value: object) -> float:
    """The share in `2%` or `0.02`; ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not a share (for example 2% or 0.02)")
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"{_short(value)} is not a share (for example 2% or 0.02)") from None
    text = value.strip()
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ValueError(f"{value!r} is not a share (for example 2% or 0.02)") from None


def render_size(size_bytes: float) -> str:
    """`4.0 GiB` for 4294967296; whole numbers below 1 KiB."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def render_duration(duration_s: float) -> str:
    """`45 s`, `4 min 10 s`, `2 h 5 min`."""
    seconds = round(duration_s)
    if seconds < 60:
        return f"{duration_s:.1f} s" if duration_s < 10 else f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s" if seconds % 60 else f"{seconds // 60} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def render_size_exact(size_bytes: int) -> str:
    """`16k`, `1536`, `2g`: the shortest spelling that parse_size_bytes converts back to the same number."""
    for exponent, unit in ((4, "t"), (3, "g"), (2, "m"), (1, "k")):
        if size_bytes and size_bytes % 1024**exponent == 0:
            return f"{size_bytes // 1024**exponent}{unit}"
    return str(size_bytes)
