"""The worker that stops the nodes of a cluster: what is acknowledged, how processes stop, who is promoted."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pgstrata.crash.cluster_worker import RECORD, Clock, Marks, Node, Worker, render_lsn, signal_all, stands_still
from pgstrata.crash.ledger_client import acknowledgement
from pgstrata.errors import UsageError
from pgstrata.spec.crash import are_clusters, cluster_crash_campaign, named_stacks

PARENT = """
import os, sys
os.fork()
print('up', flush=True)
sys.stdin.read()
"""


def test_marks_are_noted_and_answered(tmp_path: Path) -> None:
    marks = Marks(str(tmp_path / "control"), Clock())
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "control"))
        with client.makefile("rb") as answers:
            for text in ("begin", *(acknowledgement(*one, 7.5) for one in ((2, 1), (0, 1), (2, 2)))):
                client.sendall(json.dumps({"op": "mark", "text": text}).encode() + b"\n")
                assert json.loads(answers.readline()) == {"ok": True}
    assert marks.now() == {2: 2, 0: 1}
    assert marks.count() == 3
    assert [len(marks.times[session]) for session in (0, 2)] == [1, 2]


def test_a_node_stands_still_with_all_its_processes(tmp_path: Path) -> None:
    argv = [sys.executable, "-I", "-S", "-c", PARENT]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"up\n"] * 2
        (tmp_path / "postmaster.pid").write_text(f"{process.pid}\n/somewhere\n")
        stopped = Node({"name": "standby1", "data": str(tmp_path), "wal": None}).stop()
        try:
            assert stopped[0] == process.pid
            assert len(stopped) == 2
            assert all(map(stands_still, stopped))
        finally:
            signal_all(stopped, signal.SIGCONT)
            signal_all(stopped, signal.SIGKILL)


def test_a_process_that_runs_does_not_stand_still() -> None:
    assert not stands_still(os.getpid())
    assert stands_still(2**22 + 1)


@pytest.mark.parametrize(
    ("left", "promote", "chosen"),
    [
        (["standby1", "standby2"], "most", "standby2"),
        (["standby1", "standby2"], "least", "standby1"),
        (["standby1", "standby2"], "forgetful", "standby2"),
        (["primary", "standby2"], "least", "primary"),
        ([], "most", "archive"),
    ],
)
def test_who_goes_on(left: list[str], promote: str, chosen: str) -> None:
    worker = Worker.__new__(Worker)
    worker.nodes = dict.fromkeys(("primary", "standby1", "standby2"), Node({"name": "", "data": "", "wal": None}))
    worker.positions = {"primary": 9, "standby1": 3, "standby2": 5}
    assert worker.choose(left, promote) == chosen


def test_commits_are_read_from_what_pg_waldump_prints() -> None:
    line = (
        "rmgr: Transaction len (rec/tot):     34/    34, tx:        745, lsn: 1/0151F8B0, prev 1/0151F870, "
        "desc: COMMIT 2026-11-23 08:00:00.000000 UTC"
    )
    match = RECORD.search(line)
    assert match is not None
    assert match.groups() == ("745", "1", "0151F8B0", "COMMIT")
    assert render_lsn((1 << 32) + 0x151F8B0) == "1/151F8B0"


def test_clusters_and_single_servers_are_not_tested_together() -> None:
    assert are_clusters(named_stacks(["cluster(2)/tmpfs"]))
    assert not are_clusters(named_stacks(["ext4"]))
    with pytest.raises(UsageError, match=r"cluster\(2\)/tmpfs is a cluster and ext4 is not"):
        are_clusters(named_stacks(["ext4", "cluster(2)/tmpfs"]))


def test_what_a_cluster_sets_itself_stays() -> None:
    campaign = cluster_crash_campaign(named_stacks(["cluster(2)/tmpfs@wal_keep_size=1GB"]))
    (stack,) = campaign.stacks
    found: dict[str, Any] = stack.postgresql.settings
    assert (found["wal_keep_size"], found["max_wal_size"]) == ("1GB", "64MB")
    assert stack.postgresql.initdb == ("--wal-segsize=1",)
