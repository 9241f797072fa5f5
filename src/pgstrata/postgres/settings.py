"""Settings of the server: checked before start, written, and read back.

The server is the judge of its own settings: `postgres -C` says without any cluster whether a setting exists and
what a value means (`1GB` is 131072 pages), so that no table of names and units has to be kept here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from pgstrata.errors import PreflightError, all_at_once
from pgstrata.host.facts.system import read_memory
from pgstrata.host.protocol import Command, Host
from pgstrata.postgres.binaries import Installation, render_setting_query
from pgstrata.spec.server_settings import conf_lines, form_problem, setting_problems, split_libraries, why_left_out
from pgstrata.spec.units import render_size
from pgstrata.stack.step import Attested

_PROBE = Path(__file__).with_name("settings_probe.py")

COMPUTED_AT_START = {
    "wal_buffers": "-1",
    "transaction_buffers": "0",
    "commit_timestamp_buffers": "0",
    "subtransaction_buffers": "0",
}
"""Settings with a value that tells the server to work out another one; reading back gives the other one."""

IMPORTANT = (
    "server_version", "block_size", "wal_segment_size", "data_checksums", "shared_buffers", "huge_pages",
    "max_connections", "work_mem", "maintenance_work_mem", "effective_cache_size", "fsync", "synchronous_commit",
    "full_page_writes", "wal_level", "wal_sync_method", "wal_compression", "wal_buffers", "wal_init_zero",
    "wal_recycle", "wal_writer_delay", "wal_writer_flush_after", "commit_delay", "max_wal_size", "min_wal_size",
    "checkpoint_timeout",
    "checkpoint_completion_target", "checkpoint_flush_after", "bgwriter_delay", "bgwriter_lru_maxpages",
    "bgwriter_flush_after", "backend_flush_after", "effective_io_concurrency", "maintenance_io_concurrency",
    "io_method", "io_workers", "io_combine_limit", "debug_io_direct", "file_copy_method",
    "random_page_cost", "seq_page_cost", "jit",
    "max_parallel_workers_per_gather", "autovacuum", "autovacuum_naptime", "autovacuum_vacuum_cost_delay",
    "track_io_timing", "track_wal_io_timing", "shared_preload_libraries",
)  # fmt: skip
"""Settings that decide on speed and durability beside the storage: told of every server, also at their default."""

_FACTORS = {
    **{unit: Fraction(1024) ** power for power, unit in enumerate(("B", "kB", "MB", "GB", "TB"))},
    "us": Fraction(1, 1000),
    "ms": Fraction(1),
    "s": Fraction(1000),
    "min": Fraction(60_000),
    "h": Fraction(3_600_000),
    "d": Fraction(86_400_000),
}
"""Units of the server, in bytes and in milliseconds."""
_SIZES = ("B", "kB", "MB", "GB", "TB")
_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,2})?)\s*([A-Za-z]*)\s*", re.ASCII)

_UNKNOWN = "unrecognized configuration parameter"


@dataclass(frozen=True)
class SettingKind:
    """Type and unit of a setting, as pg_settings names them."""

    vartype: str
    unit: str | None = None


@dataclass(frozen=True)
class ServerSetting:
    """One setting in force, as pg_settings has it: value and default in `unit`."""

    name: str
    setting: str
    unit: str | None
    default: str | None
    source: str


@dataclass(frozen=True)
class CheckedSettings:
    """Answer of the server to settings before it starts."""

    normalised: Mapping[str, str]
    """Settings that it takes: raw numbers in the unit of pg_settings."""
    refusals: tuple[PreflightError, ...]
    """One for each unknown name (with the nearest one) and each invalid value."""


def check_settings(host: Host, installation: Installation, user: str, asked: Mapping[str, str]) -> dict[str, str]:
    """The settings as the server normalises them. PreflightError with all that it refuses."""
    checked = ask_settings(host, installation, user, asked)
    if checked.refusals:
        raise all_at_once(checked.refusals)
    return dict(checked.normalised)


def ask_settings(host: Host, installation: Installation, user: str, asked: Mapping[str, str]) -> CheckedSettings:
    """Asks the server about each of the settings.

    Settings of extensions (`auto_explain.log_min_duration`) are taken as they are, as the server does before it loads
    the extension.
    """
    normalised: dict[str, str] = {}
    refusals: list[PreflightError] = []
    for name, value in asked.items():
        if "." in name:
            normalised[name] = value
            continue
        query = Command(render_setting_query(installation.bin_directory, name, value), user=user, cwd="/")
        answer = host.run(query, check=False)
        if answer.exit_code != 0:
            refusals.append(_refusal(host, installation, name, value, answer.stderr))
        else:
            normalised[name] = answer.stdout.removesuffix("\n")
    return CheckedSettings(normalised, tuple(refusals))


def refuse_together(host: Host, installation: Installation, user: str, settings: Mapping[str, str]) -> None:
    """Raise PreflightError if the server accepts each of the settings, but not all of them together."""
    asked = [f"{name}={value}" for name, value in settings.items()]
    argv = ("python3", "-I", "-", installation.program("postgres"), str(installation.major), *asked)
    probe = Command(argv, stdin=_PROBE.read_text(encoding="utf-8"), user=user, cwd="/")
    answer = host.run(probe, check=False)
    if answer.exit_code != 0:
        lines = [line for line in (answer.stdout or answer.stderr).splitlines() if "LOG:" not in line] or ["no reason"]
        why = lines[0].split("FATAL:", 1)[-1].strip()
        raise PreflightError(
            f"PostgreSQL {installation.version} refuses the settings together: {why}",
            hint="change one of the settings that it names",
        )


def refuse_large_buffers(host: Host, installation: Installation, normalised: Mapping[str, str]) -> None:
    """Raise PreflightError for shared buffers that are larger than the memory of the host."""
    pages = normalised.get("shared_buffers", "")
    buffers_bytes, memory_bytes = int(pages or 0) * installation.block_size_bytes, read_memory(host).get("MemTotal", 0)
    if 0 < memory_bytes < buffers_bytes:
        raise PreflightError(
            f"shared_buffers = {render_size(buffers_bytes)} is more than {host.name} has: {render_size(memory_bytes)}",
            hint="a quarter of the memory is usual",
        )


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
    for name, value in settings.items():
        if problem := form_problem(name, value):
            raise PreflightError(problem, hint="a setting is a name and a value, on one line")
    return "".join(f"{name} = '{_quoted(value)}'\n" for name, value in settings.items())


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "''")


@dataclass(frozen=True)
class GivenConf:
    """Settings taken over of a whole postgresql.conf; `left_out` has the reason for each of the other settings."""

    settings: Mapping[str, str]
    left_out: Mapping[str, str]

    @property
    def lines(self) -> tuple[str, ...]:
        """Settings that were left out, with the reason, for people."""
        return tuple(f"{name}: {why}" for name, why in self.left_out.items())


def take_over(text: str) -> GivenConf:
    """The settings of a postgresql.conf that may act on a server under test (see spec.server_settings).

    Raises PreflightError for a line that is none.
    """
    settings: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name, value in parse_conf(text).items():
        if why := why_left_out(name, value):
            left_out[name] = why
        elif name == "shared_preload_libraries":
            kept, others = split_libraries(value)
            settings |= {name: ", ".join(kept)} if kept else {}
            left_out |= {f"{name} = {other}": "it loads code into the server" for other in others}
        else:
            settings[name] = value
    return GivenConf(settings, left_out)


def refuse_settings(settings: Mapping[str, str]) -> None:
    """PreflightError for a setting that a stack may not bring."""
    for problem in setting_problems(dict(settings)):
        raise PreflightError(problem.text, hint=problem.hint)


def parse_conf(text: str) -> dict[str, str]:
    """The settings of a postgresql.conf, include directives too; the last one of a name counts, as for the server.

    Raises PreflightError for a line that is none.
    """
    found: dict[str, str] = {}
    for line in conf_lines(text):
        if line.name is None:
            raise PreflightError(
                f"postgresql_conf: line {line.number} is not `name = value`: {line.text.strip()}",
                hint="see to the quotes: name = 'value'",
            )
        found[line.name] = line.value
    return found


def compare_settings(
    expected: Mapping[str, str], actual: Mapping[str, str], kinds: Mapping[str, SettingKind] | None = None
) -> tuple[Attested, ...]:
    """Compare settings with pg_settings, one by one.

    `kinds` has the type and unit of each setting: a setting of an extension is normalised by no `postgres -C`.
    """
    compared = []
    for name, value in expected.items():
        have = actual.get(name.lower(), "(not set)")
        kind = (kinds or {}).get(name.lower())
        holds = _same(name, value, have) or (kind is not None and "." in name and normalise(value, kind) == have)
        compared.append(Attested(name, value, have, holds))
    return tuple(compared)


def normalise(value: str, kind: SettingKind) -> str:
    """Return a value as pg_settings prints it; a value of another kind unchanged."""
    match kind.vartype:
        case "bool":
            return _normalise_boolean(value)
        case "enum":
            return value.lower()
        case "integer" | "real":
            number = _in_unit(value, kind.unit)
            if number is None:
                return value
            return str(round(number)) if kind.vartype == "integer" else f"{float(number):g}"
    return value


def _normalise_boolean(value: str) -> str:
    """Return `on` or `off` for any unambiguous prefix that the server accepts."""
    low = value.strip().lower()
    if low in ("on", "1") or (low and ("true".startswith(low) or "yes".startswith(low))):
        return "on"
    if low in ("of", "off", "0") or (low and ("false".startswith(low) or "no".startswith(low))):
        return "off"
    return value


def _in_unit(value: str, unit: str | None) -> Fraction | None:
    """Return the number in a unit of pg_settings (`ms`, `8kB`); None without one, or in a unit of another quantity."""
    of_server = unit or ""
    written = _QUANTITY.fullmatch(value)
    own = _QUANTITY.fullmatch(of_server if of_server[:1].isdigit() else f"1{of_server}")
    if written is None or own is None:
        return None
    number, suffix = Fraction(written[1]), written[2]
    if not suffix:
        return number
    if suffix not in _FACTORS or own[2] not in _FACTORS or (suffix in _SIZES) != (own[2] in _SIZES):
        return None
    return number * _FACTORS[suffix] / (Fraction(own[1]) * _FACTORS[own[2]])


def _same(name: str, expected: str, actual: str) -> bool:
    if expected == actual or COMPUTED_AT_START.get(name) == expected:
        return True
    if name.lower() in ("timezone", "log_timezone"):
        return expected.lower() == actual.lower()
    try:
        # Modes are shown in octal by pg_settings and in decimal by `postgres -C`.
        return int(expected) == int(actual, 8 if actual.startswith("0") else 10)
    except ValueError:
        return False
