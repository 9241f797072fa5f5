"""Names of hosts inside of which a program runs commands: `exec:podman exec -i db`."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from pgstrata.errors import UsageError

EXEC = "exec:"
CONTAINER_PROGRAMS = ("podman", "docker", "nerdctl", "kubectl")
_OPTIONS = ("--namespace", "-n", "--container", "-c", "--context", "--user", "-u")
_SWITCHES = ("-i", "--interactive", "--stdin")
_NAME = re.compile(r"[A-Za-z0-9][\w./@:-]*", re.ASCII)
_FORMS = "exec:podman exec -i NAME, exec:docker exec -i NAME, exec:kubectl exec -i POD --"


@dataclass(frozen=True)
class ExecTarget:
    """A program with the arguments before the command that it runs over there."""

    argv: tuple[str, ...]

    @property
    def text(self) -> str:
        return EXEC + shlex.join(self.argv)


def parse_exec(text: str) -> ExecTarget:
    """UsageError when it is not `exec:PROGRAM [ARGUMENT...]`."""
    try:
        argv = tuple(shlex.split(text.removeprefix(EXEC)))
    except ValueError as error:
        raise UsageError(f"not an exec host: {text}: {error}", hint=_FORMS) from None
    if not argv or argv[0].startswith("-"):
        raise UsageError(f"not an exec host: {text}: no program is named", hint=_FORMS)
    return ExecTarget(argv)


def exec_problem(text: str) -> str:
    """Return why a campaign's file cannot name this host; empty if it can.

    A file may be someone else's, and planning it connects to its host: it names a container, and no other program.
    """
    try:
        program, *words = parse_exec(text).argv
    except UsageError as error:
        return f"{error.message} ({error.hint})"
    if program not in CONTAINER_PROGRAMS or "exec" not in words:
        return f"a campaign's file names a container ({_FORMS}); other programs are for --host"
    while words:
        word = words.pop(0)
        if word in _OPTIONS and words:
            word = words.pop(0)
        elif word in _SWITCHES or (word == "--" and not words):
            continue
        if not _NAME.fullmatch(word):
            return f"{word!r} does not stand in the host of a campaign's file: name it with --host"
    return ""
