"""Common parts of verbs: results to stdout (text or JSON), all else to stderr, options of the same name."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from pgstrata.errors import ExitCode, PgstrataError, UsageError
from pgstrata.spec.printable import printable

if TYPE_CHECKING:
    from pgstrata.record.reader import CampaignData, UnreadableTrial


T = TypeVar("T")


def option(name: str, text: str, **shown: Any) -> Any:
    """Return an option with its help; `shown` as of typer."""
    return typer.Option(name, help=text, **shown)


def argument(metavar: str, text: str, **shown: Any) -> Any:
    """Return an argument with its help; `shown` as of typer."""
    return typer.Argument(metavar=metavar, help=text, **shown)


JsonFlag = Annotated[bool, option("--json", "Print the result as JSON on stdout.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.")]
CampaignFile = Annotated[
    Path, argument("FILE", "Campaign in YAML, or a campaign directory to resume.", show_default=False)
]
CampaignPath = Annotated[Path, argument("DIR", "Campaign directory, or a zip of one.", show_default=False)]
OutDirectory = Annotated[Path | None, option("--out", "Campaign directory to write.", metavar="DIR")]
Blocks = Annotated[int | None, option("--blocks", "A fixed number of blocks instead of adaptive ones.", min=1)]
Minutes = Annotated[
    float | None, option("--minutes", "Time budget in minutes; instead of the file's.", metavar="N", min=0.1)
]
ScratchDirectory = Annotated[Path | None, option("--scratch", "Folder of the loop files.", metavar="DIR")]
OtherHost = Annotated[
    str | None, option("--host", "local, ssh://[user@]host[:port], exec:... or lab; instead of the file's.")
]
OnCluster = Annotated[
    str | None,
    option(
        "--on",
        "Use the workers of a Dask cluster: dask:local, dask:tls://host:8786, or what hosts: {dask: ...} takes.",
        metavar="dask:ADDRESS",
    ),
]
FailOn = Annotated[
    list[str] | None,
    option(
        "--fail-on",
        "Exit 5 when it holds over the whole interval, e.g. 'tps(xfs) < 0.95*tps(ext4)'. Repeatable.",
        metavar="CONDITION",
    ),
]
FailUndecided = Annotated[
    bool, option("--fail-undecided", "Exit 5 when a --fail-on condition is undecided, too.", show_default=False)
]


def parsed(option: str, text: str, parse: Callable[[str], T], example: str) -> T:
    """Return the value of an option; UsageError where it cannot be parsed."""
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint=f"for example {option} {example}") from None


def parse_margin(text: str) -> float:
    """Return the share of `--margin`; UsageError unless it lies between 0 and 1."""
    from pgstrata.spec.units import parse_fraction

    value = parsed("--margin", text, parse_fraction, "2%")
    if not 0 < value < 1:
        raise UsageError(f"--margin {text} is not between 0 and 100 %", hint="for example --margin 2%")
    return value


def print_text(text: str) -> None:
    """Print a result for people on stdout."""
    shown = printable(text)
    sys.stdout.write(shown if shown.endswith("\n") else shown + "\n")
    sys.stdout.flush()


def print_json(value: Mapping[str, Any] | list[Any]) -> None:
    """Print a result for programs on stdout."""
    print_text(json.dumps(value, indent=2, default=str, allow_nan=False))


def print_result(value: Mapping[str, Any] | list[Any], text: Callable[[], str], *, json: bool) -> None:
    """Print a result, for programs or for people."""
    if json:
        print_json(value)
    else:
        print_text(text())


def print_notice(text: str) -> None:
    """Print a notice, which is no result, on stderr."""
    shown = printable(text)
    sys.stderr.write(shown if shown.endswith("\n") else shown + "\n")
    sys.stderr.flush()


def print_error(error: PgstrataError) -> None:
    """Print `error:` and, if known, `HINT:` on a separate line."""
    print_notice(f"error: {error.message}")
    if error.hint:
        print_notice(f"HINT: {error.hint}")


def debugging() -> bool:
    """True if the user wants tracebacks (PGSTRATA_DEBUG=1)."""
    return os.environ.get("PGSTRATA_DEBUG", "") not in ("", "0")


def tell_unreadable(unreadable: Sequence[UnreadableTrial]) -> None:
    """Name the trials of a record that could not be read."""
    for trial in unreadable:
        print_notice(f"{trial.id} could not be read and counts for nothing: {trial.reason}")


def end_of_reading(data: CampaignData) -> ExitCode:
    """Return the exit code of a verb that shows a record: unreadable or missing trials are a failure."""
    if not (data.trials or data.crashes or data.unreadable):
        print_notice(f"{data.source.text} has no finished trial: there is nothing to show")
        return ExitCode.TRIALS_FAILED
    return ExitCode.TRIALS_FAILED if data.unreadable else ExitCode.DONE


def end(code: ExitCode) -> None:
    """End the verb with an exit code other than 0."""
    if code is not ExitCode.DONE:
        raise typer.Exit(int(code))


# ---------------------------------------------------------------- groups of verbs

LONGEST_SENTENCE = 1000


class Group(TyperGroup):
    """Sentences are wrapped, where the library would cut them off in the middle."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(LONGEST_SENTENCE)) for name, command in commands if command]
            )
