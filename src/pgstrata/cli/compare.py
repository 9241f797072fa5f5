"""`pgstrata compare`: campaigns of different days, hosts or kernels against one another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgstrata.cli.output import JsonFlag, end, print_json, print_text
from pgstrata.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from pgstrata.analyze.sessions import Session


Campaigns = Annotated[
    list[Path], typer.Argument(metavar="CAMPAIGN", help="Campaign directories or bundles.", show_default=False)
]
Reference = Annotated[
    str | None,
    typer.Option(
        "--reference",
        metavar="STACK",
        help="The stack that drift is told by; default: the one with most runs.",
        show_default=False,
    ),
]


def compare(
    directories: Campaigns,
    reference: Reference = None,
    json: JsonFlag = False,
) -> None:
    """Compare campaigns with the first: what stacks gained or lost, drift between the sessions apart."""
    from pgstrata.analyze.sessions import compare_sessions
    from pgstrata.report.sessions import comparison_lines, comparison_value

    if len(directories) < 2:
        raise UsageError("one campaign cannot be compared", hint="pgstrata compare A B")
    first, *others = [open_session(path) for path in directories]
    check_reference(reference, first)
    found = [compare_sessions(first, other, reference) for other in others]
    if json:
        print_json({"schema": "pgstrata.compare/1", "comparisons": [comparison_value(one) for one in found]})
    else:
        print_text("\n\n".join("\n".join(comparison_lines(one)) for one in found))
    if any(one.refused is not None for one in found):
        end(ExitCode.REFUSED)


def open_session(path: Path) -> Session:
    """A campaign, judged anew."""
    from pgstrata.analyze.judge import judge
    from pgstrata.analyze.sessions import session_of
    from pgstrata.record.reader import read

    data = read(path)
    return session_of(str(path), data, judge(data))


def check_reference(reference: str | None, session: Session) -> None:
    """UsageError where that session has no such stack."""
    if reference is not None and reference not in session.specs:
        from pgstrata.spec.nearest import render_nearest

        raise UsageError(f"{session.name} has no stack {reference!r}", hint=render_nearest(reference, session.specs))


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata compare out/monday out/tuesday --reference ext4")(compare)
