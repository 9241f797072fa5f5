"""Clusters as they are asked for: which standbys a commit waits for, on what they sit, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pgstrata.errors import UsageError
from pgstrata.spec.crash import crash_problem
from pgstrata.spec.durability import durability_class
from pgstrata.spec.durability_class import LOSES, LOSES_RECENT, SURVIVES
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.notation.stack import parse_stack, render_stack
from pgstrata.spec.quorum import Quorum, parse_quorum
from pgstrata.spec.stack import Stack
from pgstrata.trial.steps.cluster import expected_states

TWO = ("standby1", "standby2")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", None),
        ("ANY 1", Quorum("any", 1, ("*",))),
        ("any 2 (standby1, standby2)", Quorum("any", 2, TWO)),
        ("FIRST 1 (standby2)", Quorum("first", 1, ("standby2",))),
        ("2 (standby1,standby2)", Quorum("first", 2, TWO)),
        ("standby2, standby1", Quorum("first", 1, ("standby2", "standby1"))),
        ("*", Quorum("first", 1, ("*",))),
    ],
)
def test_reads_synchronous_standby_names_as_postgresql_does(text: str, found: Quorum | None) -> None:
    assert parse_quorum(text) == found
    assert found is None or parse_quorum(found.text) == found


@pytest.mark.parametrize("text", ["2", "ANY 0 (*)", "ANY 1 ()", "any one (*)", "standby1;", "ANY 1 (a b)", "FIRST x"])
def test_refuses_what_postgresql_would_not_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"name|many|least"):
        parse_quorum(text)


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("ANY 1 (*)", {"standby1": "quorum", "standby2": "quorum"}),
        ("ANY 1 (standby1)", {"standby1": "quorum", "standby2": "async"}),
        ("FIRST 1 (standby2, standby1)", {"standby1": "potential", "standby2": "sync"}),
        ("FIRST 2 (*)", {"standby1": "sync", "standby2": "sync"}),
        ("FIRST 1 (*)", {}),
        ("standby1", {"standby1": "sync", "standby2": "async"}),
    ],
)
def test_says_the_state_of_each_standby_where_it_is_certain(text: str, states: dict[str, str]) -> None:
    quorum = parse_quorum(text)
    assert quorum is not None
    assert quorum.states(TWO) == states


NOTATIONS = [
    "cluster(1)/ext4",
    "cluster(3)/tmpfs",
    "cluster(3,ANY 1,remote_apply)/tmpfs",
    "cluster(3,FIRST 1 (standby2, standby1),on,slots=off)/xfs:noatime",
    "cluster(2,ANY 1,delay_ms=0.5,bandwidth_mbit=100,loss=0.01,catch_up_s=20)/ext4@wal=xfs",
    "cluster(3,ANY 1,slots=off,pooler=pgpool,stale_reads=2s,delay_ms=1)/tmpfs",
    "cluster(2,pooler=pgbouncer)/tmpfs",
    "cluster(3,FIRST 1 (standby2, standby1),acknowledgements=5s)/tmpfs",
    "cluster(3,FIRST 2,remote_apply,acknowledgements=5s)/tmpfs",
    "cluster(4,ANY 1)/tmpfs@standby2.upstream=standby1@standby3=ext4@standby3.upstream=standby2@standby3.fsync=on",
    "cluster(3,ANY 2)/tmpfs@archive=ext4@standby1=xfs@standby1.wal=ext4@standby1.fsync=on@standby2.fsync=on@fsync=off",
]


@pytest.mark.parametrize("text", NOTATIONS)
def test_short_notation_is_read_and_written(text: str) -> None:
    stack = parse_stack(text)
    assert render_stack(stack) == text
    assert Stack.model_validate_json(stack.model_dump_json()) == stack


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cluster/ext4", "how many nodes"),
        ("cluster(3)", "how many nodes"),
        ("cluster(0)/ext4", "1 to 9"),
        ("cluster(10)/ext4", "1 to 9"),
        ("cluster(x)/ext4", "no number of nodes"),
        ("cluster(3,ANY 3)/ext4", "only 2 could acknowledge"),
        ("cluster(1,ANY 1)/ext4", "only 0 could acknowledge"),
        ("cluster(3,ANY 1 (standby3))/ext4", "'standby3', which is no standby of the primary"),
        ("cluster(3,ANY 1 (standby1, standby1))/ext4", "'standby1' twice"),
        ("cluster(3,ANY 1,FIRST 1)/ext4", "synchronous_standby_names twice"),
        ("cluster(3,speed=1)/ext4", "nothing that a cluster has"),
        ("cluster(3,pooler=other)/ext4", "topology.pooler"),
        ("cluster(3,loss=2)/ext4", "network.loss"),
        ("cluster(3)/ext4@standby1.upstream=standby2", "standby1 follows 'standby2'"),
        ("cluster(3)/ext4@standby2.upstream=standby2", "standby2 follows 'standby2'"),
        ("cluster(3,ANY 2)/ext4@standby2.upstream=standby1", "only 1 could acknowledge"),
        ("cluster(3,standby2)/ext4@standby2.upstream=standby1", "'standby2', which is no standby of the primary"),
        ("cluster(1,stale_reads=2s)/ext4", "reads on standbys, and there are none"),
        ("cluster(2,stale_reads=2h)/ext4", "topology.stale_reads"),
        ("cluster(3,acknowledgements=2s)/ext4", "no commit waits for one"),
        ("cluster(3,ANY 1,local,acknowledgements=2s)/ext4", "no commit waits for one"),
        ("cluster(3,ANY 1,acknowledgements=2s)/ext4@synchronous_commit=local", "no commit waits for one"),
        ("cluster(3,FIRST 1,acknowledgements=2s)/ext4", "leaves it open for which standbys a commit waits"),
        ("ext4@standby=xfs", "is of a cluster"),
        ("ext4@archive=xfs", "is of a cluster"),
        ("cluster(2)/ext4@standby2=xfs", "has 1 standbys"),
        ("cluster(2)/disk(/dev/disk/by-id/a)/ext4", "is used by data and standby1.data"),
        ("cluster(2)/dir:/mnt/x", "is used by data and standby1.data"),
        ("cluster(2,on)/ext4@synchronous_commit=on", "synchronous_commit is set twice"),
        ("cluster(2)/ext4@wal_level=minimal", "standbys cannot follow"),
        ("cluster(3)/ext4@max_wal_senders=2", "4 are needed"),
        ("cluster(2)/ext4@standby1.host=other", "behind ssh or on a lab machine: not an ssh host: other"),
        ("cluster(2)/ext4@standby1.host=lab", "behind ssh or on a lab machine: not an ssh host: lab"),
        ("cluster(2)/ext4@standby1.address=10.0.0.2", "address is of a host"),
        ("cluster(2)/ext4@standby1.host=ssh://db2@standby1.address=8.8.8.8", "8.8.8.8 is public"),
        ("cluster(2)/ext4@standby1.host=ssh://db2@standby1.address=db2", "'db2' is no IP address"),
        ("cluster(2,address=8.8.8.8)/ext4", "8.8.8.8 is public"),
        ("cluster(3)/dir:/x@standby2.host=ssh://db2@standby1=ext4@standby2=dir:/x@wal=dir:/x", "used by data and wal"),
        ("cluster(2)/ext4@tablespace.fast=xfs", "no tablespaces"),
        ("cluster(2)/xfs@standby.wal=ext4@standby=zfs:wal_dataset.recordsize=16k", "pg_wal of standby1"),
    ],
)
def test_what_makes_no_cluster_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_stack(text)


def test_standbys_sit_on_what_the_primary_does_unless_they_say_else() -> None:
    stack = parse_stack("cluster(3)/ext4@wal=xfs@standby2=tmpfs@standby1.fsync=off@archive=ext4@work_mem=8MB")
    kinds = {role: volume.fs.kind for role, volume in stack.volumes.items()}
    assert kinds == {
        "data": "ext4",
        "wal": "xfs",
        "standby1.data": "ext4",
        "standby1.wal": "xfs",
        "standby2.data": "tmpfs",
        "archive": "ext4",
    }
    primary, first, second = stack.nodes
    assert primary.roles == {"data": "data", "wal": "wal"}
    assert (first.name, first.roles) == ("standby1", {"data": "standby1.data", "wal": "standby1.wal"})
    assert second.roles == {"data": "standby2.data"}
    assert first.settings == {"work_mem": "8MB", "fsync": "off"}
    assert second.settings == primary.settings == {"work_mem": "8MB"}


def test_only_those_that_follow_the_primary_acknowledge() -> None:
    stack = parse_stack("cluster(4,ANY 1)/tmpfs@standby2.upstream=standby1@standby3.upstream=standby1")
    assert stack.topology is not None
    assert stack.topology.followers("primary") == ("standby1",)
    assert stack.topology.followers("standby1") == ("standby2", "standby3")
    assert expected_states(stack.topology) == {"standby1": "quorum", "standby2": "async", "standby3": "async"}
    assert "any 1 of 1 standbys" in durability_class(stack).reason


FILE = """\
name: clusters
stacks:
  number: {fs: ext4, topology: {standbys: 2, synchronous_standby_names: ANY 1 (*), synchronous_commit: remote_apply}}
  list:
    fs: tmpfs
    topology:
      standbys: [ext4, {fs: xfs, wal: ext4, settings: {fsync: on}}, null]
      archive: ext4:noatime
      network: {bandwidth_mbit: 100}
"""


def test_a_campaign_file_says_the_same_in_long_form(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(FILE)
    first, second = load_campaign(tmp_path / "c.yaml").stacks
    assert render_stack(first) == "cluster(3,ANY 1,remote_apply)/ext4"
    assert render_stack(second) == (
        "cluster(4,bandwidth_mbit=100)/tmpfs@archive=ext4:noatime@standby1=ext4@standby2=xfs@standby2.wal=ext4"
        "@standby2.fsync=on"
    )


@pytest.mark.parametrize(
    ("topology", "why"),
    [
        ("{standbys: 9}", "0 to 8"),
        ("{standbys: 2, synchronous: ANY 1}", "unknown key 'synchronous'"),
        ("{standbys: [{settings: {archive_command: cp}}]}", "archive_command"),
        ("{standbys: 1, synchronous_commit: maybe}", "synchronous_commit"),
    ],
)
def test_a_campaign_file_is_told_what_is_wrong(topology: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(f"stacks:\n  a:\n    fs: ext4\n    topology: {topology}\n")
    with pytest.raises(UsageError, match=why):
        load_campaign(tmp_path / "c.yaml")


def test_a_cluster_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("stacks: {a: cluster(2)/tmpfs}\nruns: {load: keep}\n")
    with pytest.raises(UsageError, match="is a cluster"):
        load_campaign(tmp_path / "c.yaml")


def test_nothing_stays_prepared_behind_pgbouncer(tmp_path: Path) -> None:
    text = "stacks: {a: 'cluster(2,pooler=%s)/tmpfs'}\nworkload: {protocol: prepared}\n"
    (tmp_path / "c.yaml").write_text(text % "pgpool")
    assert load_campaign(tmp_path / "c.yaml").workload.protocol == "prepared"
    (tmp_path / "c.yaml").write_text(text % "pgbouncer")
    with pytest.raises(UsageError, match="PgBouncer, in front of stack 'a'"):
        load_campaign(tmp_path / "c.yaml")


@pytest.mark.parametrize(
    ("text", "class_", "words"),
    [
        ("cluster(1)/ext4", SURVIVES, "flushed to the medium"),
        ("cluster(3)/ext4", SURVIVES, "configured: 2 standbys follow, and no commit waits for them; not tested"),
        ("cluster(3,ANY 1)/ext4", SURVIVES, "once any 1 of 2 standbys flushed it; not tested"),
        ("cluster(3,FIRST 1,remote_write)/ext4", SURVIVES, "the first 1 of 2 standbys handed it to their operating"),
        ("cluster(3,ANY 2,remote_apply)/tmpfs", LOSES, "tmpfs: memory; configured: .* any 2 of 2 .* not tested"),
        ("cluster(3,ANY 1,off)/ext4", LOSES_RECENT, "before even the primary has flushed it"),
        ("cluster(3,ANY 1)/ext4@standby=tmpfs", SURVIVES, "not tested"),
    ],
)
def test_durability_speaks_of_the_primary_and_tells_what_else_is_configured(text: str, class_: str, words: str) -> None:
    found = durability_class(parse_stack(text))
    assert found.class_ == class_
    assert re.search(words, found.reason), found.reason


def test_there_are_no_power_cuts_of_clusters() -> None:
    assert crash_problem(parse_stack("cluster(1)/ext4")) == "it is a cluster"
