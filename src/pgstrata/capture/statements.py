"""A mix of pgbench scripts from pg_stat_statements, whose parameters are drawn from the data.

pg_stat_statements has no values: `$1` stands for each. A parameter that is compared with a column, or assigned to one,
is drawn from that column; LIMIT gets the mean number of rows. `draw.sql` makes a table of draws for each statement;
parameters of one table in one statement come from one row, as most real ones do. Statements with other parameters are
left out and counted with their share of the time.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgstrata.errors import NotUnderstood, UsageError
from pgstrata.spec.scripts import MOST_SCRIPTS

DRAWS = 10_000
"""Rows in the table of draws of a statement."""
WEIGHTS = 100_000
"""Sum of the weights, nearly: a script runs once in so many transactions at least."""
LEAST_SHARE = 1e-4
"""Statements with a smaller share of the time are left out: their scripts would only lengthen the mix."""

SCHEMA = "pgstrata_draws"

RARE = f"below {LEAST_SHARE:.2%} of the time, or beyond {MOST_SCRIPTS} statements"
_KEYWORDS = frozenset(
    ("set", "where", "on", "using", "group", "order", "limit", "inner", "left", "right", "full", "cross", "join", "as")
)
_NAME = r'(?:[A-Za-z_\u0080-\uffff][\w$\u0080-\uffff]*|"(?:[^"]|"")+")'
_SOURCE = rf"\s*(?:only\s+)?(?P<table>{_NAME}(?:\.{_NAME})?)(?:\s+(?:as\s+)?(?P<alias>{_NAME}))?"
_TABLE = re.compile(rf"\b(?:from|join|update)\s{_SOURCE}", re.IGNORECASE)
_FURTHER = re.compile(rf"\s*,{_SOURCE}", re.IGNORECASE)
_COLUMN = rf"(?:(?P<owner>{_NAME})\.)?(?P<column>{_NAME})"
_EQUAL = re.compile(rf"{_COLUMN}\s*(?:=|\+|-|\*)\s*\$(?P<number>\d+)\b")
_LIST = r"(?P<list>\s*\$\d+(?:\s*,\s*\$\d+)*\s*(?:/\*.*?\*/)?\s*)"
_IN = re.compile(rf"{_COLUMN}\s+in\s*\({_LIST}\)", re.IGNORECASE | re.DOTALL)
_LIMIT = re.compile(r"\b(?P<what>limit|offset)\s+\$(?P<number>\d+)\b", re.IGNORECASE)
_PARAMETER = re.compile(r"\$(\d+)\b")
_VERB = re.compile(r"\s*(?:--[^\n]*\n\s*|/\*.*?\*/\s*)*(\w+)", re.DOTALL)

_REFUSED = {
    "insert": "INSERT: keys drawn from the data are there already",
    "delete": "DELETE: the rows are gone the next time",
    "with": "WITH: columns of its parts are not known",
}


@dataclass(frozen=True)
class Statement:
    """A row of pg_stat_statements."""

    query: str
    calls: int
    time_ms: float
    """Total execution time."""
    rows: int


@dataclass(frozen=True)
class Draw:
    """A parameter that is a column of a table; `row` tells those apart that come from different rows."""

    table: str
    column: str
    row: int


@dataclass(frozen=True)
class Part:
    """A script of the mix."""

    name: str
    statement: Statement
    weight: int
    draws: Mapping[int, Draw]
    constants: Mapping[int, int]


@dataclass(frozen=True)
class Mix:
    """The scripts, and the share of the total time that they cover."""

    parts: Sequence[Part]
    covered: float
    left_out: Mapping[str, float]
    """Share of the total time by reason."""

    def weighted(self, folder: Path) -> str:
        """The mix as `workload.script` takes it."""
        parts = [f"{folder / part.name}.sql@{part.weight}" for part in self.parts]
        return "+".join(parts) if len(parts) > 1 else parts[0].rpartition("@")[0]

    def lines(self, folder: Path) -> list[str]:
        """The summary for people."""
        found = [f"{len(self.parts)} scripts cover {self.covered:.1%} of the total time"]
        found += [f"left out: {share:.1%} {why}" for why, share in sorted(self.left_out.items(), key=lambda o: -o[1])]
        if any(part.draws for part in self.parts):
            found.append(
                f"next: run {folder / 'draw.sql'} on the database, then dump it: the mix draws from its tables"
            )
        return [*found, f"the campaign's workload is in {folder / 'workload.yaml'}"]


def read_statements(path: Path) -> list[Statement]:
    """Read a CSV with head line; raises UsageError for a file that is none. Nested statements are left out: their time
    is in that of the statement that calls them."""
    csv.field_size_limit(sys.maxsize)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: {error}", hint=_HINT) from None
    needed = ("query", "calls", "rows")
    if len({row.get("dbid") for row in rows}) > 1:
        raise UsageError(f"{path} has statements of several databases", hint=_HINT)
    time = next((name for name in ("total_exec_time", "total_time") if rows and name in rows[0]), None)
    if not rows or time is None or any(name not in rows[0] for name in needed):
        raise UsageError(f"{path} has no columns query, calls, rows and total_exec_time", hint=_HINT)
    try:
        return [
            Statement(row["query"], int(row["calls"]), float(row[time]), int(row["rows"]))
            for row in rows
            if row.get("toplevel") not in ("f", "false")
        ]
    except (TypeError, ValueError) as error:
        raise NotUnderstood(f"{path}: a row is not one of pg_stat_statements: {error}", hint=_HINT) from None


_HINT = (
    "in psql: \\copy (SELECT s.* FROM pg_stat_statements s JOIN pg_database d ON d.oid = dbid "
    "WHERE datname = current_database()) TO statements.csv CSV HEADER"
)


def make_mix(statements: Sequence[Statement]) -> Mix:
    """Make a script of every statement whose parameters can be drawn; UsageError if there is none."""
    total_ms = sum(one.time_ms for one in statements)
    left_out: dict[str, float] = {}
    parsed: list[tuple[Statement, Mapping[int, Draw], Mapping[int, int]]] = []
    for one in sorted(statements, key=lambda one: -one.time_ms):
        share = one.time_ms / total_ms if total_ms else 0.0
        drawn = RARE if share < LEAST_SHARE or len(parsed) == MOST_SCRIPTS else _parameters(one)
        if isinstance(drawn, str):
            left_out[drawn] = left_out.get(drawn, 0.0) + share
        else:
            parsed.append((one, *drawn))
    if not parsed:
        why = "; ".join(f"{share:.1%} {why}" for why, share in left_out.items())
        raise UsageError(f"no statement can be made a script ({why or 'no rows'})", hint="capture logs instead")
    calls = sum(one.calls for one, _, _ in parsed)
    parts = [
        Part(f"{number:03d}-{_label(one)}", one, max(1, round(WEIGHTS * one.calls / max(calls, 1))), draws, constants)
        for number, (one, draws, constants) in enumerate(parsed, 1)
    ]
    covered = sum(part.statement.time_ms for part in parts) / total_ms
    return Mix(parts, covered, left_out)


def _label(statement: Statement) -> str:
    words = [_verb(statement.query), *(table.rpartition(".")[2] for table in _tables(statement.query).values())]
    return "-".join(re.sub(r"\W", "_", word.lower()) for word in words[:2])


def _verb(query: str) -> str:
    found = _VERB.match(query)
    return found[1].lower() if found else ""


def _tables(query: str) -> dict[str, str]:
    """Tables by the names that columns may have in front."""
    found = {}
    for first in _TABLE.finditer(query):
        match: re.Match[str] | None = first
        while match is not None:
            alias, end = match["alias"], match.end()
            if alias is None or alias.lower() in _KEYWORDS:
                alias, end = match["table"].rpartition(".")[2], match.end("table")
            found[alias.lower()] = match["table"]
            match = _FURTHER.match(query, end)
    return found


def _parameters(statement: Statement) -> tuple[dict[int, Draw], dict[int, int]] | str:
    """Return where each parameter comes from, and those that are constants; or the reason why one is unknown."""
    verb = _verb(statement.query)
    if verb in _REFUSED:
        return _REFUSED[verb]
    if verb not in ("select", "update"):
        return "no SELECT and no UPDATE"
    tables, rows = _tables(statement.query), Counter[tuple[str, str]]()
    draws: dict[int, Draw] = {}
    for owner, column, number in _columns(statement.query):
        table = tables.get(owner.lower()) if owner else _only(tables)
        if table is None:
            return "a column without its table, in a statement with several"
        draws[number] = Draw(table, column, rows[table, column])
        rows[table, column] += 1
    mean = round(statement.rows / statement.calls) if statement.calls else 1
    limits = {
        int(found["number"]): max(1, mean) if found["what"].lower() == "limit" else 0
        for found in _LIMIT.finditer(statement.query)
    }
    wanted = {int(number) for number in _PARAMETER.findall(statement.query)}
    if wanted - draws.keys() - limits.keys():
        return "a parameter that is no column's value (ranges, patterns, expressions)"
    return draws, limits


def _columns(query: str) -> Iterator[tuple[str | None, str, int]]:
    """Yield owner, column and number of parameters that have the value of a column."""
    for match in _EQUAL.finditer(query):
        yield match["owner"], match["column"], int(match["number"])
    for match in _IN.finditer(query):
        for number in _PARAMETER.findall(match["list"]):
            yield match["owner"], match["column"], int(number)


def _only(tables: Mapping[str, str]) -> str | None:
    found = set(tables.values())
    return found.pop() if len(found) == 1 else None


def render_script(part: Part) -> str:
    """Return the script of a statement: a row of draws by its key, then the statement."""

    def value(found: re.Match[str]) -> str:
        number = int(found[1])
        return str(part.constants.get(number, f":p{number}"))

    text = _PARAMETER.sub(value, part.statement.query.strip().rstrip(";")) + ";\n"
    if not part.draws:
        return text
    names = ", ".join(f"p{number}" for number in sorted(part.draws))
    drawn = f'SELECT {names} FROM {SCHEMA}."{part.name}" WHERE n = :n \\gset\n'
    return f"\\set n random(1, {DRAWS})\n{drawn}{text}"


def render_draws(mix: Mix) -> str:
    """Return the SQL that makes the tables of draws, each with `DRAWS` rows; repeated where the data has fewer."""
    out = [f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE;", f"CREATE SCHEMA {SCHEMA};"]
    for part in mix.parts:
        if not part.draws:
            continue
        rows: dict[tuple[str, int], dict[int, str]] = {}
        for number, draw in part.draws.items():
            rows.setdefault((draw.table, draw.row), {})[number] = draw.column
        sources = [_drawn(table, columns) for (table, _), columns in rows.items()]
        first, *others = (f"({source}) AS d{place}" for place, source in enumerate(sources))
        joined = "\n  ".join([first, *(f"JOIN {other} USING (n)" for other in others)])
        out.append(f'CREATE TABLE {SCHEMA}."{part.name}" AS SELECT * FROM\n  {joined};')
        out.append(f'ALTER TABLE {SCHEMA}."{part.name}" ADD PRIMARY KEY (n);')
        out.append(f'ANALYZE {SCHEMA}."{part.name}";')
    return "\n".join([*out, ""])


def _drawn(table: str, columns: Mapping[int, str]) -> str:
    names = ", ".join(f"p{number}" for number in columns)
    picked = ", ".join(f"{column} AS p{number}" for number, column in columns.items())
    known = " AND ".join(f"{column} IS NOT NULL" for column in columns.values())
    picked = f"SELECT {picked} FROM {table} WHERE {known} ORDER BY random() LIMIT {DRAWS}"
    numbered = f"SELECT row_number() OVER () AS place, count(*) OVER () AS size, {names} FROM ({picked}) AS picked"
    return (
        f"SELECT n, {names} FROM generate_series(1, {DRAWS}) AS n "
        f"JOIN ({numbered}) AS numbered ON place = 1 + (n - 1) % size"
    )


def write_mix(mix: Mix, folder: Path) -> None:
    """Write scripts, `draw.sql` and `workload.yaml` to a new folder, which only its owner can read."""
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise UsageError(f"--out {folder}: {error.strerror}", hint="name a new folder in one that exists") from None
    folder = folder.absolute()
    for part in mix.parts:
        (folder / f"{part.name}.sql").write_text(render_script(part), encoding="utf-8")
    (folder / "draw.sql").write_text(render_draws(mix), encoding="utf-8")
    weight = len(mix.parts) > 1
    scripts = [f"    - {folder / part.name}.sql{f'@{part.weight}' if weight else ''}\n" for part in mix.parts]
    (folder / "workload.yaml").write_text(
        f"workload:\n  pg_restore: CHANGE-ME.dump\n  protocol: extended\n  script:\n{''.join(scripts)}",
        encoding="utf-8",
    )
