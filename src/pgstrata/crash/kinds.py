"""Objects of every kind in the ledger's database, and the checks that count what is wrong with them.

One transaction in `EVERY` of a session adds a row to `ledger.kind`: a value in an index of each access method but
btree, one stored outside the row (TOAST), a large object, and a value of a sequence. The rows follow from the entries,
so a check needs no truth but them: each entry with such a number has its row, in the table and through every index.
Prepared transactions are open for `EVERY` transactions of their session.
"""

from __future__ import annotations

from collections.abc import Mapping

from pgstrata.crash.ledger_client import EVERY, PAYLOAD

FIRST_OWN_OID = 16384
"""Rows of catalogs below this number are made by initdb, and stay as they are."""
_OID = """
pg_am pg_amop pg_amproc pg_authid pg_cast pg_collation pg_constraint pg_conversion pg_language pg_opclass pg_operator
pg_opfamily pg_proc pg_rewrite pg_type
"""
_DIGESTED = {
    "pg_class": ("oid", "(t.oid, relname, relnamespace, reltype, relowner, relam, relkind, relnatts)::text"),
    "pg_attribute": ("attrelid", "t::text"),
    "pg_index": ("indexrelid", "t::text"),
    **dict.fromkeys(_OID.split(), ("oid", "t::text")),
}
"""Catalogs whose rows from initdb never change, with the column of their number and what does not change of a row."""
_DIGESTS = " UNION ALL ".join(
    f"SELECT '{name}' AS name, md5(string_agg({row}, '' ORDER BY {row} COLLATE \"C\")) AS digest"
    f" FROM {name} t WHERE {number} < {FIRST_OWN_OID}"
    for name, (number, row) in _DIGESTED.items()
)

SCHEMA = f"""
CREATE SEQUENCE ledger.turn;
CREATE TABLE ledger.kind (
    id bigint NOT NULL, turn bigint NOT NULL, hashed text, word text, words text[], place point, payload text,
    object oid
);
ALTER TABLE ledger.kind ALTER payload SET STORAGE EXTERNAL;
CREATE INDEX ON ledger.kind USING brin (id) WITH (pages_per_range = 1);
CREATE INDEX ON ledger.kind USING hash (hashed);
CREATE INDEX ON ledger.kind USING spgist (word);
CREATE INDEX ON ledger.kind USING gin (words) WITH (fastupdate = off);
CREATE INDEX ON ledger.kind USING gist (place);
CREATE TABLE ledger.prepared (session int, number int);
CREATE TABLE ledger.catalog AS {_DIGESTS};
"""

_ID, _KEY, _CONTENT = "number * 1000::bigint + session", "session || ' ' || number", f"repeat(md5(hashed), {PAYLOAD})"
_ENTRIES = f"FROM ledger.entry e WHERE number % {EVERY} = 0"


def _by_index(condition: str) -> str:
    """The entries whose row is not the one that meets the condition. Without sequential scans its index is used."""
    found = f"SELECT CASE count(*) WHEN 1 THEN min(id) END FROM ledger.kind WHERE {condition}"
    return f"SELECT count(*) {_ENTRIES} AND ({found}) IS DISTINCT FROM {_ID}"


RELATIONS: Mapping[str, str] = {
    "relations without a file": """
        SELECT count(*) FROM pg_class, pg_relation_filepath(oid) path
        WHERE path IS NOT NULL AND (pg_stat_file(path, true)).size IS NULL""",
}
"""Checks of every database: what is wrong, and a query for its number."""

KINDS: Mapping[str, str] = {
    "fillers of accounts": "SELECT count(*) FROM ledger.account WHERE filler <> ''",
    "rows of ledger.kind": f"""
        SELECT (SELECT count(*) FROM (SELECT {_ID} AS id {_ENTRIES}) e FULL JOIN ledger.kind k USING (id)
                WHERE e.id IS NULL OR k.id IS NULL)
             + (SELECT count(*) - count(DISTINCT id) FROM ledger.kind)
             + (SELECT count(*) FROM (SELECT *, id % 1000 AS session, id / 1000 AS number FROM ledger.kind) k
                WHERE (hashed, word, words[2]) IS DISTINCT FROM ({_KEY}, {_KEY}, {_KEY})
                   OR words[1] <> session::text OR NOT place ~= point(session, number))""",
    "rows by the BRIN index": _by_index(f"id = {_ID}"),
    "rows by the hash index": _by_index(f"hashed = {_KEY}"),
    "rows by the SP-GiST index": _by_index(f"word = {_KEY}"),
    "rows by the GIN index": f"""
        SELECT ({_by_index(f"words @> ARRAY[{_KEY}]")})
             + (SELECT count(*) FROM (SELECT session, count(*) AS rows {_ENTRIES} GROUP BY session) e
                WHERE rows <> (SELECT count(*) FROM ledger.kind WHERE words @> ARRAY[session::text]))""",
    "rows by the GiST index": _by_index("place ~= point(session, number)"),
    "values stored outside rows": f"SELECT count(*) FROM ledger.kind WHERE payload IS DISTINCT FROM {_CONTENT}",
    "large objects": f"SELECT count(*) FROM ledger.kind WHERE lo_get(object) IS DISTINCT FROM {_CONTENT}::bytea",
    "values of the sequence": """
        SELECT count(*) - count(DISTINCT turn) + count(*) FILTER (WHERE turn >= next)
        FROM ledger.kind, (SELECT nextval('ledger.turn') AS next OFFSET 0) s""",
    "prepared transactions": f"""
        SELECT (SELECT count(*)
                FROM (SELECT (SELECT count(*) FROM pg_prepared_xacts WHERE gid = 'ledger ' || {_KEY}) AS open,
                             (SELECT count(*) FROM ledger.prepared p
                              WHERE (p.session, p.number) = (e.session, e.number)) AS committed,
                             EXISTS (SELECT FROM ledger.entry n
                                     WHERE (n.session, n.number) = (e.session, e.number + {EVERY})) AS later
                      {_ENTRIES} AND number % {2 * EVERY} <> 0) p
                WHERE open + committed <> 1 OR later AND open > 0)
             + (SELECT count(*) FROM ledger.prepared p
                WHERE NOT EXISTS (SELECT FROM ledger.entry e WHERE (e.session, e.number) = (p.session, p.number)))""",
    "transactions that pg_xact does not have as committed": """
        SELECT count(*) FROM (SELECT xmin FROM ledger.entry UNION ALL SELECT xmin FROM ledger.account
                              UNION ALL SELECT xmin FROM ledger.kind) x
        WHERE txid_status(xmin::text::bigint) <> 'committed'""",
    "catalogs whose rows from initdb changed": f"SELECT count(*) FROM ({_DIGESTS} EXCEPT TABLE ledger.catalog) d",
}
"""The same of the ledger's objects."""
