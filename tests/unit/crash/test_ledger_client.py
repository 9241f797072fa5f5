"""The recorder against a made-up server and disk: what is marked, and when."""

from __future__ import annotations

import argparse
import json
import random
import re
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pgstrata.crash.ledger_client import (
    BRANCHES,
    EVERY,
    TELLERS,
    Disk,
    Session,
    recorded_numbers,
    tpcb_like,
    transfer,
    write_entries,
)

READY = b"Z" + struct.pack("!i", 5) + b"I"
PATIENCE_S = 60


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


class Listening:
    """A socket that answers one client in a thread of its own."""

    def __init__(self, path: Path, answer: Callable[[socket.socket], None]) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE_S)
        self._socket.bind(str(path))
        self._socket.listen(1)
        self._answer = answer
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        client, _ = self._socket.accept()
        with client:
            client.settimeout(PATIENCE_S)
            self._answer(client)

    def close(self) -> None:
        self._thread.join()
        self._socket.close()


class Stage:
    """Server and disk, and what happened on both in one order."""

    def __init__(self, folder: Path, tag: bytes = b"COMMIT") -> None:
        self.happened: list[str] = []
        self.tag = tag
        self.server = Listening(folder / "server", self._serve)
        self.disk = Listening(folder / "control", self._mark)

    def _serve(self, client: socket.socket) -> None:
        stream = client.makefile("rb")
        with stream:
            length = struct.unpack("!i", stream.read(4))[0]
            stream.read(length - 4)
            client.sendall(message(b"R", struct.pack("!i", 0)) + READY)
            while head := stream.read(5):
                asked = stream.read(struct.unpack("!i", head[1:])[0] - 4)
                if b"CHECKPOINT" in asked:
                    client.sendall(message(b"C", b"CHECKPOINT\0") + READY)
                    continue
                self.happened.append("asked")
                self.happened.append("answered")
                client.sendall(message(b"C", b"INSERT 0 1\0") + message(b"C", self.tag + b"\0") + READY)

    def _mark(self, client: socket.socket) -> None:
        stream = client.makefile("rb")
        with stream:
            for line in stream:
                self.happened.append(re.sub(r" [0-9]+[.][0-9]{6}$", " AT", json.loads(line)["text"]))
                client.sendall(b'{"ok": true, "seq": 1}\n')

    def close(self) -> None:
        self.server.close()
        self.disk.close()


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("l")


def write(stage: Stage, folder: Path, transactions: int, script: str = "ledger") -> int:
    given = argparse.Namespace(
        spread_s=0.0,
        seed=1,
        transactions=transactions,
        recordings=1,
        accounts=10,
        checkpoint_every=2,
        fault=None,
        script=script,
    )
    server, disk = Session(str(folder / "server"), "postgres", "postgres"), Disk(str(folder / "control"))
    try:
        return write_entries(0, server, disk, given, threading.Event())
    finally:
        server.close()
        disk.close()
        stage.close()


def test_a_mark_follows_the_server_s_word_and_comes_before_the_next_transaction(folder: Path) -> None:
    stage = Stage(folder)
    assert write(stage, folder, 3) == 3
    each = [["asked", "answered", f"ack 0 {number} AT"] for number in (1, 2, 3)]
    each[1].append("checkpoint")
    assert stage.happened == [event for events in each for event in events]


def test_each_statement_of_pgbench_s_script_is_a_query_and_the_mark_follows_the_last(folder: Path) -> None:
    stage = Stage(folder)
    assert write(stage, folder, 2, "tpcb-like") == 2
    each = [[*["asked", "answered"] * 7, f"ack 0 {number} AT"] for number in (1, 2)]
    each[1].append("checkpoint")
    assert stage.happened == [event for events in each for event in events]


def test_pgbench_s_transactions_move_one_amount_and_history_says_whose_they_are() -> None:
    begin, account, select, teller, branch, history, end, _ = tpcb_like(3, 7, 100, random.Random(1)).split(";\n")
    assert tpcb_like(3, 7, 100, random.Random(1)).startswith(f"{begin};\n{account};\n")
    (delta,) = set(re.findall(r"balance = \w+ \+ (-?\d+)", f"{account} {teller} {branch}"))
    aid, tid, bid = (int(one.rsplit("= ", 1)[1]) for one in (select, teller, branch))
    assert (1 <= aid <= 100, 1 <= tid <= TELLERS, 1 <= bid <= BRANCHES) == (True, True, True)
    assert account.endswith(f"WHERE aid = {aid}")
    assert history.endswith(f"VALUES ({tid}, {bid}, {aid}, {delta}, CURRENT_TIMESTAMP, '3 7')")
    assert (begin, end) == ("BEGIN", "END")


@pytest.mark.parametrize(("transactions", "recordings"), [(1000, 5), (7, 3), (1, 1)])
def test_recordings_share_the_numbers_of_a_session_without_a_gap(transactions: int, recordings: int) -> None:
    parts = recorded_numbers(transactions, recordings)
    assert len(parts) == recordings
    assert [number for part in parts for number in part] == list(range(1, transactions + 1))


def test_what_the_server_rolled_back_is_not_marked(folder: Path) -> None:
    stage = Stage(folder, tag=b"ROLLBACK")
    with pytest.raises(RuntimeError, match="transaction 1 of session 0 ended with"):
        write(stage, folder, 3)
    assert stage.happened == ["asked", "answered"]


def test_transactions_move_one_amount_between_two_accounts_and_are_the_same_again() -> None:
    text = transfer(3, 7, 100, random.Random(1))
    assert text == transfer(3, 7, 100, random.Random(1))
    statements = text.split(";")
    assert (statements[0], statements[-1]) == ("BEGIN", "COMMIT")
    values = statements[1].partition("VALUES ")[2].strip("()").split(", ")
    session, number, source, target, amount = map(int, values)
    assert (session, number) == (3, 7)
    assert source < target
    assert f"balance - {amount} WHERE id = {source}" in statements[2]
    assert f"balance + {amount} WHERE id = {target}" in statements[3]


def test_a_prepared_transaction_is_committed_after_the_transactions_that_it_was_open_for() -> None:
    texts = {number: transfer(3, number, 100, random.Random(1)) for number in range(1, 4 * EVERY)}
    before = {number: text.splitlines()[0] for number, text in texts.items() if "\n" in text}
    assert list(before) == [EVERY, 2 * EVERY, 3 * EVERY]
    assert before[EVERY].endswith(f"PREPARE TRANSACTION 'ledger 3 {EVERY}'")
    assert before[2 * EVERY] == f"COMMIT PREPARED 'ledger 3 {EVERY}'"
    assert all(
        text.splitlines()[-1].startswith("BEGIN;INSERT INTO ledger.entry VALUES (3, ") for text in texts.values()
    )
    assert all(text.endswith(";COMMIT") for text in texts.values())
    assert {number for number, text in texts.items() if "INSERT INTO ledger.kind" in text} == set(before)
