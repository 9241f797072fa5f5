"""`hosts: {dask: ...}`: the forms, as text and back, and what is refused with its line."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import is_cluster
from pgstrata.spec.dask_cluster import DaskCluster, parse_cluster
from pgstrata.spec.file.campaign import load_campaign

FORMS = [
    ("{dask: local}", DaskCluster(local=1)),
    ("{dask: {local: 3}}", DaskCluster(local=3)),
    ("{dask: 'tls://scheduler:8786'}", DaskCluster(address="tls://scheduler:8786")),
    ("{dask: {ssh: [db1, root@db2:22]}}", DaskCluster(ssh=("db1", "root@db2:22"))),
    ("['dask:tls://scheduler:8786']", DaskCluster(address="tls://scheduler:8786")),
]


def hosts_of(place: Path, written: str) -> tuple[str, ...]:
    file = place / "c.yaml"
    file.write_text(f"stacks: [ext4]\nhosts: {written}\n", encoding="utf-8")
    campaign = load_campaign(file)
    assert is_cluster(campaign)
    return campaign.hosts


@pytest.mark.parametrize(("written", "cluster"), FORMS)
def test_the_forms(tmp_path: Path, written: str, cluster: DaskCluster) -> None:
    assert [parse_cluster(text) for text in hosts_of(tmp_path, written)] == [cluster]


def test_the_folder_of_certificates_is_beside_the_campaign(tmp_path: Path) -> None:
    (text,) = hosts_of(tmp_path, "{dask: {address: 'tls://s:1', tls: certificates}}")
    assert parse_cluster(text).tls == str(tmp_path / "certificates")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{dask: 'tcp://scheduler:8786'}", "c.yaml:2: hosts.dask: tcp://scheduler:8786 is a scheduler without TLS"),
        ("{dask: 'tls://scheduler'}", "no address of a scheduler"),
        ("{dask: 'tls://scheduler:99999'}", "no address of a scheduler"),
        ("{dask: {ssh: [a], local: 2}}", "is one of address, local and ssh, not 2"),
        ("{dask: {}}", "not 0"),
        ("{dask: {kubernetes: {image: x}}}", "does not start Dask clusters by the operator for Kubernetes"),
        ("{dask: {slurm: {jobs: 8}}}", "does not start Dask clusters by Slurm"),
        ("{dask: {pbs: {jobs: 8, queue: big}}}", "write dask: tls://host:port"),
        ("{dask: {ssh: ['-oProxyCommand=x']}}", "not an ssh host"),
        ("{dask: {ssh: [a, a]}}", "a twice"),
        ("{dask: {ssh: [a], python: '$(reboot)'}}", "python"),
        ("{dask: {local: 0}}", "local"),
        ("{dask: {local: 2, tls: here}}", "only address has it"),
        ("{dask: {local: 2, python: /usr/bin/python3}}", "go with ssh alone"),
        ("{dask: {adress: x}}", "did you mean address"),
        ("['dask:tls://s:1', 'ssh://db1']", "not both"),
        ("['dask:tcp://s:1']", "without TLS"),
        ("['dask:{broken']", "not a Dask cluster"),
    ],
)
def test_bad_ones_are_refused(tmp_path: Path, written: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        hosts_of(tmp_path, written)
    assert said in str(refused.value)


@given(st.text())
def test_any_text_is_a_cluster_or_refused(text: str) -> None:
    with suppress(UsageError):
        cluster = parse_cluster(f"dask:{text}")
        assert parse_cluster(cluster.text) == cluster
