"""Writes the ledger, or pgbench's tables, and marks every acknowledgement in the disk's event log. Run on the host;
standard library only.

It starts as root, which opens the disk's control socket, and continues as the server's user, who may connect. Each
session sends a transaction, waits until the server reports its commit, has that marked, and only then starts the next.
At any moment at most one transaction a session is in progress. It implements PostgreSQL's protocol (version 3, simple
queries) itself, so that nothing lies between the server's reply and the mark.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import json
import os
import pwd
import random
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from typing import Any

PATIENCE_S = 300.0
BRANCHES, TELLERS = 8, 80
"""pgbench's tables: one branch per session, and ten tellers per branch."""
PROTOCOL = 196608
FS_IOC_FIEMAP = 0xC020660B
MOST_EXTENTS = 500
MOST_SEGMENTS = 200
CHECKPOINT, RECORDING = "checkpoint", "recording"
"""Marks after a checkpoint, and before a recording."""
EVERY = 10
"""Transactions of a session for each one with a row of `ledger.kind`, which has objects of every kind. In turn, that
one opens a prepared transaction, and commits the one opened before."""
PAYLOAD = 100
"""Digests of 32 bytes in a value that is stored outside its row, and in a large object."""
OFTENER = 5
"""Checkpoints of a later recording for each one of the first."""


class Disk:
    """The control socket of the daemon that records the disk; its path may be longer than an address."""

    def __init__(self, path: str) -> None:
        folder, name = os.path.split(path)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(PATIENCE_S)
            self._socket.connect(f"/proc/self/fd/{opened}/{name}")
        finally:
            os.close(opened)
        self._answers = self._socket.makefile("rb")

    def mark(self, text: str) -> None:
        self.ask({"op": "mark", "text": text})

    def ask(self, request: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(self._answers.readline() or b"{}")
        if not answer.get("ok"):
            raise RuntimeError(f"{request}: {answer.get('error', 'no answer')}")

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


class Session:
    """One connection to the server."""

    def __init__(self, path: str, user: str, database: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE_S)
        self._socket.connect(path)
        self._input = self._socket.makefile("rb")
        self._value = ""
        options = f"user\0{user}\0database\0{database}\0\0".encode()
        self._socket.sendall(struct.pack("!ii", len(options) + 8, PROTOCOL) + options)
        self._until_ready()

    def value(self, query: str) -> str:
        """The first column of the last row."""
        self.ask(query)
        return self._value

    def ask(self, statements: str) -> list[str]:
        """The command tags of the server's answers, each recorded on completion."""
        text = statements.encode() + b"\0"
        self._socket.sendall(b"Q" + struct.pack("!i", len(text) + 4) + text)
        return self._until_ready()

    def _until_ready(self) -> list[str]:
        tags: list[str] = []
        refused = ""
        while True:
            head = self._input.read(5)
            if len(head) < 5:
                raise RuntimeError(refused or "the server closed the connection")
            kind, length = head[:1], struct.unpack("!i", head[1:])[0]
            body = self._input.read(length - 4)
            if kind == b"E":
                fields = {part[:1]: part[1:].decode() for part in body.split(b"\0") if part}
                refused = f"the server refused: {fields.get(b'M', '')}"
            if kind == b"R" and struct.unpack("!i", body[:4])[0] != 0:
                raise RuntimeError("the server wants a password")
            if kind == b"C":
                tags.append(body.rstrip(b"\0").decode())
            if kind == b"D":
                length = struct.unpack("!i", body[2:6])[0]
                self._value = body[6 : 6 + length].decode()
            if kind == b"Z":
                if refused:
                    raise RuntimeError(refused)
                return tags

    def close(self) -> None:
        self._input.close()
        self._socket.close()


def transfer(session: int, number: int, accounts: int, lot: random.Random) -> str:
    """An entry and the two balances that it moves. Rows are locked in one order, so nobody deadlocks."""
    before, within = objects(session, number) if number % EVERY == 0 else ("", "")
    first, second = sorted(lot.sample(range(accounts), 2))
    amount = lot.randint(-1000, 1000)
    return (
        f"{before}BEGIN;"
        f"INSERT INTO ledger.entry VALUES ({session}, {number}, {first}, {second}, {amount});"
        f"UPDATE ledger.account SET balance = balance - {amount} WHERE id = {first};"
        f"UPDATE ledger.account SET balance = balance + {amount} WHERE id = {second};"
        f"{within}COMMIT"
    )


def objects(session: int, number: int) -> tuple[str, str]:
    """A query before an entry's transaction that opens or commits a prepared one, and statements within it: a row of
    `ledger.kind` with a value stored outside it and a large object, and a new value of the sequence for the row before.
    """
    opened, key = f"'ledger {session} {number - EVERY}'", f"'{session} {number}'"
    opening = f"BEGIN;INSERT INTO ledger.prepared VALUES ({session}, {number});PREPARE TRANSACTION"
    before = f"COMMIT PREPARED {opened}" if number % (2 * EVERY) == 0 else f"{opening} 'ledger {session} {number}'"
    return f"{before}\n", (
        f"INSERT INTO ledger.kind SELECT {number * 1000 + session}, nextval('ledger.turn'), {key}, {key},"
        f" ARRAY['{session}', {key}], point({session}, {number}), content, lo_from_bytea(0, content::bytea)"
        f" FROM (SELECT repeat(md5({key}), {PAYLOAD}) AS content) c;"
        f"UPDATE ledger.kind SET turn = nextval('ledger.turn') WHERE id = {(number - EVERY) * 1000 + session};"
    )


def tpcb_like(session: int, number: int, accounts: int, lot: random.Random) -> str:
    """pgbench's built-in script. It leaves the filler of history empty; here the filler names the transaction's session
    and number.
    """
    aid, tid, bid = (lot.randint(1, most) for most in (accounts, TELLERS, BRANCHES))
    delta = lot.randint(-5000, 5000)
    return (
        "BEGIN;\n"
        f"UPDATE pgbench_accounts SET abalance = abalance + {delta} WHERE aid = {aid};\n"
        f"SELECT abalance FROM pgbench_accounts WHERE aid = {aid};\n"
        f"UPDATE pgbench_tellers SET tbalance = tbalance + {delta} WHERE tid = {tid};\n"
        f"UPDATE pgbench_branches SET bbalance = bbalance + {delta} WHERE bid = {bid};\n"
        "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime, filler)"
        f" VALUES ({tid}, {bid}, {aid}, {delta}, CURRENT_TIMESTAMP, '{session} {number}');\n"
        "END;\n"
    )


TRANSACTIONS = {"ledger": transfer, "tpcb-like": tpcb_like}
"""By the names of scripts. Each line is a query by itself; the last one commits."""


def acknowledgement(session: int, number: int, at_s: float) -> str:
    """The mark of a transaction whose commit the server acknowledged."""
    return f"ack {session} {number} {at_s:.6f}"


def recorded_numbers(transactions: int, recordings: int) -> list[range]:
    """The numbers of a session's transactions in each recording."""
    bounds = [transactions * part // recordings + 1 for part in range(recordings + 1)]
    return [range(bounds[part], bounds[part + 1]) for part in range(recordings)]


def write_entries(
    session: int, server: Session, disk: Disk, given: argparse.Namespace, failed: threading.Event, recording: int = 0
) -> int:
    """The transactions of one session in a recording, one after the other; returns the last one acknowledged.

    The first session carries out the fault, then sets `failed`. Where a table's pages are refused, the others wait for
    that: the server pauses for a second after a checkpoint that failed, and transactions must follow the next one.
    """
    lot, began_s = random.Random(f"{given.seed + recording} {session}"), time.monotonic()
    numbers = recorded_numbers(given.transactions, given.recordings)[recording]
    checkpoint_every = max(1, given.checkpoint_every // (OFTENER if recording else 1))
    for number in numbers:
        time.sleep(max(0.0, began_s + given.spread_s * number / given.transactions - time.monotonic()))
        queries = TRANSACTIONS[given.script](session, number, given.accounts, lot).splitlines()
        tags = [tag for query in queries for tag in server.ask(query)]
        if tags[-1:] != ["COMMIT"]:
            raise RuntimeError(f"transaction {number} of session {session} ended with {tags}")
        disk.mark(acknowledgement(session, number, time.monotonic()))
        if given.fault and number == given.fault["after"]:
            if session == 0:
                fail(given.fault, server, disk)
                failed.set()
            elif "relation" in given.fault:
                failed.wait(PATIENCE_S)
        if session == 0 and number % checkpoint_every == 0:
            server.ask("CHECKPOINT")
            disk.mark(CHECKPOINT)
    return numbers[-1]


def fail(fault: dict[str, Any], server: Session, disk: Disk) -> None:
    """Puts the fault into force. If the server does not survive it, its sessions end."""
    disk.mark("fault")
    for request in fault["requests"]:
        disk.ask(request)
    if "relation" in fault:
        refuse_writes(fault, server, disk)
    if "filler" in fault:
        fill(fault["filler"])
        for _ in range(MOST_SEGMENTS):  # until those are used up that wait to be written again
            server.ask("SELECT pg_logical_emit_message(true, '', ''); SELECT pg_switch_wal()")


def refuse_writes(fault: dict[str, Any], server: Session, disk: Disk) -> None:
    """Has the disk refuse the pages of a table until a checkpoint has failed; the next one is to write them again."""
    path = server.value(f"SELECT pg_relation_filepath('{fault['relation']}')")
    for start, end in extents(f"{fault['data']}/{path}"):
        disk.ask({"op": "fault", "disk": fault["disk"], "fault": {**fault["refuse"], "from": start, "to": end}})
    with suppress(RuntimeError):
        server.ask("CHECKPOINT")
    disk.ask({"op": "clear_faults", "disk": fault["disk"]})
    server.ask("CHECKPOINT")


def extents(path: str) -> list[tuple[int, int]]:
    """Location of a file on its device, in bytes (FS_IOC_FIEMAP)."""
    asked = bytearray(struct.pack("QQIIII", 0, 2**64 - 1, 1, 0, MOST_EXTENTS, 0) + bytes(56 * MOST_EXTENTS))
    with open(path, "rb") as file:
        fcntl.ioctl(file, FS_IOC_FIEMAP, asked)
    count = struct.unpack_from("I", asked, 20)[0]
    places = (struct.unpack_from("QQ", asked, 32 + 56 * number + 8) for number in range(count))
    return [(start, start + length) for start, length in places]


def fill(path: str) -> None:
    """Fills the remaining space with a file without content."""
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    at, size = 0, 1 << 30
    while size >= 4096:
        try:
            os.posix_fallocate(file, at, size)
            at += size
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            size //= 2
    os.close(file)


def write_ledger(given: argparse.Namespace) -> dict[str, Any]:
    """Runs all sessions at once, recording after recording, between the marks `begin` and `end`."""
    disks = [Disk(given.control) for _ in range(given.sessions)]
    become(given.os_user)
    servers = [Session(given.socket, given.user, given.database) for _ in disks]
    acknowledged = [0] * given.sessions
    errors: list[str] = []
    failed = threading.Event()

    def work(session: int, recording: int) -> None:
        try:
            server, disk = servers[session], disks[session]
            acknowledged[session] = write_entries(session, server, disk, given, failed, recording)
        except (OSError, RuntimeError, ValueError) as error:
            errors.append(f"session {session}: {error}")
        finally:
            if session == 0:
                failed.set()

    disks[0].mark("begin")
    for recording in range(given.recordings):
        disks[0].mark(RECORDING)
        if recording:
            servers[0].ask("VACUUM")
        threads = [threading.Thread(target=work, args=(session, recording)) for session in range(given.sessions)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            break
    disks[0].mark("end")
    for server, disk in zip(servers, disks, strict=True):
        server.close()
        disk.close()
    return {"acknowledged": acknowledged, "errors": errors}


def become(user: str) -> None:
    """Drops root privileges permanently."""
    if not user or os.getuid() != 0:
        return
    entry = pwd.getpwnam(user)
    os.initgroups(user, entry.pw_gid)
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    for name in ("control", "socket", "user", "database", "os-user"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("sessions", "transactions", "recordings", "accounts", "checkpoint-every", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--script", choices=sorted(TRANSACTIONS), required=True)
    parser.add_argument("--spread-s", type=float, default=0.0, help="time over which transactions are spread")
    parser.add_argument("--fault", type=json.loads, help="what the disk is made to do halfway")
    given = parser.parse_args(arguments)
    told = write_ledger(given)
    json.dump(told, sys.stdout)
    return 1 if told["errors"] and not given.fault else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
