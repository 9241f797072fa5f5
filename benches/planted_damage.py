#!/usr/bin/env python3
"""Plants damage in a recovered cluster and prints which look of crash trials notices it. As root.

    benches/planted_damage.py --places 8

The cluster has the ledger with its objects of every kind, and a prepared transaction that is open. Each damage is
planted in a copy of it, which the server then recovers and reads as in a crash trial: with the wide look of every
state, and with the deep one of one state in ten. "stale" is a page as an earlier checkpoint wrote it: its checksum is
right, and only other data shows that it is old.

Bound: the deep look notices 95 % of it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pgstrata.crash.job import KILLED_AT_THE_END, RECOVERY_TIMEOUT_S
from pgstrata.crash.ledger import AMCHECK, VISIBILITY, LedgerSize, checks_of, parse_answers, render_check, render_schema
from pgstrata.crash.ledger_client import transfer
from pgstrata.crash.verdict import Examination, Judged, Recovery, judge_state
from pgstrata.host.local import LocalHost
from pgstrata.postgres.binaries import choose, discover
from pgstrata.postgres.server import Server, ServerDirectories
from pgstrata.postgres.user import readable_installation, run_user
from pgstrata.spec.crash import SETTINGS
from pgstrata.spec.stack import Postgres

PAGE_BYTES = 8192
T = TypeVar("T")
SIZE = LedgerSize(transactions=110, accounts=4000)
"""The last transaction of a session opens a prepared one."""
EARLIER = 60
"""The transaction after which the checkpoint of stale pages is."""
PATIENCE_S = 20.0
LEAST = 0.95
UNSEEN = "no values"
BRIN_MAPS = (0xF091, 0xF092)
"""Kinds of the pages of a BRIN index, in their last bytes, that lead to the ranges."""
SPGIST_NULLS = 8
"""A page of an SP-GiST index for rows without a value; the ledger has none."""
HASH_FLAG, HASH_VALUES = 12, 1 | 2
"""Place of the kind of a page of a hash index in its special space, and the kinds overflow and bucket."""

FLIP, STALE, ZERO, REMOVE, CUT, SET = (
    "bit flipped",
    "page stale",
    "page zeroed",
    "file removed",
    "file cut off",
    "bits set",
)
PAGES = (FLIP, STALE, ZERO)
RELATIONS = {
    "heap": ("ledger.account", (*PAGES, CUT)),
    "btree": ("ledger.account_pkey", PAGES),
    "hash": ("ledger.kind_hashed_idx", PAGES),
    "GIN": ("ledger.kind_words_idx", PAGES),
    "GiST": ("ledger.kind_place_idx", PAGES),
    "SP-GiST": ("ledger.kind_word_idx", PAGES),
    "BRIN": ("ledger.kind_id_idx", PAGES),
    "TOAST": ("TOAST", (*PAGES, CUT)),
    "large object": ("pg_largeobject", (*PAGES, CUT)),
    "catalogs": ("pg_proc", (FLIP, ZERO)),
    "sequence": ("ledger.turn", PAGES),
}
"""The relation of each kind of place, and the damage."""
MISSING = (
    "ledger.entry",
    "ledger.kind_word_idx",
    "TOAST",
    "ledger.turn",
    "pg_largeobject",
    "pg_statistic",
    "pg_rewrite",
)


@dataclass(frozen=True)
class Damage:
    """Damage of a file of the data directory; `at` is the byte, or the first of a page."""

    kind: str
    how: str
    file: str
    at: int = 0
    bit: int = 0

    @property
    def shown(self) -> str:
        return f"{self.kind}: {self.how} ({self.file}, byte {self.at})"


@dataclass(frozen=True)
class Found:
    """The verdicts of both looks."""

    damage: Damage
    wide: Judged
    deep: Judged

    @property
    def looks(self) -> tuple[Judged, Judged]:
        return self.wide, self.deep


class Cluster:
    """A recovered cluster, and its data directory as an earlier checkpoint left it."""

    def __init__(self, host: LocalHost, folder: Path, *, checksums: bool, major: int | None = None) -> None:
        self.host, self.checksums = host, checksums
        user = run_user(host)
        installation = readable_installation(host, choose(discover(host), Postgres(major=major)), user)
        self.data, self.earlier, self.copy = (folder / name for name in ("data", "earlier", "copy"))
        self.server = Server(host, installation, user, ServerDirectories(str(self.data)), marker=folder.name)
        self.extensions = tuple(name for name in (AMCHECK, VISIBILITY) if name in installation.contrib)
        self.files: dict[str, str] = {}
        self.first_xid = self.next_xid = 0

    def make(self) -> None:
        """Writes the ledger, and recovers it after an immediate stop."""
        server = self.server
        server.init(data_checksums=self.checksums, options=("--no-sync", "--wal-segsize=1"))
        server.configure({**SETTINGS, "fsync": "off", "autovacuum": "off"})
        server.start()
        try:
            self._write()
        finally:
            server.crash_stop()
            self.host.remove(server.run_directory)
        judged = self.look(self.data, deep=True)
        if judged.verdict != "held":
            raise RuntimeError(f"the cluster is damaged before anything is planted: {judged.reason}")

    def _write(self) -> None:
        server = self.server
        server.execute(render_schema(SIZE, self.extensions))
        self.first_xid = int(server.value("SELECT txid_current()::text AS value"))
        lots = [random.Random(session) for session in range(SIZE.sessions)]
        server.execute(_transactions(1, EARLIER, lots))
        server.execute("VACUUM;\nCHECKPOINT;\n")
        shutil.copytree(self.data, self.earlier, ignore=shutil.ignore_patterns("postmaster.*", "pg_wal"))
        server.execute(_transactions(EARLIER + 1, SIZE.transactions, lots))
        self.next_xid = int(server.value("SELECT txid_current()::text AS value"))
        toast = "(SELECT reltoastrelid FROM pg_class WHERE oid = 'ledger.kind'::regclass)"
        for name in {relation for relation, _ in RELATIONS.values()} | set(MISSING):
            of = toast if name == "TOAST" else f"'{name}'"
            self.files[name] = str(server.value(f"SELECT pg_relation_filepath({of}) AS value"))
        server.execute("CHECKPOINT;\n")

    def look(self, data: Path, *, deep: bool) -> Judged:
        """The verdict on a data directory by the statements of a crash trial."""
        installation = self.server.installation
        asked = checks_of(self.extensions, major=installation.major, deep=deep)
        options = ("-D", str(data), "-c", "fsync=off", *KILLED_AT_THE_END)
        argv = (installation.program("postgres"), "--single", *options, "postgres")
        code, out, err = self._run(argv, render_check(asked))
        examined = []
        if deep and code == 0 and self.checksums:
            program = f"{installation.bin_directory}/pg_checksums"
            ended, *said = self._run((program, "--check", "--pgdata", str(data)))
            examined = [Examination("pg_checksums", ended, "".join(said) if ended else "")]
        acknowledged = dict.fromkeys(range(SIZE.sessions), SIZE.transactions)
        recovery = Recovery(0, server=code, answers=parse_answers(out, err), examined=examined)
        return judge_state(recovery, acknowledged, SIZE, asked)

    def _run(self, argv: Sequence[str], given: str = "") -> tuple[int | None, str, str]:
        command = self.server.as_user(*argv, timeout_s=RECOVERY_TIMEOUT_S, stdin=given)
        # with System V memory in a namespace of its own nothing is left of a server that damage ended
        user = ("unshare", "--ipc", "setpriv", f"--reuid={command.user}", f"--regid={command.user}", "--clear-groups")
        try:
            done = subprocess.run(
                (*user, *command.argv),
                input=given.encode(),
                capture_output=True,
                timeout=PATIENCE_S,
                cwd="/",
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None, "", ""
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    def plant(self, damage: Damage) -> Found:
        """Damages a copy for each look."""
        return Found(damage, *(self._planted(damage, deep=deep) for deep in (False, True)))

    def _planted(self, damage: Damage, *, deep: bool) -> Judged:
        subprocess.run(("cp", "--archive", self.data, self.copy), check=True, timeout=PATIENCE_S)
        try:
            self._damage(damage)
            return self.look(self.copy, deep=deep)
        finally:
            shutil.rmtree(self.copy)

    def _damage(self, damage: Damage) -> None:
        file = self.copy / damage.file
        if damage.how == REMOVE:
            file.unlink()
            return
        with file.open("r+b") as opened:
            if damage.how == CUT:
                opened.truncate(damage.at)
                return
            opened.seek(damage.at)
            new = self._new(damage, opened.read(1)[0])
            opened.seek(damage.at)
            opened.write(new)

    def _new(self, damage: Damage, old: int) -> bytes:
        if damage.how == STALE:
            return _pages(self.earlier / damage.file)[damage.at // PAGE_BYTES]
        return {FLIP: bytes([old ^ 1 << damage.bit]), SET: b"\xff", ZERO: bytes(PAGE_BYTES)}[damage.how]

    # ------------------------------------------------------------ places

    def damages(self, places: int, seed: int) -> Iterator[Damage]:
        """At most so many places of each kind for each damage."""
        lot = random.Random(seed)
        for kind, (name, ways) in RELATIONS.items():
            for how in ways:
                of_relation = list(self._in_relation(kind, how, self.files[name], lot))
                for of_kind in dict.fromkeys(one.kind for one in of_relation):
                    yield from _some(lot, [one for one in of_relation if one.kind == of_kind], places)
        maps = list(self._in_map("ledger.account"))
        for how in (STALE, SET):
            yield from _some(lot, [one for one in maps if one.how == how], places)
        status = [Damage("pg_xact", FLIP, "pg_xact/0000", xid // 4, xid % 4 * 2) for xid in self._ledger_xids()]
        yield from _some(lot, status, places)
        yield from _some(lot, list(self._stale_pages("pg_xact", "pg_xact/0000")), places)
        for name in _some(lot, list(MISSING), places):
            yield Damage("missing file", REMOVE, self.files[name])
        files = sorted(f"pg_twophase/{file.name}" for file in (self.data / "pg_twophase").iterdir())
        yield from _some(lot, [Damage("2PC state", REMOVE, file) for file in files], places)
        sizes = {file: (self.data / file).stat().st_size for file in files}
        flips = [Damage("2PC state", FLIP, file, lot.randrange(size), lot.randrange(8)) for file, size in sizes.items()]
        yield from _some(lot, flips, places)

    def _ledger_xids(self) -> range:
        """Transactions of the ledger up to the last ones, some of which are prepared."""
        return range(self.first_xid + 1, self.next_xid - 4 * SIZE.sessions)

    def _in_relation(self, kind: str, how: str, file: str, lot: random.Random) -> Iterator[Damage]:
        pages = _pages(self.data / file)
        if how == STALE:
            yield from self._stale_pages(kind, file)
        elif how == CUT:
            yield Damage(kind, how, file, len(pages) // 2 * PAGE_BYTES)
        for number, page in enumerate(pages if how in (FLIP, ZERO) else ()):
            used = _used(page)
            if used and how == ZERO:
                yield Damage(_of(kind, page), how, file, number * PAGE_BYTES)
            elif used:
                yield Damage(_of(kind, page), how, file, number * PAGE_BYTES + lot.choice(used), lot.randrange(8))

    def _stale_pages(self, kind: str, file: str) -> Iterator[Damage]:
        before = _pages(self.earlier / file)
        for number, page in enumerate(_pages(self.data / file)[: len(before)]):
            if page != before[number] and any(before[number]):
                yield Damage(_of(kind, page), STALE, file, number * PAGE_BYTES)

    def _in_map(self, relation: str) -> Iterator[Damage]:
        """The page with bits of pages that were changed since, and bytes with no bit, of pages with rows."""
        file, kind = f"{self.files[relation]}_vm", "visibility map"
        yield from self._stale_pages(kind, file)
        heap = _pages(self.data / self.files[relation])
        page = _pages(self.data / file)[0]
        for at in range(len(heap) // 4):
            if page[24 + at] == 0:
                yield Damage(kind, SET, file, 24 + at)


def _some(lot: random.Random, of: list[T], most: int) -> list[T]:
    return lot.sample(of, min(most, len(of)))


def _of(kind: str, page: bytes) -> str:
    """Tells pages of an index with values from those whose damage only an insertion, or none, can see."""
    special = struct.unpack_from("<H", page, 16)[0]
    if kind == "hash" and not struct.unpack_from("<H", page, special + HASH_FLAG)[0] & HASH_VALUES:
        return f"{kind}, {UNSEEN}"
    if kind == "BRIN" and struct.unpack_from("<H", page, PAGE_BYTES - 2)[0] in BRIN_MAPS:
        return f"{kind}, {UNSEEN}"
    if kind == "SP-GiST" and struct.unpack_from("<H", page, special)[0] & SPGIST_NULLS:
        return f"{kind}, {UNSEEN}"
    return kind


def _pages(file: Path) -> list[bytes]:
    data = file.read_bytes()
    return [data[at : at + PAGE_BYTES] for at in range(0, len(data), PAGE_BYTES)]


def _used(page: bytes) -> list[int]:
    """Bytes of a page that mean something: without the checksum, and the space between pointers and rows."""
    lower, upper = struct.unpack_from("<HH", page, 12)
    return [at for at in range(PAGE_BYTES) if (at < lower or at >= upper) and at not in (8, 9)] if lower else []


def _transactions(first: int, last: int, lots: Sequence[random.Random]) -> str:
    return "".join(
        f"{transfer(session, number, SIZE.accounts, lot)}\n".replace("\n", ";\n")
        for number in range(first, last + 1)
        for session, lot in enumerate(lots)
    )


def plant(given: argparse.Namespace, *, checksums: bool) -> list[Found]:
    """Everything that is asked for, in a cluster of its own."""
    with tempfile.TemporaryDirectory(dir=given.scratch, prefix="planted-") as folder:
        Path(folder).chmod(0o755)
        cluster = Cluster(LocalHost(), Path(folder), checksums=checksums, major=given.major)
        cluster.make()
        damages = cluster.damages(given.places, given.seed)
        return [cluster.plant(one) for one in damages if not given.only or one.kind in given.only]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", type=int, default=2, help="places of each kind for each damage")
    parser.add_argument("--only", nargs="+", help="kinds of places")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--major", type=int)
    parser.add_argument("--scratch", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args()
    status = 0
    for checksums in (True, False):
        found = plant(given, checksums=checksums)
        print(
            f"data checksums {'on' if checksums else 'off'}: kind, damage, planted, by the wide look, by the deep one"
        )
        for kind, how in dict.fromkeys((one.damage.kind, one.damage.how) for one in found):
            of = [one for one in found if (one.damage.kind, one.damage.how) == (kind, how)]
            wide, deep = (sum(map(is_noticed, look)) for look in zip(*(one.looks for one in of), strict=True))
            print(f"{kind:15} {how:12} {len(of):3} {wide:3} {deep:3}")
        for one in found:
            if one.deep.verdict in ("held", "unknown"):
                print(f"{one.deep.verdict}: {one.damage.shown} {one.deep.reason}")
        noticed = sum(is_noticed(one.deep) for one in found)
        print(f"{noticed} of {len(found)} noticed by the deep look", flush=True)
        status = status or int(noticed < LEAST * len(found))
    return status


def is_noticed(judged: Judged) -> bool:
    """A server that ends while it reads leaves a state unknown, which its trial tells."""
    return judged.verdict != "held"


if __name__ == "__main__":
    sys.exit(main())
