"""Answers of functions that run elsewhere: what was sent comes back, and anything else is refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgstrata.errors import PgstrataError, UsageError
from pgstrata.fleet import calls
from pgstrata.fleet.calls import WorkerLost, WrongAnswer, call, name_of, result_of
from pieces import digest, doubled, echoed, given_up, refused


@given(st.text() | st.binary() | st.integers(-(2**62), 2**62))
def test_a_result_comes_back_as_it_was(value: str | bytes | int) -> None:
    assert result_of(call(name_of(echoed), value)) == value


def test_long_answers_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "CHUNK_BYTES", 10)
    answer = call(name_of(digest), b"x")
    assert len(answer) == 7
    assert result_of(tuple(answer)) == digest(b"x")


def test_an_error_comes_back_with_its_kind_and_hint() -> None:
    with pytest.raises(UsageError, match="not this") as raised:
        result_of(call(name_of(refused), "not this"))
    assert raised.value.hint == "ask for something else"


def test_a_defect_over_there_is_an_error_with_its_name() -> None:
    with pytest.raises(PgstrataError, match=r"TypeError: .*doubled"):
        result_of(call(name_of(doubled)))
    with pytest.raises(PgstrataError, match=r"TypeError: .*not callable"):
        result_of(call("pieces:no_such_function"))


def test_what_was_given_up_is_a_loss() -> None:
    with pytest.raises(WorkerLost, match="stopped"):
        result_of(call(name_of(given_up)))


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "t",
        b"tx",
        [],
        ["tx"],
        [bytearray(b"tx")],
        [b""],
        [b"x"],
        [b"t\xff"],
        [b"l\xff"],
        [b"i"],
        [b"i1.5"],
        [b"i" + b"1" * 5000],
        [b"e{}"],
        [b'e{"kind": 1, "message": "x"}'],
        [b'e{"kind": "UsageError", "message": "x", "more": 1}'],
        [b'e{"kind": "UsageError", "message": "' + b"x" * 70_000 + b'"}'],
        [b"b" + bytes(100)],
    ],
    ids=lambda answer: repr(answer)[:40],
)
def test_what_is_no_answer_is_refused(answer: object) -> None:
    with pytest.raises(WrongAnswer):
        result_of(answer, most_bytes=99 if answer == [b"b" + bytes(100)] else calls.MOST_BYTES)


@given(st.binary())
def test_any_bytes_are_an_answer_or_refused(content: bytes) -> None:
    with suppress(PgstrataError, WorkerLost):
        assert isinstance(result_of([content]), str | bytes | int)


def test_an_error_of_no_known_kind_is_one_of_pgstrata() -> None:
    with pytest.raises(PgstrataError, match="gone") as raised:
        result_of([b'e{"kind": "SystemExit", "message": "gone"}'])
    assert type(raised.value) is PgstrataError
