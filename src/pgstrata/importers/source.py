"""Files of importers: bounded, decompressed and decoded text, and values of JSON that others wrote."""

from __future__ import annotations

import gzip
import lzma
import math
import re
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from pgstrata.errors import UsageError
from pgstrata.importers.pgbench_text import decode_text
from pgstrata.record.bounded_json import parse_json

LARGEST_FILE_BYTES = 64 << 20
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def read_text(path: Path) -> str:
    """Return the text of a file (.gz and .xz decompressed) without colours; UsageError if it cannot be read."""
    try:
        with _opened(path) as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"cannot decompress {path}: {error}", hint="copy the whole file again") from None
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", hint="name files that exist and that you may read"
        ) from None
    if len(content) > LARGEST_FILE_BYTES:
        raise UsageError(
            f"{path} is larger than {LARGEST_FILE_BYTES >> 20} MiB",
            hint="cut it into files with a part of its runs each",
        )
    return _COLOUR.sub("", decode_text(content))


def _opened(path: Path) -> BinaryIO | gzip.GzipFile | lzma.LZMAFile:
    if path.suffix == ".gz":
        return gzip.open(path)
    return lzma.open(path) if path.suffix == ".xz" else path.open("rb")


def read_json(path: Path, text: str, what: str, hint: str) -> Any:
    """Return the value of a text of JSON; UsageError that calls it `what` if it is none."""
    try:
        return parse_json(text.lstrip("\ufeff").encode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: {what}: {error}", hint=hint) from None


def number(value: Any) -> float | None:
    """Return a finite number, which may be written as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def whole(value: Any) -> int:
    """Return a count; 0 if it is no whole number that is positive."""
    found = number(value)
    return int(found) if found is not None and 0 < found < 1e15 and found == int(found) else 0
