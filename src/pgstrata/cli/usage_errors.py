"""A command line that the parser refuses, said as every other error is: one line, and a hint."""

from __future__ import annotations

import re
from typing import Any

from pgstrata.cli.output import print_error, print_notice
from pgstrata.errors import ExitCode, UsageError

_GUESS = re.compile(r"(?: Did you mean (?P<names>.+)\?| \(Possible options: (?P<options>.+)\))$")
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
    return UsageError(f"{message[:1].lower()}{message[1:]}", hint=hint)


def _command(error: Any) -> str:
    context = getattr(error, "ctx", None)
    return str(context.command_path) if context is not None else "pgstrata"
