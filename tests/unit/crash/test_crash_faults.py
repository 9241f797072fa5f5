"""Faults as the ledger's client is told, and which stacks can have them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pgstrata.crash.faults import FAULTS, REFUSED_ACCOUNTS, ledger_size, refuse_fault, render_fault
from pgstrata.crash.ledger import LedgerSize
from pgstrata.crash.ledger_client import fill
from pgstrata.crash.script import TPCB_LIKE
from pgstrata.errors import UsageError
from pgstrata.spec.crash import crash_campaign, named_stacks
from pgstrata.stack.plan import PlanContext, StackPlan, plan_stack


def plan(text: str) -> StackPlan:
    (stack,) = crash_campaign(named_stacks([text])).stacks
    return plan_stack(stack, PlanContext("t", "/scratch", 1 << 30))


def test_no_fault_is_nothing() -> None:
    assert render_fault("", plan("ext4"), LedgerSize()) == ""


def test_a_fault_of_the_log_is_one_of_each_disk_that_it_lies_on() -> None:
    told = json.loads(render_fault("flush-error", plan("ext4@wal=btrfs(raid1)"), LedgerSize(transactions=41)))
    assert told["after"] == 21
    assert [request["disk"] for request in told["requests"]] == ["wal-0", "wal-1"]
    assert told["requests"][0]["fault"] == {"on": "flush", "effect": "error", "count": 1}


def test_refused_pages_are_those_of_the_data_volume() -> None:
    told = json.loads(render_fault("write-error", plan("ext4@wal=xfs"), LedgerSize()))
    assert (told["disk"], told["requests"]) == ("data-0", [])
    assert told["data"].endswith("/data/pgdata")


@pytest.mark.parametrize("name", FAULTS)
def test_a_stack_that_is_overwritten_in_place_can_have_each(name: str) -> None:
    refuse_fault(name, plan("xfs").stack)


@pytest.mark.parametrize(
    ("name", "stack", "words"), [("nonsense", "ext4", "no fault"), ("write-error", "btrfs", "overwritten in place")]
)
def test_what_cannot_be_is_refused(name: str, stack: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        refuse_fault(name, plan(stack).stack)


def test_pages_of_the_ledger_are_refused_of_the_ledger_alone() -> None:
    with pytest.raises(UsageError, match="a table of the ledger, which pgbench's tpcb-like does not have"):
        refuse_fault("write-error", plan("ext4").stack, "tpcb-like")
    refuse_fault("flush-error", plan("ext4").stack, "tpcb-like")
    assert (ledger_size(7, "write-error", "ledger").accounts, ledger_size(7, "", "ledger")) == (
        REFUSED_ACCOUNTS, LedgerSize(transactions=7),
    )  # fmt: skip
    assert ledger_size(7, "gone", "tpcb-like") == LedgerSize(transactions=7, script=TPCB_LIKE)


def test_all_space_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = 10_000_000

    def take(file: int, at: int, size: int) -> None:
        nonlocal left
        if size > left:
            raise OSError(28, "no space")
        left -= size

    monkeypatch.setattr(os, "posix_fallocate", take)
    fill(str(tmp_path / "filler"))
    assert left < 4096
