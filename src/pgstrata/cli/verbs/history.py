"""`pgstrata history`: what stacks did over many campaigns, and when that changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgstrata.cli.output import JsonFlag, end, print_json, print_notice, print_text
from pgstrata.cli.verbs.compare import Campaigns, Reference, check_reference, open_session, read_whole
from pgstrata.errors import ExitCode, UsageError

Page = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write a page with a picture of every stack.", show_default=False),
]


def history(directories: Campaigns, reference: Reference = None, html: Page = None, json: JsonFlag = False) -> None:
    """Show stacks over many campaigns, in the order of time, and when they changed against a reference stack."""
    from pgstrata.analyze.sessions.history import trace_history
    from pgstrata.report.sentences.history import history_lines, history_value, write_history

    if len(directories) < 2:
        raise UsageError("one campaign is no history", hint="pgstrata history DIR...")
    sessions = [open_session(path) for path in directories]
    if not any(reference in session.specs for session in sessions):
        check_reference(reference, sessions[-1])
    found = trace_history(sessions, reference)
    if json:
        print_json(history_value(found))
    else:
        print_text("\n".join(history_lines(found)))
    if html is not None and found.refused is None:
        print_notice(f"wrote {write_history(found, html)}")
    end(ExitCode.REFUSED if found.refused is not None else read_whole(*sessions))


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata history out/nightly-* --reference ext4 --html history.html")(history)
