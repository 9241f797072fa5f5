"""Faults as the ledger's client is told, and which stacks can have them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import get_args

import pytest

from pgstrata.crash.job import FAULTS, REFUSED_ACCOUNTS, ledger_size, render_fault
from pgstrata.crash.ledger import LedgerSize
from pgstrata.crash.ledger_client import fill
from pgstrata.crash.script import TPCB_LIKE
from pgstrata.spec.crash import crash_campaign, named_stacks
from pgstrata.spec.crash_request import CrashRequest, FaultName, fault_problem
from pgstrata.stack.plan import PlanContext, StackPlan, plan_stack


def plan(text: str) -> StackPlan:
    (stack,) = crash_campaign(named_stacks([text])).stacks
    return plan_stack(stack, PlanContext("t", "/scratch", 1 << 30))


def test_no_fault_is_nothing() -> None:
    assert render_fault(None, plan("ext4"), LedgerSize()) == ""


def test_a_fault_of_the_log_is_one_of_each_disk_that_it_lies_on() -> None:
    told = json.loads(render_fault("flush-error", plan("ext4@wal=btrfs(raid1)"), LedgerSize(transactions=41)))
    assert told["after"] == 21
    assert [request["disk"] for request in told["requests"]] == ["wal-0", "wal-1"]
    assert told["requests"][0]["fault"] == {"on": "flush", "effect": "error", "count": 1}


def test_refused_pages_are_those_of_the_data_volume() -> None:
    told = json.loads(render_fault("write-error", plan("ext4@wal=xfs"), LedgerSize()))
    assert (told["disk"], told["requests"]) == ("data-0", [])
    assert told["data"].endswith("/data/pgdata")


def problem(fault: FaultName, stack: str, **asked: object) -> str:
    return fault_problem(plan(stack).stack, CrashRequest.model_validate({"fault": fault, **asked}))


def test_a_stack_that_is_overwritten_in_place_can_have_each() -> None:
    assert set(FAULTS) == set(get_args(FaultName))
    assert [problem(name, "xfs") for name in FAULTS] == [""] * len(FAULTS)


def test_pages_are_refused_where_it_is_known_where_they_lie() -> None:
    assert "overwritten in place" in problem("write-error", "btrfs")


def test_pages_of_the_ledger_are_refused_of_the_ledger_alone() -> None:
    refused = problem("write-error", "ext4", script="tpcb-like")
    assert "a table of the ledger, which pgbench's tpcb-like does not have" in refused
    assert problem("flush-error", "ext4", script="tpcb-like") == ""
    assert ledger_size(CrashRequest(transactions=7, fault="write-error")).accounts == REFUSED_ACCOUNTS
    assert ledger_size(CrashRequest(transactions=7)) == LedgerSize(transactions=7)
    written = ledger_size(CrashRequest(transactions=7, fault="gone", script="tpcb-like"))
    assert written == LedgerSize(transactions=7, script=TPCB_LIKE)


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
