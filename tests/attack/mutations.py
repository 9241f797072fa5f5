"""Changes of bytes and texts, drawn from a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
VALUES = (
    b"-1", b"0", b"1e308", b"-1e308", b"1e-320", b"9223372036854775807", b"9223372036854775808", b"1" + b"0" * 400,
    b"NaN", b"Infinity", b"null", b"true", b'""', b"[]", b"{}", b'"x"', b"1e999", b"0.5", b"99999999999",
)  # fmt: skip
BYTES = (b"\x00", b"\xff", b"\xfe\xff", b"\xed\xa0\x80", b"\x1b[2J", b"\xe2\x80\xae", b"\n", b"\r\n", b'"', b"'", b"\\",
         b"{", b"}", b"[", b"(", b")", b",", b":", b"=", b"-", b"/", b"@", b"%", b" " * 300, b"9" * 30)  # fmt: skip


def mutate(content: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """One change: cut, flip, insert, repeat, another value, or a part of another text."""
    at = rng.randrange(len(content) + 1)
    end = min(len(content), at + rng.choice((1, 2, 8, 64, 512)))
    match rng.randrange(8):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + content[end:]
        case 2 if at < len(content):
            return content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]
        case 3:
            return content[:at] + rng.choice(BYTES) + content[at:]
        case 4:
            return content[:end] + content[at:end] * rng.choice((1, 2, 50)) + content[end:]
        case 5:
            other = rng.choice(others)
            return content[:at] + other[rng.randrange(len(other) + 1) :]
        case _:
            return _another_value(content, rng)


def _another_value(content: bytes, rng: random.Random) -> bytes:
    found = list(NUMBER.finditer(content[:200_000]))
    if not found:
        return content + rng.choice(BYTES)
    match = rng.choice(found)
    return content[: match.start()] + rng.choice(VALUES) + content[match.end() :]
