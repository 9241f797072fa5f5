"""The ledger: entries of numbered sessions that move amounts between accounts, and its invariants at any moment.

Session s writes entries 1, 2, 3, ...; each transaction adds one entry and moves its amount between two balances. At any
moment, entries of a session have no gap, every balance is the sum of the entries that name it, and all balances add up
to zero. After a power cut every acknowledged entry exists, and at most one more.

The same holds for pgbench's script, whose history contains the entries: its tables and queries are those of `script`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pgstrata.crash.kinds import RELATIONS
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


AMCHECK, VISIBILITY = "amcheck", "pg_visibility"
"""Extensions that check relations, where the tree has them."""


def render_schema(size: LedgerSize, extensions: Collection[str]) -> str:
    """Tables and accounts."""
    create = "".join(f"CREATE EXTENSION {name};\n" for name in extensions)
    return f"{size.script.schema.format(accounts=size.accounts)}{create}CHECKPOINT;\n"


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


_BY_HEAP = "SET jit = off; SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;"
_BY_INDEX = (
    "SET enable_indexscan = on; SET enable_indexonlyscan = on; SET enable_bitmapscan = on; SET enable_seqscan = off;"
)
"""Disabled scans count as expensive queries, each of which the server would compile."""
_END = "SELECT 'reached' AS end;"
LAST_ANSWER = 'end = "reached"'
"""Last answer as a single-user server prints it."""
HEAPS_SINCE = 14
"""The first major with verify_heapam."""
Check = Literal["indexes", "heaps", "parents", "relations", "visibility", "objects"]
"""A check beyond the ledger's own rows, with the name of its answer."""
_OF_INDEXES: tuple[Check, ...] = ("indexes", "parents")
"""Checks that answer the number of indexes; the others answer numbers of what is wrong, by its name."""


def checks_of(extensions: Collection[str], *, major: int, deep: bool = False) -> tuple[Check, ...]:
    """The checks by a server of this major version with these extensions; `deep` adds that the pages of an index agree
    with those above and next to them, and every relation of the database, visibility map, and object of the script."""
    has_heaps = AMCHECK in extensions and major >= HEAPS_SINCE
    wanted: tuple[tuple[Check, bool], ...] = (
        ("indexes", AMCHECK in extensions),
        ("heaps", has_heaps),
        ("parents", AMCHECK in extensions and deep),
        ("relations", has_heaps and deep),
        ("visibility", VISIBILITY in extensions and deep),
        ("objects", deep),
    )
    return tuple(check for check, is_wanted in wanted if is_wanted)


def render_check(asked: Sequence[Check], script: Script = LEDGER, conditions: str = "") -> str:
    """Statements for a single-user server, one a line. The last one confirms that all of them were reached.

    `conditions` is a query of a load for its conditions, each with the number of rows that break it."""
    sessions, checks = _render_sessions(script), _render_checks(script)
    parts = (
        _BY_HEAP, sessions, script.balances, _BY_INDEX, script.indexed, *(checks[one] for one in asked),
        "RESET ALL; SELECT coalesce(json_object_agg('condition ' || condition, broken), '{}')::text AS conditions"
        f" FROM ({conditions}) c;"
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


def _render_checks(script: Script) -> Mapping[Check, str]:
    tables = ", ".join(f"'{table}'::regclass" for table in script.tables)
    heaps = " + ".join(f"(SELECT count(*) FROM verify_heapam('{table}'))" for table in script.tables)
    of_tables = f"FROM pg_index WHERE indrelid IN ({tables});"
    return {
        "indexes": f"SELECT count(bt_index_check(indexrelid, true))::text AS indexes {of_tables}",
        "heaps": _render_counts("heaps", {_DAMAGED: f"SELECT {heaps}"}),
        "parents": f"SELECT count(bt_index_parent_check(indexrelid, true, true))::text AS parents {of_tables}",
        "relations": _render_counts("relations", {_DAMAGED: _EVERY_RELATION}),
        "visibility": _render_counts("visibility", {"wrong bits of visibility maps": _VISIBILITY_MAPS}),
        "objects": _render_counts("objects", {**RELATIONS, **script.kinds}),
    }


def _render_counts(check: Check, queries: Mapping[str, str]) -> str:
    """One answer with the number of each query."""
    counts = ", ".join(f"'{name}', ({query})" for name, query in queries.items())
    return f"SELECT json_build_object({counts})::text AS {check};"


_DAMAGED = "damaged places in tables"
_EVERY_RELATION = """
SELECT (SELECT 0 * count(bt_index_parent_check(indexrelid, true, true))
        FROM pg_index JOIN pg_class c ON c.oid = indexrelid JOIN pg_am a ON a.oid = relam
        WHERE amname = 'btree' AND indisvalid AND relpersistence = 'p')
     + (SELECT count(*) FROM pg_class, verify_heapam(oid) WHERE relkind IN ('r', 'm', 't'))
"""
"""Damaged places of all tables and btrees of the database, with catalogs and TOAST."""
_VISIBILITY_MAPS = """
SELECT (SELECT count(*) FROM pg_class, pg_check_visible(oid) WHERE relkind IN ('r', 'm', 't'))
     + (SELECT count(*) FROM pg_class, pg_check_frozen(oid) WHERE relkind IN ('r', 'm', 't'))
"""
"""Rows on pages that are marked as visible to all, or frozen, and are not."""
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
    wrong: Mapping[str, int]
    """Numbers of wrong things by name, as the other checks and the conditions of a load counted them."""


@parser_of("postgres --single")
def parse_ledger(answers: Answers, asked: Sequence[Check] = ()) -> Ledger:
    """Parses the ledger. Raises KeyError if a part of it, or of the checks, was not answered."""
    rows = [SessionEntries(*map(int, row)) for row in json.loads(answers.values["sessions"])]
    accounts, total, differing = json.loads(answers.values["balances"])
    wrong: Counter[str] = Counter()
    for text in (*(answers.values[one] for one in asked if one not in _OF_INDEXES), answers.values.get("conditions")):
        wrong.update({name: int(count) for name, count in json.loads(text or "{}").items()})
    return Ledger(
        sessions={row.session: row for row in rows},
        accounts=int(accounts),
        total=int(total),
        differing=int(differing),
        indexed=tuple(map(int, json.loads(answers.values["indexed"]))),
        checked_indexes=tuple(int(answers.values[one]) for one in asked if one in _OF_INDEXES),
        wrong={name: count for name, count in wrong.items() if count},
    )
