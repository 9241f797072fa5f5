"""`pgstrata compare` and `pgstrata history`: campaigns of different days, hosts or kernels against one another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgstrata.cli.output import JsonFlag, argument, end, option, print_notice, print_result, tell_unreadable
from pgstrata.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from pgstrata.analyze.sessions.comparison import Session

Campaigns = Annotated[list[Path], argument("CAMPAIGN", "Campaign directories or bundles.", show_default=False)]
Reference = Annotated[
    str | None,
    option("--reference", "Stack that measures the drift; default: the one with most runs.", metavar="STACK"),
]


def compare(directories: Campaigns, reference: Reference = None, json: JsonFlag = False) -> None:
    """Compare campaigns with the first: what stacks gained or lost, with drift between sessions removed."""
    from pgstrata.analyze.sessions.comparison import compare_sessions
    from pgstrata.report.sentences.history import comparison_lines, comparison_value

    if len(directories) < 2:
        raise UsageError("one campaign cannot be compared", hint="pgstrata compare A B")
    first, *others = [open_session(path) for path in directories]
    check_reference(reference, first)
    found = [compare_sessions(first, other, reference) for other in others]
    print_result(
        {"schema": "pgstrata.compare/1", "comparisons": [comparison_value(one) for one in found]},
        lambda: "\n\n".join("\n".join(comparison_lines(one)) for one in found),
        json=json,
    )
    end(ExitCode.REFUSED if any(one.refused is not None for one in found) else read_whole(first, *others))


def open_session(path: Path) -> Session:
    """A campaign, judged anew."""
    from pgstrata.analyze.campaign.judge import judge
    from pgstrata.analyze.sessions.comparison import session_of
    from pgstrata.record.reader import read

    data = read(path)
    tell_unreadable(data.unreadable)
    return session_of(str(path), data, judge(data))


def read_whole(*sessions: Session) -> ExitCode:
    """Return the exit code of a verb that compares sessions: unreadable trials are a failure."""
    return ExitCode.TRIALS_FAILED if any(session.unreadable for session in sessions) else ExitCode.DONE


def check_reference(reference: str | None, session: Session) -> None:
    """UsageError where that session has no such stack."""
    if reference is not None and reference not in session.specs:
        from pgstrata.spec.file.nearest import render_nearest

        raise UsageError(f"{session.name} has no stack {reference!r}", hint=render_nearest(reference, session.specs))


Page = Annotated[Path | None, option("--html", "Write a page with a picture of every stack.", metavar="FILE")]


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
    print_result(history_value(found), lambda: "\n".join(history_lines(found)), json=json)
    if html is not None and found.refused is None:
        print_notice(f"wrote {write_history(found, html)}")
    end(ExitCode.REFUSED if found.refused is not None else read_whole(*sessions))


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata compare out/monday out/tuesday --reference ext4")(compare)
    app.command(epilog="Example: pgstrata history out/nightly-* --reference ext4 --html history.html")(history)
