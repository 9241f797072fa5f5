"""What is known of a failing state from the disk's events."""

from __future__ import annotations

import json

from pgstrata.crash.ledger import Mark
from pgstrata.crash.timeline import Request, last_flush, missing_commits, parse_beginning, parse_requests, timeline

EVENTS = [
    {"seq": 1, "disk": 0, "event": "added", "text": "data-0", "length": 4096},
    {"seq": 2, "event": "mark", "text": "begin"},
    {"seq": 3, "disk": 0, "event": "write", "offset": 0, "length": 512, "fua": False},
    {"seq": 4, "disk": 0, "event": "flush"},
    {"seq": 5, "disk": 0, "event": "completed", "of": 3, "failed": False},
    {"seq": 6, "disk": 0, "event": "completed", "of": 4, "failed": False},
    {"seq": 7, "event": "mark", "text": "ack 0 1"},
    {"seq": 8, "disk": 0, "event": "write", "offset": 0, "length": 512, "fua": False},
    {"seq": 9, "disk": 0, "event": "completed", "of": 8, "failed": True},
    {"seq": 10, "disk": 0, "event": "zero", "offset": 0, "length": 1024},
    {"seq": 11, "event": "mark", "text": "ack 0 2"},
    {"seq": 12, "disk": 0, "event": "completed", "of": 10, "failed": False},
]
TEXT = "".join(json.dumps(event) + "\n" for event in EVENTS)
MARKS = (Mark(7, 0, 1, 0.1), Mark(11, 0, 2, 0.2))


def test_requests_are_told_as_they_were_at_the_cut() -> None:
    assert parse_beginning(TEXT) == 2
    assert parse_requests(TEXT, 5) == (Request(3, "write", 512, 5, "data-0"), Request(4, "flush", 0, None, "data-0"))
    assert parse_requests(TEXT, 11) == (
        Request(3, "write", 512, 5, "data-0"),
        Request(4, "flush", 0, 6, "data-0"),
        Request(10, "zero", 1024, None, "data-0"),
    )
    assert parse_requests(TEXT, 12)[-1].completed == 12
    assert last_flush(parse_requests(TEXT, 12), "data-0") == 4
    assert last_flush(parse_requests(TEXT, 5), "data-0") is None
    assert last_flush(parse_requests(TEXT, 12), "wal-0") is None


def test_a_missing_transaction_is_told_with_the_flushes_since_it_could_begin() -> None:
    requests = parse_requests(TEXT, 12)
    first, second = missing_commits(MARKS, {}, requests, 12, 2)
    assert (first.number, first.began, first.acknowledged, first.flushes) == (1, 2, 7, 1)
    assert (second.number, second.began, second.acknowledged, second.flushes) == (2, 7, 11, 0)
    assert missing_commits(MARKS, {0: 1}, requests, 12, 2) == (second,)
    assert missing_commits(MARKS, {}, requests, 10, 2) == (first,)
    assert missing_commits(MARKS, {0: 2}, requests, 12, 2) == ()


def test_only_the_last_missing_ones_are_told() -> None:
    marks = tuple(Mark(100 + n, n % 3, n // 3 + 1, 0.1 * n) for n in range(30))
    found = missing_commits(marks, {}, (), 200, 99)
    assert [commit.acknowledged for commit in found] == [125, 126, 127, 128, 129]
    assert found[-1].began == 126


def test_the_timeline_has_the_last_events_and_what_was_lost_before() -> None:
    requests = (
        Request(5, "write", 512, 6, "data-0"),
        *(Request(n, "flush", 0, n + 1, "data-0") for n in range(10, 400, 2)),
    )
    marks = (Mark(9, 0, 1, 0.1), Mark(399, 0, 2, 0.2), Mark(500, 0, 3, 0.3))
    found = timeline(requests, marks, missing_commits(marks, {0: 1}, (), 450, 1), frozenset({5}), 450)
    assert (found[0].seq, found[0].lost, found[0].what) == (5, True, "write")
    assert (found[-1].seq, found[-1].lost, found[-1].what) == (399, True, "acknowledgement")
    assert len(found) == 61
    assert not any(event.seq in (9, 500) for event in found)
