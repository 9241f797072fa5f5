"""Documented options of the tools, and those that short notation takes."""

from __future__ import annotations

import re
from pathlib import Path

from pgstrata.errors import UsageError
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.spec.stack import Stack

TABLE = Path(__file__).parent / "fixtures" / "documented_options.txt"
ROWS = [line.split(" ", 1) for line in TABLE.read_text().splitlines() if not line.startswith("#")]


def notation(layer: str, option: str) -> str:
    own = "+writecache" if re.search("watermark|autocommit|writeback_jobs", option) else ""
    own = "+cache" if layer.startswith("lvm") and re.search("mode|chunk|^-c|migration", option) else own
    further = f"{own}/ext4" if layer.startswith(("md", "lvm", "luks", "zvol")) else ""
    further += "+special" if re.search("special_small_blocks=[^0]", option) else ""
    return f"{layer}:{option}{further}"


def parsed(layer: str, option: str) -> Stack | UsageError:
    try:
        return parse_stack(notation(layer, option))
    except UsageError as error:
        return error


ACCEPTED = [(layer, option) for layer, option in ROWS if isinstance(parsed(layer, option), Stack)]
