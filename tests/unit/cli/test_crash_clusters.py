"""What is asked of crash trials of clusters and cannot be done."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgstrata.cli.verbs import crash as verb
from pgstrata.cli.verbs.crash import crash
from pgstrata.errors import UsageError
from pgstrata.record.reader import read
from pgstrata.spec.campaign import Campaign

ON_DISKS = "cluster(3,ANY 1)/ext4"
IN_MEMORY = "cluster(3,ANY 1)/tmpfs"


@pytest.mark.parametrize(
    ("stack", "asked", "problem", "hint"),
    [
        (ON_DISKS, {"power": True, "lost": 2}, "with --power all nodes lose power", "--gone"),
        (ON_DISKS, {"power": True, "promote": "least"}, "with --power all nodes lose power", "--gone"),
        (ON_DISKS, {"power": True, "nested": 2}, "with --power all nodes lose power", "--gone"),
        (ON_DISKS, {"power": True, "fault": "gone"}, "with --power all nodes lose power", "--gone"),
        (ON_DISKS, {"power": True, "gone": ["standby3"]}, "it has no node 'standby3'", "@archive=ext4"),
        (IN_MEMORY, {"power": True}, "nothing is left", "@archive=ext4"),
        (ON_DISKS, {"gone": ["primary"]}, "of clusters nodes are lost", "--power"),
        (
            "ext4",
            {"lost": 2},
            "--lost is for clusters: a single server is always tested by power loss",
            "cluster(3,ANY 1)/ext4",
        ),
        ("ext4", {"ignore_flushes": "some"}, "--ignore-flushes: 'some' is neither all nor a number", "for example: 3"),
        (ON_DISKS, {"on": "local"}, "--on is for those of one server", "--power"),
        (ON_DISKS, {"nested": 2}, "of clusters nodes are lost: --nested is for those of one server", "--power"),
        (ON_DISKS, {"power": True, "on": "local"}, "--on is for one server", "--gone"),
        (
            ON_DISKS,
            {"power": True, "lost": 2, "rejoin": "rewind", "fault": "gone"},
            "--lost and --rejoin are for nodes that are lost while the others run, --fault is for one server",
            "--gone",
        ),
        (
            "ext4",
            {"power": True},
            "--power is for clusters: a single server is always tested by power loss",
            "cluster(3,ANY 1)/ext4",
        ),
        (
            "ext4",
            {"gone": ["primary"]},
            "--gone is for clusters: a single server is always tested by power loss",
            "cluster(3,ANY 1)/ext4",
        ),
        (
            "ext4",
            {"rejoin": "rewind"},
            "--rejoin is for clusters: a single server is always tested by power loss",
            "cluster(3,ANY 1)/ext4",
        ),
        (ON_DISKS, {"power": True, "rejoin": "rewind"}, "with --power all nodes lose power", "--gone"),
        (ON_DISKS, {"rejoin": "rewnd"}, "--rejoin: 'rewnd' is not valid here", "rewind"),
        (ON_DISKS, {"script": "tpcb-like"}, "of clusters nodes are lost: --script is for power cuts", "--power"),
        ("ext4", {"script": "tpcb"}, "tpcb", "tpcb-like"),
        (
            "ext4",
            {"script": "tpcb-like", "fault": "write-error"},
            "--fault write-error: the disk refuses the pages of a table of the ledger",
            "pgstrata crash ext4 --fault write-error",
        ),
        (ON_DISKS, {"promote": "leats"}, "--promote: 'leats' is not valid here", "least"),
        (f"{IN_MEMORY}@archive=ext4", {"lost": 3, "rejoin": "backup"}, "there is nobody to follow", "lose fewer"),
    ],
)
def test_what_does_not_go_together_is_refused(stack: str, asked: dict[str, object], problem: str, hint: str) -> None:
    with pytest.raises(UsageError, match=problem) as refused:
        crash([stack], **asked)  # type: ignore[arg-type]
    assert hint in str(refused.value.hint)


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({}, "nothing is left"),
        ({"lost": 2}, "with --power all nodes lose power"),
        ({"gone": ["standby7"]}, "it has no node 'standby7'"),
    ],
)
def test_what_a_file_asks_of_its_crash_trials_counts(tmp_path: Path, asked: dict[str, object], problem: str) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(f'name: x\nstacks: ["{IN_MEMORY}"]\ncrash: {{power: true}}\n')
    with pytest.raises(UsageError, match=problem):
        crash([str(file)], **asked)  # type: ignore[arg-type]


ALONE_AND_CLUSTER = f"""\
name: x
stacks: ["cluster(1)/tmpfs", "{IN_MEMORY}"]
goal: {{against: cluster(1)/tmpfs}}
"""


def test_of_a_file_the_stacks_that_cannot_be_tested_are_left_out_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "file.yaml", tmp_path / "out"
    file.write_text(ALONE_AND_CLUSTER)
    tested: list[Campaign] = []
    monkeypatch.setattr(verb, "_run", lambda campaign, *rest, **options: tested.append(campaign))
    crash([str(file)], out=out)
    assert [stack.name for stack in tested[0].stacks] == [IN_MEMORY]
    assert "cluster(1)/tmpfs is not tested: a single server" in capsys.readouterr().err
    assert [stack.name for stack in read(out).campaign.stacks] == [IN_MEMORY], "without a goal that names another"


def test_a_file_without_a_stack_that_can_be_tested_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text('name: x\nstacks: ["cluster(1)/tmpfs"]\n')
    with pytest.raises(UsageError, match="a single server"):
        crash([str(file)])
