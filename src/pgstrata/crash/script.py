"""The sessions' transactions in a crash trial, and the queries that read them back: the ledger, or pgbench's own
script.

In both, the existing transactions are known: sessions number theirs, and every balance is the sum of the moved amounts.
The statements that are sent are the client's (`ledger_client.TRANSACTIONS`); here are tables and queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pgstrata.crash.kinds import KINDS, SCHEMA
from pgstrata.crash.ledger_client import BRANCHES, TELLERS
from pgstrata.spec.crash_request import BESIDE, SHOWN, ScriptName


@dataclass(frozen=True)
class Script:
    """Tables, and the statements that read them, with one answer each."""

    name: ScriptName
    schema: str
    """Creates and fills the tables; `{accounts}` stands for the number of accounts."""
    tables: tuple[str, ...]
    indexes: int
    """Number of indexes of all tables."""
    numbered: str
    """A query for session and number of each existing transaction."""
    balances: str
    """Rows with balances, the sum that must be zero, and the number of balances that are not the sum of the moved
    amounts.
    """
    indexed: str
    """Through indexes alone: the number of transactions, if they are indexed, and of rows with balances."""
    entries: str
    """Words for a transaction's row, and for the rows with balances."""
    holders: str
    entries_indexed: bool = True
    holders_beside: int = 0
    """Rows with balances other than accounts."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Checks of other objects: what is wrong, and a query for its number."""

    @property
    def shown(self) -> str:
        """For people."""
        return SHOWN[self.name]


LEDGER = Script(
    name="ledger",
    schema=f"""
CREATE SCHEMA ledger;
CREATE TABLE ledger.account (id int PRIMARY KEY, balance bigint NOT NULL, filler char(200) NOT NULL);
CREATE TABLE ledger.entry (
    session int, number int, source int NOT NULL, target int NOT NULL, amount bigint NOT NULL,
    PRIMARY KEY (session, number)
);
INSERT INTO ledger.account SELECT i - 1, 0, '' FROM generate_series(1, {{accounts}}) i;
{SCHEMA}""",
    tables=("ledger.entry", "ledger.account"),
    indexes=2,
    numbered="SELECT session, number FROM ledger.entry",
    balances="""
SELECT json_build_array(count(*), coalesce(sum(balance), 0),
                        count(*) FILTER (WHERE balance <> coalesce(moved, 0)))::text AS balances
FROM ledger.account LEFT JOIN
     (SELECT id, sum(amount) AS moved
      FROM (SELECT source AS id, -amount AS amount FROM ledger.entry
            UNION ALL SELECT target, amount FROM ledger.entry) b GROUP BY id) m USING (id);
""",
    indexed="""
SELECT json_build_array((SELECT count(*) FROM ledger.entry WHERE session >= 0),
                        (SELECT count(*) FROM ledger.account WHERE id >= 0))::text AS indexed;
""",
    entries="entries",
    holders="accounts",
    kinds=KINDS,
)

TPCB_LIKE = Script(
    name="tpcb-like",
    schema=f"""
CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
CREATE TABLE pgbench_tellers (tid int NOT NULL, bid int, tbalance int, filler char(84)) WITH (fillfactor=100);
CREATE TABLE pgbench_accounts (aid int NOT NULL, bid int, abalance int, filler char(84)) WITH (fillfactor=100);
CREATE TABLE pgbench_branches (bid int NOT NULL, bbalance int, filler char(88)) WITH (fillfactor=100);
INSERT INTO pgbench_branches (bid, bbalance) SELECT i, 0 FROM generate_series(1, {BRANCHES}) i;
INSERT INTO pgbench_tellers (tid, bid, tbalance)
SELECT i, (i - 1) / {TELLERS // BRANCHES} + 1, 0 FROM generate_series(1, {TELLERS}) i;
INSERT INTO pgbench_accounts (aid, bid, abalance, filler)
SELECT i, (i - 1) * {BRANCHES} / {{accounts}} + 1, 0, '' FROM generate_series(1, {{accounts}}) i;
ALTER TABLE pgbench_branches ADD PRIMARY KEY (bid);
ALTER TABLE pgbench_tellers ADD PRIMARY KEY (tid);
ALTER TABLE pgbench_accounts ADD PRIMARY KEY (aid);
""",
    tables=("pgbench_history", "pgbench_tellers", "pgbench_accounts", "pgbench_branches"),
    indexes=3,
    numbered="""
SELECT split_part(who, ' ', 1)::int AS session, split_part(who, ' ', 2)::int AS number
FROM (SELECT coalesce(filler::text, '') AS who FROM pgbench_history) h
""",
    balances="""
WITH held AS (SELECT 'aid' AS key, aid AS id, abalance AS balance FROM pgbench_accounts
              UNION ALL SELECT 'tid', tid, tbalance FROM pgbench_tellers
              UNION ALL SELECT 'bid', bid, bbalance FROM pgbench_branches),
     moved AS (SELECT key, id, sum(delta) AS moved
               FROM pgbench_history, LATERAL (VALUES ('aid', aid), ('tid', tid), ('bid', bid)) of (key, id)
               GROUP BY key, id),
     sums AS (SELECT sum(balance) AS total FROM held GROUP BY key
              UNION ALL SELECT coalesce(sum(delta), 0) FROM pgbench_history)
SELECT json_build_array(count(*), (SELECT max(total) - min(total) FROM sums),
                        count(*) FILTER (WHERE balance IS DISTINCT FROM coalesce(moved, 0)))::text AS balances
FROM held LEFT JOIN moved USING (key, id);
""",
    indexed="""
SELECT json_build_array((SELECT count(*) FROM pgbench_accounts WHERE aid > 0)
                      + (SELECT count(*) FROM pgbench_tellers WHERE tid > 0)
                      + (SELECT count(*) FROM pgbench_branches WHERE bid > 0))::text AS indexed;
""",
    entries="rows of history",
    holders="accounts, tellers and branches",
    entries_indexed=False,
    holders_beside=TELLERS + BRANCHES,
)

SCRIPTS: Mapping[ScriptName, Script] = {"ledger": LEDGER, "tpcb-like": TPCB_LIKE, BESIDE: LEDGER}
