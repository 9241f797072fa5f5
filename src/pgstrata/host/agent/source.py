"""The source of this package as one text, and the constant program that runs it elsewhere."""

from __future__ import annotations

from pathlib import Path

PACKAGE = "pgstrata.host.agent"
MODULES = (
    *("wire", "processes", "places", "source", "commands", "files", "locks", "occupancy", "devices"),
    *("operations", "program"),
)
"""In the order of their imports."""
READY = "pgstrata-agent-ready"
"""Start of the line that the far side prints first of all; what precedes it is noise of login start-up files."""

BOOTSTRAP = (
    "import sys;sys.stdout.write('%c" + READY + " %d.%d%c'%(10,sys.version_info[0],sys.version_info[1],10));"
    "sys.stdout.flush();i=sys.stdin.buffer;n=int(i.readline());s=i.read(n).decode();"
    "g={'SOURCE':s};exec(compile(s,'agent','exec'),g);g['main'](sys.argv[1:])"
)
"""Reads a bundle from standard input and runs it; free of characters that a login shell treats specially inside
single quotes."""

_LOADER = """\
import sys, types
TEXTS = {texts!r}
for name in {parents!r} + list(TEXTS):
    sys.modules[name] = types.ModuleType(name)
    exec(compile(TEXTS.get(name, ""), name, "exec"), sys.modules[name].__dict__)
sys.modules[{package!r} + ".source"].sent = SOURCE
main = sys.modules[{package!r} + ".program"].main
"""

sent: str | None = None
"""On the far side: the bundle that this module came in, to start further programs with."""


def bundle() -> bytes:
    """Data that BOOTSTRAP wants on standard input: the length of a program on a line, then the program."""
    text = sent
    if text is None:
        here = Path(__file__).parent
        texts = {f"{PACKAGE}.{name}": (here / f"{name}.py").read_text(encoding="utf-8") for name in MODULES}
        parts = PACKAGE.split(".")
        parents = [".".join(parts[: end + 1]) for end in range(len(parts))]
        text = _LOADER.format(texts=texts, parents=parents, package=PACKAGE)
    data = text.encode()
    return b"%d\n" % len(data) + data
