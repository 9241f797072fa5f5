"""Settings of the server: checked before start, written, and read back.

The server is the judge of its own settings: `postgres -C` says without any cluster whether a setting exists and
what a value means (`1GB` is 131072 pages), so that no table of names and units has to be kept here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Command, Host
from pgstrata.postgres.binaries import Installation, render_setting_query

COMPUTED_AT_START = {
    "wal_buffers": "-1",
    "transaction_buffers": "0",
    "commit_timestamp_buffers": "0",
    "subtransaction_buffers": "0",
}
"""Settings with a value that tells the server to work out another one; reading back gives the other one."""

UNUSED_HERE = {
    "archive_command": "(disabled)",
    "tcp_keepalives_count": "0",
    "tcp_keepalives_idle": "0",
    "tcp_keepalives_interval": "0",
    "tcp_user_timeout": "0",
}
"""Settings that read back like this where they have no effect: without archive_mode, and over a Unix socket."""

_UNKNOWN = "unrecognized configuration parameter"


@dataclass(frozen=True)
class AttestedSetting:
    """One setting: what was asked, what the running server says (both as pg_settings prints them)."""

    what: str
    expected: str
    actual: str
    holds: bool


def check_settings(host: Host, installation: Installation, user: str, asked: Mapping[str, str]) -> dict[str, str]:
    """The settings as the server normalises them: raw numbers in the unit of pg_settings.

    Raises PreflightError for an unknown name (with the nearest one) or an invalid value. Settings of extensions
    (`auto_explain.log_min_duration`) are taken as they are, as the server does before it loads the extension.
    """
    normalised: dict[str, str] = {}
    for name, value in asked.items():
        if "." in name:
            normalised[name] = value
            continue
        query = Command(render_setting_query(installation.bin_directory, name, value), user=user, cwd="/")
        answer = host.run(query, check=False)
        if answer.exit_code != 0:
            raise _refusal(host, installation, name, value, answer.stderr)
        normalised[name] = answer.stdout.removesuffix("\n")
    return normalised


def known_settings(host: Host, installation: Installation) -> tuple[str, ...]:
    """Names that `postgres --describe-config` prints: all but developer settings."""
    text = host.run(Command((f"{installation.bin_directory}/postgres", "--describe-config"))).stdout
    return tuple(line.split("\t", 1)[0] for line in text.splitlines() if line)


def _refusal(host: Host, installation: Installation, name: str, value: str, said: str) -> PreflightError:
    server = f"PostgreSQL {installation.version}"
    if _UNKNOWN in said:
        near = difflib.get_close_matches(name, known_settings(host, installation), n=1)
        hint = f"did you mean {near[0]}?" if near else f"{installation.program('postgres')} --describe-config"
        return PreflightError(f"unknown setting {name!r} of {server}", hint=hint)
    why = next((line for line in said.splitlines() if "FATAL" in line), said.strip())
    hints = [line.split("HINT:", 1)[1].strip() for line in said.splitlines() if "HINT:" in line]
    why = why.split("FATAL:", 1)[-1].strip()
    return PreflightError(f"{server} refuses {name} = {value!r}: {why}", hint=hints[0] if hints else "")


def render_conf(settings: Mapping[str, str]) -> str:
    """Lines of a postgresql.conf, with values quoted as the server wants them."""
    return "".join(f"{name} = '{_quoted(value)}'\n" for name, value in settings.items())


def _quoted(value: str) -> str:
    if "\n" in value:
        raise PreflightError(f"a setting's value spans lines: {value!r}", hint="write it in one line")
    return value.replace("\\", "\\\\").replace("'", "''")


_CONF_LINE = re.compile(r"^\s*([A-Za-z_][\w.$]*)\s*(?:=|\s)\s*('(?:[^'\\\n]|''|\\.)*'|[^\s#']+)\s*(?:#.*)?$")


def parse_conf(text: str) -> dict[str, str]:
    """The settings of a postgresql.conf; the last one of a name counts, as for the server.

    Raises PreflightError for a line that is none, and for include directives, because a file that is not part of the
    record would decide.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _CONF_LINE.match(line)
        if match is None or match[1].lower() in ("include", "include_dir", "include_if_exists"):
            why = "includes another file" if match else "is not `name = value`"
            hint = "put its lines into this file" if match else "see to the quotes: name = 'value'"
            raise PreflightError(f"postgresql_conf: line {number} {why}: {line.strip()}", hint=hint)
        found[match[1].lower()] = _unquoted(match[2])
    return found


def _unquoted(token: str) -> str:
    if not token.startswith("'"):
        return token
    return re.sub(r"''|\\(.)", lambda m: m[1] or "'", token[1:-1])


def compare_settings(expected: Mapping[str, str], actual: Mapping[str, str]) -> tuple[AttestedSetting, ...]:
    """Normalised settings against pg_settings, one by one."""
    compared = []
    for name, value in expected.items():
        have = actual.get(name.lower(), "(not set)")
        compared.append(AttestedSetting(name, value, have, _same(name, value, have)))
    return tuple(compared)


def _same(name: str, expected: str, actual: str) -> bool:
    if expected == actual or COMPUTED_AT_START.get(name) == expected or UNUSED_HERE.get(name) == actual:
        return True
    if name.lower() in ("timezone", "log_timezone"):
        return expected.lower() == actual.lower()
    try:
        # Modes are shown in octal by pg_settings and in decimal by `postgres -C`.
        return int(expected) == int(actual, 8 if actual.startswith("0") else 10)
    except ValueError:
        return False
