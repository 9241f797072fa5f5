"""Interface of an importer: its names, its test for a file, and its reader of one file; and the files themselves:
bounded, decompressed and decoded text, and values of JSON that others wrote.

Each tool has one `IMPORTER`; `registry` lists them, and `tool_runs` writes what they read as a campaign. Nothing here
imports the models of the record, so that the command line can name every tool without them.
"""

from __future__ import annotations

import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from pgstrata.errors import UsageError
from pgstrata.record.source import parse_json
from pgstrata.workload.tool_run import ToolRun

LARGEST_FILE_BYTES = 64 << 20
COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BOMS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))


def decode_text(data: bytes) -> str:
    """Decode UTF-8, or the encoding of the byte order mark; zeroes in every second byte are UTF-16 without a mark."""
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")
    head = data[:400]
    if len(head) >= 8 and head[1::2].count(0) > len(head) // 4:
        return data.decode("utf-16-le", errors="replace")
    return data.decode("utf-8", errors="replace")


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
    return COLOUR.sub("", decode_text(content))


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


# ---------------------------------------------------------------- the interface of an importer


@dataclass(frozen=True)
class ToolFile:
    """The runs of one file, the number of left out items by reason, and what a reader of the report has to know."""

    runs: tuple[ToolRun, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recogniser:
    """A verb of `pgstrata import`, and its test for the text of a file."""

    name: str
    recognises: Callable[[str], bool]


@dataclass(frozen=True)
class Importer(Recogniser):
    """An importer of a tool whose files hold whole runs."""

    tool: str
    argument: str
    """Help for the argument."""
    read: Callable[[Path, str], ToolFile]
    """Reads the text of a file; UsageError for a text that holds no run, or a run that is not understood."""
    folders: bool = False
    """True for a tool whose result is a folder: `read` gets it with an empty text."""
