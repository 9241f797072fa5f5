"""Options of initdb that a stack may bring: those that decide what is in the cluster.

Not those that name files and folders to read or write (`--pgdata`, `--waldir`, `--pwfile`, `-L`), that decide who may
come in (`--auth`, `--username`) or that set the server (`--set`): a campaign from somebody else must not do the first,
and pgstrata does the others itself. Names as initdb spells them, since it also takes abbreviations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

WITH_VALUE = frozenset({
    "-E", "--encoding", "-T", "--text-search-config", "--wal-segsize",
    "--locale", "--lc-collate", "--lc-ctype", "--lc-messages", "--lc-monetary", "--lc-numeric", "--lc-time",
    "--locale-provider", "--icu-locale", "--icu-rules", "--builtin-locale",
})  # fmt: skip
ALONE = frozenset({
    "-k", "--data-checksums", "--no-data-checksums", "--no-locale", "-g", "--allow-group-access", "-N", "--no-sync",
    "--no-instructions",
})  # fmt: skip

_WORD = re.compile(r"(?P<long>--[a-z-]+)(?:=(?P<value>.*))?|(?P<short>-[A-Za-z])(?P<stuck>.*)", re.DOTALL)
_VALUE = re.compile(r"[\w .@&<>'=+-]*")


def initdb_problem(options: Sequence[str]) -> str:
    """Return why initdb may not be called with these; empty if it may."""
    words = iter(options)
    for word in words:
        match = _WORD.fullmatch(word)
        if match is None:
            return f"{word!r} is no option of initdb"
        name = match["long"] or match["short"]
        value = match["value"] if match["long"] else match["stuck"] or None
        if name in WITH_VALUE:
            value = next(words, None) if value is None else value
            if value is None or _VALUE.fullmatch(value) is None or value.startswith("-"):
                return f"initdb option {name} has no value that could be one: {value!r}"
        elif name not in ALONE:
            return f"initdb option {name} is not taken: only {', '.join(sorted(WITH_VALUE | ALONE))} are"
        elif value is not None:
            return f"initdb option {name} takes no value: {word!r}"
    return ""
