"""The program `pgstrata`: registers the verbs and turns errors into messages and exit codes."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from pgstrata import __version__
from pgstrata.cli.output import Group, debugging, option, print_error, print_notice
from pgstrata.errors import ExitCode, PgstrataError, UsageError

_GUESS = re.compile(r"(?: Did you mean (?P<names>.+)\?| \(Possible options: (?P<options>.+)\))$")
_RENAMED = {
    "--budget": "--minutes N",
    "--to": "--out FOLDER",
    "--bundle": "--out FILE",
    "--iops": "a stack on a modelled medium, media(hdd-7200)/xfs",
    "--bandwidth": "a stack on a modelled medium",
}
"""Options of the version before, with their present names."""
_WORDS = (
    (re.compile(r"^Invalid value for '(?P<name>[^']+)': "), r"\g<name>: "),
    (re.compile(r"Input should be a valid integer.*$"), "not a whole number"),
    (re.compile(r"Input should be a valid number.*$"), "not a number"),
    (re.compile(r"Input should be greater than or equal to "), "must be at least "),
)


def show_usage_error(error: Any) -> int:
    """Prints what the parser of the command line raised; returns the exit code. A verb without words shows its help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print_notice(error.format_message())
    else:
        print_error(explain_usage_error(error.format_message(), _command(error)))
    return int(ExitCode.USAGE)


def explain_usage_error(message: str, command: str) -> UsageError:
    """The parser's sentence in our words; `command` is the verb, whose help is the hint where nothing is near."""
    hint = f"{command} --help"
    guess = _GUESS.search(message)
    if guess is not None:
        message = message[: guess.start()]
        hint = f"did you mean {(guess['names'] or guess['options']).replace(chr(39), '')}? {hint} lists all"
    for pattern, words in _WORDS:
        message = pattern.sub(words, message)
    message = message.strip().removesuffix(".")
    if new := _RENAMED.get(message.removeprefix("No such option: ")):
        hint = f"it is {new} now; {command} --help lists all"
    return UsageError(f"{message[:1].lower()}{message[1:]}", hint=hint)


def _command(error: Any) -> str:
    context = getattr(error, "ctx", None)
    return str(context.command_path) if context is not None else "pgstrata"


# ---------------------------------------------------------------- the program

VERBS = (
    "quick tune plan run crash crash_state status report watch compare bundle doctor medium clean capture import_ "
    "studies lab simulate"
)
"""Modules of the verbs, in the order of the help."""
EPILOG = "Example: pgstrata quick ext4 xfs:noatime btrfs:nodatacow tmpfs --minutes 20"


class Verbs(Group):
    """Verbs of one word, and of two (`crash replay`) where the first one is a verb by itself."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        both = " ".join(args[:2])
        return super().resolve_command(ctx, [both, *args[2:]] if both in self.commands else args)


app = typer.Typer(
    name="pgstrata",
    cls=Verbs,
    help="Which storage stack should PostgreSQL sit on: build it, measure it, judge it.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"pgstrata {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, option("--version", "Print the version.", callback=_print_version, is_eager=True)] = False,
) -> None:
    """Which storage stack should PostgreSQL sit on: build it, measure it, judge it."""


for _verb in VERBS.split():
    import_module(f"pgstrata.cli.verbs.{_verb}").register(app)


def main() -> None:
    """Entry point of the program; ends it with an exit code of `errors.ExitCode`."""
    try:
        sys.exit(app(prog_name="pgstrata", standalone_mode=False))
    except TyperException as error:
        sys.exit(show_usage_error(error))
    except PgstrataError as error:
        if debugging():
            raise
        print_error(error)
        sys.exit(int(error.exit_code))
    except OSError as error:
        if debugging():
            raise
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        print_error(PgstrataError(what, hint="PGSTRATA_DEBUG=1 shows where it happened"))
        sys.exit(int(ExitCode.REFUSED))
    except Exception as error:
        if debugging():
            raise
        what = f"internal error: {type(error).__name__}: {error}"
        print_error(PgstrataError(what, hint="PGSTRATA_DEBUG=1 shows where; please report it"))
        sys.exit(int(ExitCode.INTERNAL))
    except KeyboardInterrupt:
        print_notice("interrupted")
        sys.exit(int(ExitCode.INTERRUPTED))


if __name__ == "__main__":
    main()
