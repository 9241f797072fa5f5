"""The ledger: entries of numbered sessions that move amounts between accounts, and its invariants at any moment.

Session s writes entries 1, 2, 3, ...; each transaction adds one entry and moves its amount between two balances. At any
moment, entries of a session have no gap, every balance is the sum of the entries that name it, and all balances add up
to zero. After a power cut every acknowledged entry exists, and at most one more.

The same holds for pgbench's script, whose history contains the entries: its tables and queries are those of `script`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pgstrata.crash.script import LEDGER, Script
from pgstrata.errors import parser_of
from pgstrata.host.protocol import Command, marked
from pgstrata.postgres.server import SUPERUSER, Server

BEGIN, END = "begin", "end"
"""Marks around the transactions."""
FAULT = "fault"
"""The mark before a fault comes into force."""

_CLIENT = Path(__file__).with_name("ledger_client.py")
_CLIENT_TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class LedgerSize:
    """The size of the ledger. Accounts fill enough pages that checkpoints rewrite many of them."""

    sessions: int = 8
    transactions: int = 100
    """Per session, in all recordings."""
    recordings: int = 1
    """Parts of the transactions, each with a seed of its own."""
    accounts: int = 16_000
    """More than the server's buffers hold: transactions write pages of others before they read their own."""
    checkpoint_every: int = 20
    """Transactions of the first session between two checkpoints of the first recording."""
    script: Script = LEDGER
    spread_s: float = 0.0
    """Time over which a session spreads its transactions, beside a load; 0 without one."""


AMCHECK = "amcheck"


def render_schema(size: LedgerSize, *, amcheck: bool) -> str:
    """Tables and accounts."""
    extension = f"CREATE EXTENSION {AMCHECK};\n" if amcheck else ""
    return f"{size.script.schema.format(accounts=size.accounts)}{extension}CHECKPOINT;\n"


def plan_client(control: str, server: Server, size: LedgerSize, seed: int, fault: str = "") -> Command:
    """Starts as the caller, who may access the disk's control socket, and continues as the server's user."""
    failing = ("--fault", fault) if fault else ()
    socket = f"{server.run_directory}/.s.PGSQL.{server.port}"
    numbers = {
        "sessions": size.sessions,
        "transactions": size.transactions,
        "recordings": size.recordings,
        "accounts": size.accounts,
        "checkpoint-every": size.checkpoint_every,
        "seed": seed,
    }
    return Command(
        (
            "python3", "-I", "-",
            "--control", control,
            "--socket", socket,
            "--user", SUPERUSER,
            "--os-user", server.user,
            "--database", "postgres",
            "--script", size.script.name,
            "--spread-s", f"{size.spread_s:g}",
            *(word for name, number in numbers.items() for word in (f"--{name}", str(number))),
            *failing,
        ),
        timeout_s=_CLIENT_TIMEOUT_S,
        stdin=_CLIENT.read_text(encoding="utf-8"),
        env=marked(server.marker),
        cwd="/",
    )  # fmt: skip


# ---------------------------------------------------------------- what was acknowledged


@dataclass(frozen=True)
class Mark:
    """The number at which a session's entry was acknowledged."""

    seq: int
    session: int
    number: int
    at_s: float
    """Time of the acknowledgement, from an arbitrary start."""


@parser_of("strata-disk")
def parse_marks(text: str) -> tuple[Mark, ...]:
    """The acknowledgements in the output of `strata-disk marks`, in order."""
    found = []
    for line in text.splitlines():
        given = json.loads(line)
        word, *numbers = str(given["text"]).split()
        if word == "ack":
            session, number, at_s = numbers
            found.append(Mark(int(given["seq"]), int(session), int(number), float(at_s)))
    return tuple(found)


@parser_of("strata-disk")
def count_flushes(text: str, after: str, until: str) -> int:
    """The completed flushes between two marks in the output of `strata-disk marks`."""
    by = {str(line["text"]): int(line["flushes"]) for line in map(json.loads, text.splitlines())}
    return by[until] - by[after]


@parser_of("strata-disk")
def count_marks(text: str, of: str) -> int:
    """The marks of this text in the output of `strata-disk marks`."""
    return sum(json.loads(line)["text"] == of for line in text.splitlines())


def acknowledged_by(marks: Sequence[Mark], cut: int) -> dict[int, int]:
    """Last acknowledged entry of each session when power is lost after event `cut`."""
    return {mark.session: mark.number for mark in marks if mark.seq <= cut}


def lost_time_s(marks: Sequence[Mark], entries: Mapping[int, int], cut: int) -> float:
    """Time from the oldest acknowledged transaction that is not among the existing entries of its session to the cut.
    The cut lies between two acknowledgements; the later one counts, so that no loss is longer."""
    lost = (mark.at_s for mark in marks if mark.seq <= cut and mark.number > entries.get(mark.session, 0))
    oldest_s = min(lost, default=None)
    if oldest_s is None:
        return 0.0
    cut_s = next((mark.at_s for mark in marks if mark.seq > cut), marks[-1].at_s)
    return round(max(0.0, cut_s - oldest_s), 6)


# ---------------------------------------------------------------- what is there


_BY_HEAP = "SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;"
_BY_INDEX = (
    "SET enable_indexscan = on; SET enable_indexonlyscan = on; SET enable_bitmapscan = on; SET enable_seqscan = off;"
)
_END = "SELECT 'reached' AS end;"
LAST_ANSWER = 'end = "reached"'
"""Last answer as a single-user server prints it."""
HEAPS_SINCE = 14
"""The first major with verify_heapam."""
Amchecked = Literal["indexes", "heaps", "parents", "catalogs"]
"""An amcheck query, with the name of its answer."""
_COUNTED: tuple[Amchecked, ...] = ("heaps", "catalogs")
"""Queries that count damaged places."""


def amchecked(*, amcheck: bool, major: int, deep: bool = False) -> tuple[Amchecked, ...]:
    """The amcheck queries for a server of this major version, if available; `deep` adds a check that the pages of an
    index agree with those above and next to them, and one of every relation of the database and its file."""
    if not amcheck:
        return ()
    heaps: tuple[Amchecked, ...] = ("heaps",) if major >= HEAPS_SINCE else ()
    everything: tuple[Amchecked, ...] = ("catalogs",) if heaps else ()
    return ("indexes", *heaps, "parents", *everything) if deep else ("indexes", *heaps)


def render_check(asked: Sequence[Amchecked], script: Script = LEDGER, conditions: str = "") -> str:
    """Statements for a single-user server, one a line. The last one confirms that all of them were reached.

    `conditions` is a query of a load for its conditions, each with the number of rows that break it."""
    sessions, of_amcheck = _render_sessions(script), _render_amcheck(script)
    parts = (
        _BY_HEAP, sessions, script.balances, _BY_INDEX, script.indexed, *(of_amcheck[one] for one in asked),
        f"RESET ALL; SELECT json_object_agg(condition, broken)::text AS conditions FROM ({conditions}) c;"
        if conditions
        else "",
        _END,
    )  # fmt: skip
    return "".join(" ".join(part.split()) + "\n" for part in parts if part)


def _render_sessions(script: Script) -> str:
    return f"""
SELECT coalesce(json_agg(json_build_array(session, entries, low, high, doubled)), '[]')::text AS sessions
FROM (SELECT session, count(*) AS entries, min(number) AS low, max(number) AS high,
             count(*) - count(DISTINCT number) AS doubled
      FROM ({script.numbered}) n GROUP BY session) s;
"""


def _render_amcheck(script: Script) -> Mapping[Amchecked, str]:
    tables = ", ".join(f"'{table}'::regclass" for table in script.tables)
    heaps = " + ".join(f"(SELECT count(*) FROM verify_heapam('{table}'))" for table in script.tables)
    of_tables = f"FROM pg_index WHERE indrelid IN ({tables});"
    return {
        "indexes": f"SELECT count(bt_index_check(indexrelid, true))::text AS indexes {of_tables}",
        "heaps": f"SELECT {heaps} || '' AS heaps;",
        "parents": f"SELECT count(bt_index_parent_check(indexrelid, true, true))::text AS parents {of_tables}",
        "catalogs": _CATALOGS,
    }


_CATALOGS = """
SELECT (SELECT 0 * count(bt_index_parent_check(indexrelid, true, true))
        FROM pg_index JOIN pg_class c ON c.oid = indexrelid JOIN pg_am a ON a.oid = relam
        WHERE amname = 'btree' AND indisvalid AND relpersistence = 'p')
     + (SELECT count(*) FROM pg_class, verify_heapam(oid) WHERE relkind IN ('r', 'm', 't'))
     + (SELECT count(*) FROM pg_class, pg_relation_filepath(oid) path
        WHERE path IS NOT NULL AND (pg_stat_file(path, true)).size IS NULL) || '' AS catalogs;
"""
"""Damaged places of all tables and btrees of the database, with catalogs and TOAST, and relations without a file."""
_VALUE = re.compile(r'\t 1: (\w+) = "(.*)"\t\(typeid')


@dataclass(frozen=True)
class Answers:
    """Output of a single-user server by column name; errors are lines of its log."""

    values: Mapping[str, str]
    errors: tuple[str, ...]

    @property
    def complete(self) -> bool:
        return self.values.get("end") == "reached"


def parse_answers(printed: str, log: str) -> Answers:
    """Parses the output of `postgres --single` and its standard error."""
    found = (_VALUE.search(line) for line in printed.splitlines())
    errors = tuple(line for line in log.splitlines() if re.search(r"\b(ERROR|FATAL|PANIC):|^postgres: ", line))
    return Answers({match[1]: match[2] for match in found if match}, errors)


@dataclass(frozen=True)
class SessionEntries:
    """The existing entries of a session: number of entries, first and last number, and number of duplicates."""

    session: int
    entries: int
    low: int
    high: int
    doubled: int = 0


@dataclass(frozen=True)
class Ledger:
    """The ledger as read back."""

    sessions: Mapping[int, SessionEntries]
    accounts: int
    """Number of rows with a balance, accounts and others."""
    total: int
    differing: int
    """Number of these whose balance is not the sum of their entries."""
    indexed: tuple[int, ...]
    """Entries, if they are indexed, and accounts, as counted through their indexes."""
    checked_indexes: tuple[int, ...]
    """Number of indexes checked by bt_index_check and bt_index_parent_check, if requested."""
    damaged: int
    """Findings of verify_heapam, and relations without a file."""


@parser_of("postgres --single")
def parse_ledger(answers: Answers, asked: Sequence[Amchecked] = ()) -> Ledger:
    """Parses the ledger. Raises KeyError if a part of it, or of the amcheck queries, was not answered."""
    rows = [SessionEntries(*map(int, row)) for row in json.loads(answers.values["sessions"])]
    accounts, total, differing = json.loads(answers.values["balances"])
    return Ledger(
        sessions={row.session: row for row in rows},
        accounts=int(accounts),
        total=int(total),
        differing=int(differing),
        indexed=tuple(map(int, json.loads(answers.values["indexed"]))),
        checked_indexes=tuple(int(answers.values[one]) for one in asked if one not in _COUNTED),
        damaged=sum(int(answers.values[one]) for one in asked if one in _COUNTED),
    )
