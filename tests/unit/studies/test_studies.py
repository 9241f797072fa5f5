"""Published figures: complete, consistent with their campaigns, and true to the sources' own arithmetic."""

from __future__ import annotations

from statistics import fmean

import pytest

from pgstrata.errors import UsageError
from pgstrata.spec.crash import untested
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.workload import Cell
from pgstrata.studies import CAMPAIGNS, Study, campaign_file, list_studies, load_study

STUDIES = list_studies()


IN_LAB = tuple(study for study in STUDIES if "lab" in study.campaigns)
"""A cluster's nodes are namespaces of one machine, which needs no lab."""


PARTS = ("small", "modelled", "modelled-lab")
"""Sizes that have some of a study's stacks."""


def test_the_studies_are_there() -> None:
    names = ["filesystems-hdd", "filesystems-raid-ssd", "lvm-nfs", "quorum-in-memory", "zfs-tuning"]
    assert [s.name for s in STUDIES] == names
    assert [s.name for s in STUDIES if s not in IN_LAB] == ["quorum-in-memory"]


@pytest.mark.parametrize("study", STUDIES, ids=lambda s: s.name)
def test_every_arm_is_a_stack_of_its_campaigns(study: Study) -> None:
    for size in study.campaigns:
        campaign = load_campaign(campaign_file(study, size))
        assert campaign.study == study.name
        names = {s.name for s in campaign.stacks}
        wanted = {a.stack for a in study.arms if a.campaign in (None, size)}
        assert size in PARTS or wanted <= names
    full = load_campaign(campaign_file(study))
    assert full.host == "local"
    if study in IN_LAB:
        assert load_campaign(campaign_file(study, "lab")).host == "lab"


@pytest.mark.parametrize("study", IN_LAB, ids=lambda s: s.name)
def test_lab_and_full_size_have_the_same_stacks(study: Study) -> None:
    full, lab = (load_campaign(campaign_file(study, size)) for size in ("full", "lab"))
    assert [s.name for s in full.stacks] == [s.name for s in lab.stacks]
    kinds = [[(v.fs.kind, [x.kind for x in v.layers]) for v in s.volumes.values()] for s in full.stacks]
    assert kinds == [[(v.fs.kind, [x.kind for x in v.layers]) for v in s.volumes.values()] for s in lab.stacks]


def _names(study: Study, size: str) -> set[str]:
    return {stack.name for stack in load_campaign(campaign_file(study, size)).stacks}


@pytest.mark.parametrize("study", STUDIES, ids=lambda s: s.name)
def test_a_size_with_some_of_the_stacks_has_none_but_the_studys(study: Study) -> None:
    whole = set[str]().union(*(_names(study, size) for size in study.campaigns if size not in PARTS))
    for size in set(study.campaigns) & set(PARTS):
        assert _names(study, size) <= whole


def test_every_campaign_that_names_a_study_is_one_of_its_sizes() -> None:
    named = [(file, study) for file in sorted(CAMPAIGNS.rglob("*.yaml")) if (study := load_campaign(file).study)]
    listed = {campaign_file(study, size) for study in STUDIES for size in study.campaigns}
    assert {file for file, _ in named} == listed


def test_ratios_to_the_baseline() -> None:
    hdd = load_study("filesystems-hdd")
    assert hdd.published("zfs + ssd log").ratio == pytest.approx(22.36, abs=0.01)  # type: ignore[union-attr]
    assert hdd.published("ext4").ratio == 1.0  # type: ignore[union-attr]
    assert hdd.published("ext5") is None
    zfs = load_study("zfs-tuning")
    assert zfs.published("zfs untuned").ratio == pytest.approx(0.3616, abs=1e-4)  # type: ignore[union-attr]


def test_several_cells_of_one_stack() -> None:
    raid = load_study("filesystems-raid-ssd")
    large = raid.published("zfs", Cell(script="simple-update", scale=10000, clients=32))
    assert large is not None
    assert (large.value, large.ratio, large.other_scale) == (6000, 0.2, False)
    near = raid.published("zfs", Cell(script="simple-update", scale=100, clients=32))
    assert near is not None
    assert (near.value, near.other_scale, near.approximate) == (40000, True, True)
    assert raid.published("zfs", Cell(script="select-only", scale=1000, clients=32)) is None
    declining = raid.published("btrfs raid0")
    assert declining is not None
    assert (declining.value, declining.ratio) == (None, None)


def test_means_of_single_runs_are_the_published_means() -> None:
    for arm in load_study("lvm-nfs").arms:
        for metric, runs in arm.runs.items():
            assert fmean(runs) == pytest.approx(arm.values[metric], rel=1e-4)


def test_throughput_and_latency_agree() -> None:
    """Little's law: clients / TPS is the mean latency, to within connection time and rounding."""
    for name, clients in (("filesystems-hdd", 100), ("lvm-nfs", 200), ("zfs-tuning", 50)):
        for arm in load_study(name).arms:
            assert clients / arm.values["tps"] * 1000 == pytest.approx(arm.values["latency_avg_ms"], rel=0.02)


def test_unknown_names() -> None:
    with pytest.raises(UsageError, match="no study 'zfs-tunning'") as caught:
        load_study("zfs-tunning")
    assert caught.value.hint == "did you mean zfs-tuning?"
    with pytest.raises(UsageError, match="no campaign of size 'small'"):
        campaign_file(load_study("lvm-nfs"), "small")


def test_campaign_files_ship_with_the_package() -> None:
    names = {str(f.relative_to(f.parents[1])) for f in sorted(CAMPAIGNS.rglob("*.yaml"))}
    assert "campaigns/demo.yaml" in names
    assert "lab/zfs-tuning.yaml" in names


def test_the_cluster_study_asks_for_what_was_published() -> None:
    """One primary, two standbys, ANY 1, remote_apply; fsync and memory as each arm says."""
    for size in ("full", "small"):
        stacks = load_campaign(campaign_file(load_study("quorum-in-memory"), size)).stacks
        clusters = [s.topology for s in stacks if s.topology is not None]
        assert [len(c.standbys) for c in clusters] == [0, 2, 2, 2, 2]
        assert {c.synchronous_commit for c in clusters} == {"remote_apply"}
        assert [c.synchronous_standby_names for c in clusters] == ["", *["ANY 1 (*)"] * 4]
        assert all(c.archive is not None and c.archive.fs.kind == "ext4" for c in clusters)
        assert [s.postgresql.settings.get("fsync", "on") for s in stacks] == ["on", "on", "off", "off", "off"]
        memory = [[role for role, volume in s.volumes.items() if volume.fs.kind == "tmpfs"] for s in stacks]
        assert memory == [
            [],
            [],
            [],
            ["wal", "standby1.wal", "standby2.wal"],
            ["data", "standby1.data", "standby2.data"],
        ]
    published = load_study("quorum-in-memory").published("d cluster, fsync=off, pg_wal in memory")
    assert published is not None
    assert published.ratio == pytest.approx(2.2)


def test_every_cluster_of_the_study_loses_nodes() -> None:
    """Which its author did not try. A primary alone has nobody who could go on."""
    for size, failures in (("full", 200), ("small", 6)):
        campaign = load_campaign(campaign_file(load_study("quorum-in-memory"), size))
        assert campaign.crash is not None
        assert campaign.crash.beside_runs.failures == failures
        problems = [untested(stack, campaign.crash) for stack in campaign.stacks]
        assert problems[0].startswith("a single server")
        assert problems[1:] == [""] * 4


def test_ratios_are_told_as_no_rates() -> None:
    """The author of the cluster's figures gives ratios alone; as TPS they would be one or two a second."""
    study = load_study("quorum-in-memory")
    found = [study.published(name, Cell(script="tpcb-like", scale=10, clients=32)) for name in study.stacks]
    assert [(f.value, f.ratio) for f in found if f is not None] == [(None, a.values["tps"]) for a in study.arms]
    others = (s for s in STUDIES if s.name != study.name)
    assert all(s.published(s.baseline).value is not None for s in others if s.published(s.baseline))  # type: ignore[union-attr]
