"""Scripts of a cell: one, or a mix in pgbench's notation, `tpcb-like@9+orders.sql@1`.

A text is a mix if it consists of two or more `SCRIPT@WEIGHT` joined by `+`; any other text is one script, whatever
characters its path has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

BUILTIN_SCRIPTS = ("tpcb-like", "simple-update", "select-only")
MOST_SCRIPTS = 128
"""Maximum number of scripts of one run of pgbench."""
MOST_WEIGHT = 2**31 - 1

_PART = re.compile(r"(.+?)@(\d+)(?:\+|$)")
_MIX = re.compile(r".+?@\d+\+.+@\d+")
_WITHOUT_WEIGHT = re.compile(r".*@\d+\+(.+)")


@dataclass(frozen=True)
class Script:
    """A builtin script of pgbench or the path of a file, and its weight in a mix; None without a mix."""

    name: str
    weight: int | None = None

    @property
    def builtin(self) -> bool:
        return self.name in BUILTIN_SCRIPTS

    @property
    def short_name(self) -> str:
        """The name in texts: a file without its folder and extension."""
        return self.name.rsplit("/", 1)[-1].removesuffix(".sql") or self.name

    @property
    def weighted(self) -> str:
        """The notation of pgbench's options, `NAME@WEIGHT`."""
        return self.name if self.weight is None else f"{self.name}@{self.weight}"


def parse_scripts(text: str) -> tuple[Script, ...]:
    """Return the scripts of a mix in order; of any other text one script without weight."""
    found = list(_PART.finditer(text)) if _MIX.fullmatch(text) else []
    whole = sum(len(part[0]) for part in found) == len(text)
    return tuple(Script(part[1], int(part[2])) for part in found) if whole else (Script(text),)


def render_scripts(scripts: tuple[Script, ...]) -> str:
    """Return the notation that `parse_scripts` reads."""
    return "+".join(script.weighted for script in scripts)


def short_scripts(text: str) -> str:
    """Return the same notation with short names, for texts and names of folders."""
    return render_scripts(tuple(replace(script, name=script.short_name) for script in parse_scripts(text)))


def mix_fault(text: str) -> tuple[str, str] | None:
    """Return the error and hint for a text that pgbench would not run as written; None if it is valid."""
    scripts = parse_scripts(text)
    if len(scripts) == 1:
        found = _PART.fullmatch(text)
        if found is None:
            return None
        return f"{text!r} gives a weight to the only script", f"{found[1]}, or a mix: {found[1]}@9+select-only@1"
    if len(scripts) > MOST_SCRIPTS:
        return f"the mix has {len(scripts)} scripts, more than {MOST_SCRIPTS}", "leave out the rarest ones"
    names = [script.short_name for script in scripts]
    for script in scripts:
        if not 1 <= (script.weight or 0) <= MOST_WEIGHT:
            return f"{script.weighted!r} has a weight outside 1 to {MOST_WEIGHT}", "leave out scripts that never run"
        if names.count(script.short_name) > 1:
            return (
                f"the mix has two scripts called {script.short_name!r}",
                "give a script once, with the sum of its weights; files need different names",
            )
    return None


def joined(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the one mix that a list means in which each script has a weight, as pgbench's options have them;
    any other list as given."""
    single = len(texts) > 1 and all(_PART.fullmatch(text) and len(parse_scripts(text)) == 1 for text in texts)
    return ("+".join(texts),) if single else tuple(texts)


def missing_weight(text: str) -> str:
    """Return the script without a weight in a text that is nearly a mix; empty for other texts."""
    found = _WITHOUT_WEIGHT.fullmatch(text)
    return found[1] if found is not None and not _MIX.fullmatch(text) else ""


PIPELINE = "startpipeline"
FIRST_MAJOR_OF = {PIPELINE: 14, "endpipeline": 14, "syncpipeline": 17}
"""First major of pgbench that has a meta command, for those that the oldest supported pgbench lacks."""
_TOKEN = re.compile(
    r"""
    --[^\n]*
    | /\*(?:.*?\*/|.*)
    | \b[eE]'(?:[^'\\]|\\.)*'?
    | '[^']*'?
    | "[^"]*"?
    | \$(?P<tag>(?:[A-Za-z_]\w*)?)\$(?:.*?\$(?P=tag)\$|.*)
    | \\(?P<command>\w+)(?:\\\n|[^\n])*
    """,
    re.DOTALL | re.VERBOSE,
)


def meta_commands(text: str) -> Iterator[str]:
    """Yield the meta commands of a script in order, without backslash; comments and quoted text hold none."""
    return (token["command"].lower() for token in _TOKEN.finditer(text) if token["command"])
