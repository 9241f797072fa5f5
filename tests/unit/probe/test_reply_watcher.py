"""What standbys say of the WAL that they have, and which of them let a commit go."""

from __future__ import annotations

import json
import math
import os
import socket
import struct
from pathlib import Path

import pytest

from pgstrata.errors import NotUnderstood
from pgstrata.probe.acknowledged import Acknowledgements, last_awaited, let_go, parse_watched
from pgstrata.probe.reply_watcher import (
    RECEIVE_BUFFER_BYTES,
    dropped,
    first_kept,
    open_socket,
    packet_filter,
    parse_commits,
    parse_replies,
    shown,
    tcp_payload,
)
from pgstrata.spec.quorum import Quorum, parse_quorum

WALDUMP = """\
rmgr: Transaction len (rec/tot):     34/    34, tx:        751, lsn: 0/0154A8B8, prev 0/0154A870, desc: COMMIT 2026-01-02 03:04:05.000678 UTC
rmgr: Transaction len (rec/tot):     66/   322, tx:        752, lsn: 1/00000010, prev 0/0154A870, desc: COMMIT 2026-01-02 03:04:06 UTC; inval msgs: relcache 1
rmgr: Transaction len (rec/tot):     34/    34, tx:        753, lsn: 1/00000200, prev 1/00000010, desc: ABORT 2026-01-02 03:04:07.5 UTC
rmgr: Transaction len (rec/tot):     62/    62, tx:          0, lsn: 1/00000300, prev 1/00000200, desc: COMMIT_PREPARED 754: 2026-01-02 03:04:08.250000 UTC
"""  # noqa: E501 - as pg_waldump prints it


def reply(written: int, flushed: int, applied: int) -> bytes:
    body = b"r" + struct.pack("!QQQQB", written, flushed, applied, 0, 0)
    return b"d" + struct.pack("!I", len(body) + 4) + body


FEEDBACK = b"d" + struct.pack("!I", 4 + 25) + b"h" + bytes(24)


def test_replies_are_read_from_a_stream_however_it_is_cut() -> None:
    stream = reply(9, 8, 7) + FEEDBACK + reply(19, 18, 17)
    for cut in range(len(stream) + 1):
        first, rest = parse_replies(stream[:cut])
        second, rest = parse_replies(rest + stream[cut:])
        assert first + second == [(9, 8, 7), (19, 18, 17)]
        assert rest == b""


def test_what_is_no_message_is_left_out_until_the_next_packet() -> None:
    assert parse_replies(b"p\0\0\0\5xyz") == ([], b"")
    assert parse_replies(reply(1, 1, 1) + b"d\xff\xff\xff\xffr") == ([(1, 1, 1)], b"")


@pytest.mark.parametrize(("port", "found"), [(5432, ("198.18.0.3", b"hello")), (5433, ("", b""))])
def test_the_payload_of_a_packet_to_the_port(port: int, found: tuple[str, bytes]) -> None:
    tcp = struct.pack("!HHIIBBHHH", 40000, 5432, 1, 1, 8 << 4, 0x18, 512, 0, 0) + bytes(12)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp) + 5, 1, 0, 64, 6, 0)
    packet = head + socket.inet_aton("198.18.0.3") + socket.inet_aton("198.18.0.2") + tcp + b"hello" + b"padding"
    assert tcp_payload(packet, port) == found


def test_the_filter_takes_packets_of_the_standbys_alone() -> None:
    """Each address jumps to the last instruction, which takes the packet; the one before takes nothing."""
    rows = list(struct.iter_unpack("HBBI", packet_filter(["1.0.0.1", "1.0.0.2"])))
    assert [rows[at + 1 + rows[at][1]] for at in (1, 2)] == [rows[-1]] * 2
    assert rows[-2][3] == 0
    assert [hex(row[3]) for row in rows[1:3]] == ["0x1000001", "0x1000002"]


def test_commits_end_where_their_record_does() -> None:
    first, second, prepared = parse_commits(WALDUMP)
    assert first == {"commit": 0x154A8B8 + 34, "us": 1767323045_000678}
    assert second == {"commit": (1 << 32) + 0x10 + 322, "us": 1767323046_000000}
    assert prepared == {"commit": (1 << 32) + 0x300 + 62, "us": 1767323048_250000}
    assert shown((1 << 32) + 0x10) == "1/10"


def test_the_oldest_segment_says_from_where_commits_can_be_told(tmp_path: Path) -> None:
    for name in ("000000010000000200000003", "000000010000000200000004", "archive_status", "00000002.history"):
        (tmp_path / name).write_bytes(bytes(1 << 20))
    assert first_kept(str(tmp_path)) == (2 << 32) + (3 << 20)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads packets")
def test_packets_that_were_not_read_in_time_are_counted() -> None:
    with open_socket("lo", ["127.0.0.1"]) as packets, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        assert packets.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * RECEIVE_BUFFER_BYTES
        packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(50):
            sender.sendto(bytes(1000), ("127.0.0.1", 9))
        assert dropped(packets) > 0
        assert dropped(packets) == 0


def quorum(text: str) -> Quorum:
    found = parse_quorum(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("ANY 1 (*)", "b"),
        ("ANY 2 (*)", "c"),
        ("ANY 3 (*)", "a"),
        ("FIRST 1 (a, b, c)", "a"),
        ("FIRST 2 (b, c, a)", "c"),
        ("FIRST 3 (*)", "a"),
    ],
)
def test_the_last_that_a_commit_waits_for(text: str, last: str) -> None:
    assert last_awaited(quorum(text), {"a": 30.0, "b": 10.0, "c": 20.0}) == last


def rows(*said: tuple[str, int, int], commits: tuple[tuple[int, int], ...]) -> str:
    """Replies as (standby, time, flushed), each written a little further and applied a little less far."""
    replies = [{"standby": n, "us": us, "write": at + 1, "flush": at, "apply": at - 1} for n, us, at in said]
    made = [{"commit": at, "us": us} for at, us in commits]
    return "".join(json.dumps(row) + "\n" for row in [*replies, *made])


SAID = rows(
    ("a", 1000, 5), ("b", 1500, 5), ("a", 3000, 100), ("b", 4000, 200), ("a", 9000, 200), ("a", 9500, 150),
    commits=((50, 1200), (100, 2000), (200, 2500), (300, 2600)),
)  # fmt: skip


def test_each_commit_counts_to_the_one_whose_acknowledgement_was_the_last_it_waited_for() -> None:
    """The first was made before b had said anything, the last one nobody acknowledged."""
    said, commits = parse_watched(SAID, "flush")
    found = let_go(said, commits, quorum("ANY 1 (*)"), ("a", "b"))
    assert found == {"a": Acknowledgements(2, 1, 1.0, 1.0), "b": Acknowledgements(2, 1, 1.5, 1.5)}
    both = let_go(said, commits, quorum("ANY 2 (*)"), ("a", "b"))
    assert both == {"a": Acknowledgements(2, 1, 6.5, 6.5), "b": Acknowledgements(2, 1, 2.0, 2.0)}
    alone = let_go(said, commits, quorum("FIRST 1 (b, a)"), ("a", "b"))
    assert alone == {"b": Acknowledgements(2, 2, 1.75, 2.0), "a": Acknowledgements(2, 0, None, None)}


def test_the_position_that_counts_is_the_one_that_commits_wait_for() -> None:
    said, commits = parse_watched(SAID, "apply")
    assert let_go(said, commits, quorum("ANY 1 (*)"), ("a", "b"))["b"].released == 1
    assert said["a"].reached_us(100) == 9000
    assert parse_watched(SAID, "write")[0]["a"].reached_us(101) == 3000
    assert said["b"].reached_us(200) == math.inf


def test_one_that_acknowledges_nothing_is_not_told_of() -> None:
    said, commits = parse_watched(SAID, "flush")
    assert let_go(said, commits, quorum("ANY 1 (a)"), ("a", "b")).keys() == {"a"}
    assert let_go({}, commits, quorum("ANY 1 (*)"), ("a",)) == {"a": Acknowledgements(0, 0, None, None)}


def test_what_the_watcher_cannot_have_printed_is_refused() -> None:
    with pytest.raises(NotUnderstood, match="watcher of replies"):
        parse_watched('{"standby": "a"}\n', "flush")
