"""Sessions of a worker: one of a campaign and a host, beside those of other campaigns."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("distributed", reason="needs Dask: make setup")

from distributed.core import Status

from awaiting import wait_until
from pgstrata.fleet.messages import SessionAsked
from pgstrata.fleet.worker import Session, Sessions
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.notation.stack import parse_stack


def session(token: str) -> Session:
    campaign = Campaign(name=token, stacks=(parse_stack("ext4"),))
    return Session(SessionAsked(token=token, host="db1", campaign=campaign, fake=True))


def test_a_second_campaign_does_not_end_the_session_of_the_first() -> None:
    tasks = {"lease-a": object(), "lease-b": object(), "lease-b2": object()}
    sessions = Sessions(SimpleNamespace(status=Status.running, state=SimpleNamespace(tasks=tasks)))
    a, b, again = session("a"), session("b"), session("b")
    sessions.enter(a, "lease-a")
    sessions.enter(b, "lease-b")
    assert (sessions.find(("db1", "a"), "lease-a"), sessions.find(("db1", "b"), "lease-b")) == (a, b)
    sessions.enter(again, "lease-b2")
    assert (sessions.find(("db1", "a"), "lease-a"), sessions.find(("db1", "b"), "lease-b2")) == (a, again)
    assert sessions.find(("db1", "b"), "lease-b") is None
    assert (a.is_stopping, b.is_stopping, again.is_stopping) == (False, True, False)
    del tasks["lease-a"]
    wait_until(lambda: sessions.find(("db1", "a"), "lease-a") is None, "the end of a session that nobody wants")
    assert sessions.find(("db1", "b"), "lease-b2") is again
    assert sessions.leave(again)
