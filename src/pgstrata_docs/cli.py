"""Writes docs/reference/cli.md from the program itself: `python -m pgstrata_docs.cli`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from typer.testing import CliRunner

from pgstrata.cli.main import app
from pgstrata.errors import ExitCode

WIDTH = 100

_HEAD = """\
# Command line

Written from the program by `make docs`; `pgstrata VERB --help` says the same.

Results go to stdout (`--json` for programs), progress and messages to stderr. `NO_COLOR` is respected. Errors are one
line, `error: ...`, and where something mends them a second, `HINT: ...`; `PGSTRATA_DEBUG=1` adds where they came from.
`pgstrata --install-completion` installs completion for the shell.

## Exit codes

| code | meaning |
| --- | --- |
"""

_MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.INTERNAL: "a defect of pgstrata itself; please report it",
    ExitCode.USAGE: "usage, or an invalid campaign",
    ExitCode.REFUSED: "preflight refused: a missing capability, an unsafe device, too little space; or nothing can be "
    "compared",
    ExitCode.TRIALS_FAILED: "finished, but some trials failed, a result is unknown or partial, or something could not "
    "be undone",
    ExitCode.CONDITION_HELD: "a `--fail-on` condition holds over the whole interval (undecided: a warning and 0)",
    ExitCode.INTERRUPTED: "interrupted; the same command resumes",
}

_ENVIRONMENT = """
## Environment

| variable | meaning |
| --- | --- |
| `PGSTRATA_STATE_DIRECTORY` | folder of locks, undo journal and mount points; for root by default `/var/lib/pgstrata` |
| `PGSTRATA_DEBUG` | `1`: errors with a traceback |
| `NO_COLOR` | no colour |
"""


def render_reference() -> str:
    """The whole page."""
    codes = "".join(f"| {int(code)} | {_MEANINGS[code]} |\n" for code in ExitCode)
    return _HEAD + codes + _ENVIRONMENT + "".join(_sections())


def _sections() -> Iterator[str]:
    for command in app.registered_commands:
        assert command.callback is not None
        yield _section(command.name or command.callback.__name__)
    for group in app.registered_groups:
        assert group.name is not None
        assert group.typer_instance is not None
        yield _section(group.name)
        for command in group.typer_instance.registered_commands:
            assert command.callback is not None
            yield _section(group.name, command.name or command.callback.__name__)


def _section(*words: str) -> str:
    shown = CliRunner().invoke(
        app, [*words, "--help"], prog_name="pgstrata", env={"COLUMNS": str(WIDTH), "TERM": "dumb"}
    )
    lines = "\n".join(line.rstrip() for line in shown.stdout.strip().splitlines())
    return f"\n## pgstrata {' '.join(words)}\n\n```\n{lines}\n```\n"


if __name__ == "__main__":
    sys.stdout.write(render_reference())
