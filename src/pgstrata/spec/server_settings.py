"""The settings of PostgreSQL 13 to 18 that a stack may bring: an allowlist of names.

The list (server_settings.txt) holds settings that affect speed, durability or behaviour of the server under test. It
excludes settings that reach outside the server (commands, archives, other servers, addresses, libraries, other files),
and those of newer majors: a production server's file must not act on a server that is only measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from pgstrata.spec.file.nearest import nearest
from pgstrata.spec.file.problems import Location, Problem

if TYPE_CHECKING:
    from pgstrata.spec.stack import Stack

_LINE = re.compile(r"\s*([A-Za-z_][\w.$]*)\s*(?:=|\s)\s*('(?:[^'\\\n]|''|\\.)*'|[^\s#']+)\s*(?:#.*)?", re.ASCII)


@dataclass(frozen=True)
class ConfLine:
    """A line that sets something, or that is not `name = value`: then `name` is None. Names are in lower case."""

    number: int
    text: str
    name: str | None = None
    value: str = ""


def conf_lines(text: str) -> Iterator[ConfLine]:
    """Every line but comments and empty ones; of several with one name the last one counts for the server."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        yield ConfLine(number, line) if match is None else ConfLine(number, line, match[1].lower(), _unquoted(match[2]))


_ESCAPE = re.compile(r"''|\\([0-7]{1,3}|.)")
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def _unquoted(token: str) -> str:
    """The value as the server reads it (GUC_scanstr of guc-file.l)."""
    return _ESCAPE.sub(_unescaped, token[1:-1]) if token.startswith("'") else token


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped is None:
        return "'"
    return chr(int(escaped, 8) & 0xFF) if escaped[0] in "01234567" else _CONTROLS.get(escaped, escaped)


TAKEN = frozenset(
    line
    for line in (files("pgstrata.spec") / "server_settings.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
)
"""Names in lower case; the server ignores case."""

LIBRARIES = frozenset({"pg_stat_statements", "auto_explain"})
"""Allowed names of shared_preload_libraries: they start no process and touch only the server's own files. pg_prewarm
starts one; tables are read into memory before each run anyway."""

OWN = frozenset(
    {
        "logging_collector", "log_destination", "log_line_prefix", "log_timezone", "lc_messages", "log_checkpoints",
        "unix_socket_permissions", "unix_socket_directories", "unix_socket_group", "listen_addresses", "port",
        "data_directory", "hba_file", "ident_file", "external_pid_file",
    }
)  # fmt: skip
"""Settings that pgstrata decides: the parsers of the log, the private socket and the folders rely on them."""

_REASONS = (
    (r"archive_.*", "WAL is not archived"),
    (r".*_command", "it names a command for the server to run"),
    (r"recovery_.*|restore_.*|promote_trigger_file|standby_mode", "nothing is recovered from an archive"),
    (r"primary_.*|synchronous_standby_names|synchronized_standby_slots|hot_standby.*|max_standby_.*|wal_re(?:ceiv|tr).*"
     r"|sync_replication_slots|.*logical_replication_workers|max_(?:sync|parallel_apply)_workers.*",
     "no other server takes part"),
    (r".*_librar(?:y|ies)|jit_provider|.*_path|extension_destdir", "it loads code into the server"),
    (r"ssl.*|krb_.*|gss_.*|oauth_.*|password_.*|scram_.*|authentication_timeout|db_user_namespace|md5_.*|bonjour.*"
     r"|tcp_.*|log_hostname", "clients come by a private socket alone"),
    (r"log_(?:directory|filename|file_mode|rotation_.*|truncate_on_rotation)|syslog_.*|event_source|stats_temp_directory",
     "the log is kept with the trial"),
    (r"lc_.*|client_encoding|icu_.*", "clusters are made in UTF-8 and locale C"),
    (r"include(?:_dir|_if_exists)?", "it reads another file, which is not on record"),
)  # fmt: skip

_NAME = re.compile(r"[a-z_][a-z0-9_$]*(?:\.[a-z_][a-z0-9_$]*)*")
_EXTENSION_PREFIXES = (*LIBRARIES, "plpgsql")
INITDB_WITH_VALUE = frozenset({
    "-E", "--encoding", "-T", "--text-search-config", "--wal-segsize",
    "--locale", "--lc-collate", "--lc-ctype", "--lc-messages", "--lc-monetary", "--lc-numeric", "--lc-time",
    "--locale-provider", "--icu-locale", "--icu-rules", "--builtin-locale",
})  # fmt: skip
INITDB_ALONE = frozenset({
    "-k", "--data-checksums", "--no-data-checksums", "--no-locale", "-g", "--allow-group-access", "-N", "--no-sync",
    "--no-instructions",
})  # fmt: skip

_INITDB_WORD = re.compile(r"(?P<long>--[a-z-]+)(?:=(?P<value>.*))?|(?P<short>-[A-Za-z])(?P<stuck>.*)", re.DOTALL)
_INITDB_VALUE = re.compile(r"[\w .@&<>'=+-]*")


def form_problem(name: str, value: str) -> str | None:
    """The reason why a setting cannot be one line of a postgresql.conf; None if it can."""
    if _NAME.fullmatch(name.lower()) is None:
        return f"{name!r} is no name of a setting"
    if not value.isprintable():
        return f"the value of {name} holds a line break or another control character: {value!r}"
    return None


def why_left_out(name: str, value: str) -> str | None:
    """The reason why a setting (name in lower case) of a whole postgresql.conf is left out; None if it is taken
    over."""
    if problem := form_problem(name, value):
        return problem
    if "." in name:
        known = name.split(".", 1)[0] in _EXTENSION_PREFIXES
        return None if known else "its extension is not loaded"
    if name in TAKEN:
        return None
    if name in OWN:
        return "pgstrata sets it itself"
    reasons = (why for pattern, why in _REASONS if re.fullmatch(pattern, name))
    return next(reasons, "it is not among the settings of PostgreSQL 13 to 18 that are taken over")


def split_libraries(value: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names in shared_preload_libraries: first the allowed ones, then the others."""
    names = [name.strip().strip('"') for name in value.split(",") if name.strip()]
    return tuple(n for n in names if n in LIBRARIES), tuple(n for n in names if n not in LIBRARIES)


SETTINGS_OF_STACK = ("postgresql", "settings")


def stack_setting_problems(stack: Stack) -> Iterator[Problem]:
    """Invalid settings of all servers of a stack."""
    yield from setting_problems(stack.postgresql.settings)
    for number, standby in enumerate(stack.topology.standbys if stack.topology else ()):
        yield from setting_problems(standby.settings, ("topology", "standbys", number, "settings"))


def setting_problems(settings: dict[str, str], location: Location = SETTINGS_OF_STACK) -> Iterator[Problem]:
    """Invalid settings among those that a campaign writes itself; settings of extensions are not checked.

    A setting of an extension has no effect unless the extension is loaded, and the list above limits that.
    """
    for name, value in settings.items():
        where = (*location, name)
        why = None if "." in name else why_left_out(name.lower(), value)
        if problem := form_problem(name, value):
            yield Problem(where, problem, "a setting is NAME: VALUE, on one line")
        elif why is not None:
            near = None if name.lower() in OWN else nearest(name.lower(), TAKEN)
            hint = f"did you mean {near}?" if near else f"leave {name} out; docs/postgresql.md says what may be set"
            yield Problem(where, f"setting {name!r} is refused: {why}", hint)
        elif name.lower() == "shared_preload_libraries" and (others := split_libraries(value)[1]):
            hint = f"these may be loaded: {', '.join(sorted(LIBRARIES))}"
            yield Problem(where, f"shared_preload_libraries may not load {others[0]!r}", hint)


def initdb_problem(options: Sequence[str]) -> str:
    """Return why initdb may not be called with these; empty if it may: those that decide what is in the cluster.

    Not those that name files and folders to read or write (`--pgdata`, `--waldir`, `--pwfile`, `-L`), that decide who
    may come in (`--auth`, `--username`) or that set the server (`--set`): a campaign from somebody else must not do the
    first, and pgstrata does the others itself. Names as initdb spells them, since it also takes abbreviations.
    """
    words = iter(options)
    for word in words:
        match = _INITDB_WORD.fullmatch(word)
        if match is None:
            return f"{word!r} is no option of initdb"
        name = match["long"] or match["short"]
        value = match["value"] if match["long"] else match["stuck"] or None
        if name in INITDB_WITH_VALUE:
            value = next(words, None) if value is None else value
            if value is None or _INITDB_VALUE.fullmatch(value) is None or value.startswith("-"):
                return f"initdb option {name} has no value that could be one: {value!r}"
        elif name not in INITDB_ALONE:
            return f"initdb option {name} is not taken: only {', '.join(sorted(INITDB_WITH_VALUE | INITDB_ALONE))} are"
        elif value is not None:
            return f"initdb option {name} takes no value: {word!r}"
    return ""
