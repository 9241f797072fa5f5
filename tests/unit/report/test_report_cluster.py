"""What the nodes of a cluster did: in every format, and as a picture of the topology."""

from __future__ import annotations

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from crashed import write_crash
from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.findings import Findings
from pgstrata.record.reader import CampaignData, read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.report.html import html_text
from pgstrata.report.markdown import render_markdown
from pgstrata.report.render import report_value
from pgstrata.report.tables.cluster import WIDTH, cluster_pictures, commit_words
from pgstrata.report.tables.further import further_tables
from pgstrata.report.terminal import render_terminal
from pgstrata.spec.crash import named_stacks
from pgstrata.spec.notation.stack import parse_stack

TOPOLOGY: dict[str, Any] = {
    "standbys": [{}, {}],
    "synchronous_standby_names": "ANY 1 (standby1)",
    "synchronous_commit": "on",
}
TOPOLOGY |= {
    "archive": parse_stack("xfs").data.model_dump(mode="json"),
    "network": {"delay_ms": 1, "bandwidth_mbit": 100, "loss": 0.001},
}
COUNTED: dict[str, Any] = {"elapsed_s": 10, "cpu_s": 5, "sent_bytes": 10 << 20, "received_bytes": 20480}
LAGS: dict[str, Any] = {
    "lag_samples": 9,
    "write_lag_ms": 0.2,
    "flush_lag_ms": 0.3,
    "replay_lag_ms": 0.5,
    "replay_lag_max_ms": 44,
    "behind_max_bytes": 70,
}
STALE = {"checked_reads": 120, "stale_reads": 3, "stale_median_ms": 2.0, "stale_max_ms": 8.0}
RELEASED = {"watched_commits": 900, "released_commits": 600, "release_median_ms": 1.25, "release_p99_ms": 7.0}
NODES = [
    {"node": "primary", **COUNTED, "disk_written_bytes": 40 << 20, "reads": 10, "writes": 7},
    {"node": "standby1", **COUNTED, **LAGS, **STALE, **RELEASED, "reads": 30, "writes": 0},
    {
        "node": "standby2",
        "elapsed_s": 10,
        "checked_reads": 9,
        "stale_reads": 0,
        "watched_commits": 900,
        "released_commits": 0,
    },
]


RELEASED_WORDS = "1,800 of 2,700 (1.25 ms, 7 ms)"


@pytest.fixture
def clustered(campaign_directory: Path, tmp_path: Path) -> CampaignData:
    """A campaign of which one stack is a cluster."""
    place = tmp_path / "out"
    shutil.copytree(campaign_directory, place)
    record = json.loads((place / "campaign.json").read_text())
    next(s for s in record["campaign"]["stacks"] if s["name"] == "ext4")["topology"] = TOPOLOGY
    (place / "campaign.json").write_text(json.dumps(record))
    for file in place.glob("trials/*/cells/*/result.json"):
        planned = json.loads((file.parents[2] / "planned.json").read_text())
        if planned["trial"]["stack"] == "ext4":
            file.write_text(json.dumps({**json.loads(file.read_text()), "nodes": NODES}))
    return read(place)


def test_every_format_tells_what_the_nodes_did(clustered: CampaignData) -> None:
    findings = judge(clustered)
    (nodes,) = further_tables(findings, findings.cells[0])
    first, second, third = nodes.rows
    assert first == (
        "ext4",
        "primary",
        "0.500",
        "1.0 MiB",
        "2.0 KiB",
        "4.0 MiB",
        "",
        "",
        "",
        "",
        "25 %",
        "100 %",
        "",
        "",
    )
    assert second[5:] == (
        "memory",
        "0.200 ms",
        "0.300 ms",
        "0.500 ms",
        "44 ms",
        "75 %",
        "0 %",
        "9 of 360 (8 ms)",
        RELEASED_WORDS,
    )
    assert third[-4:] == ("", "", "0 of 27", "0 of 2,700")
    assert third[2:5] == ("n/a", "n/a", "n/a")
    (stack,) = (s for s in report_value(findings)["stacks"] if s["nodes"])
    assert [node["node"] for node in stack["nodes"]] == ["primary", "standby1", "standby2"]
    assert stack["nodes"][1]["replay_lag_max_ms"] == 44
    for text in (render_markdown(clustered, findings), render_terminal(clustered, findings, 200)):
        assert "What the nodes of the clusters did" in text
        assert "44 ms" in text


def test_without_a_cluster_nothing_is_said_of_nodes(data: CampaignData, findings: Findings) -> None:
    assert further_tables(findings, findings.cells[0]) == ()
    assert "nodes of the clusters" not in render_terminal(data, findings)
    assert 'class="topology"' not in html_text(data, findings)


def test_the_picture_has_every_node_in_its_place(clustered: CampaignData) -> None:
    page = html_text(clustered, judge(clustered))
    (drawn,) = re.findall(r'<figure class="topology">.*?</figure>', page, re.DOTALL)
    svg = ElementTree.fromstring(re.search(r"<svg.*</svg>", drawn, re.DOTALL)[0])  # type: ignore[index]
    boxes = list(svg.iter("rect"))
    assert [float(box.attrib["x"]) for box in boxes] == [1, 1, 34, 34, 34]
    edges = [(float(box.attrib["y"]), float(box.attrib["height"])) for box in boxes]
    assert all(y + height < below for (y, height), (below, _) in pairwise(edges))
    assert all(float(b.attrib["x"]) + float(b.attrib["width"]) <= WIDTH for b in boxes)
    assert [line.attrib["class"] for line in svg.iter("path")] == ["asks", "stream loose", "stream loose", "stream"]
    assert "n/a/s" not in drawn
    lines = [float(line.attrib["y"]) for line in svg.iter("text")]
    assert all(below - above >= 17 for above, below in pairwise(lines)), "no line touches another"
    assert svg.attrib["role"] == "img"
    assert "standby1 on ext4" in svg.attrib["aria-label"]
    assert "a commit waits for ANY 1 (standby1), synchronous_commit=on" in drawn
    assert "links between nodes: 1 ms each way, 100 Mbit/s, 0.10 % of the packets lost" in drawn
    assert "archive on xfs: WAL of the primary" in svg.attrib["aria-label"]


def test_pictures_are_of_the_stacks_of_the_campaign(clustered: CampaignData) -> None:
    findings = judge(clustered)
    (picture,) = cluster_pictures(findings, findings.cells[0], {s.name: s for s in clustered.campaign.stacks})
    assert picture.stack == "ext4"
    assert [node.name for node in picture.nodes] == ["client", "primary", "standby1", "standby2", "archive"]


def test_a_standby_of_a_standby_hangs_below_it(clustered: CampaignData) -> None:
    findings = judge(clustered)
    stack = parse_stack("cluster(3,ANY 1)/ext4@standby2.upstream=standby1")
    (picture,) = cluster_pictures(findings, findings.cells[0], {"ext4": stack})
    driver, primary, first, second = picture.nodes
    assert driver.path == ""
    assert primary.path == f"M21 {driver.y + driver.height}V{primary.y}"
    assert first.path == f"M14 {primary.y + primary.height}V{first.middle}H{first.x}"
    assert second.path == f"M54 {first.y + first.height}V{second.y}"
    assert "follows standby1" in second.lines
    assert (first.waited_for, second.waited_for) == (True, False)


@pytest.mark.parametrize(
    ("asked", "place", "line"),
    [
        ("", "a node of its own", "all goes to the primary"),
        (",pooler=pgpool", "a node of its own, with Pgpool-II", "writes go to the primary, reads to all nodes"),
        (",pooler=pgbouncer", "a node of its own, with PgBouncer", "all goes to the primary, by few sessions"),
    ],
)
def test_the_client_has_a_node_with_the_pooler(asked: str, place: str, line: str, clustered: CampaignData) -> None:
    findings = judge(clustered)
    (picture,) = cluster_pictures(findings, findings.cells[0], {"ext4": parse_stack(f"cluster(3{asked})/ext4")})
    driver = picture.nodes[0]
    assert (driver.name, driver.place, driver.lines) == ("client", place, (line,))
    assert picture.network == ""
    assert picture.nodes[-1].name == "standby2", "it has no archive"


def test_what_a_commit_waits_for() -> None:
    assert commit_words(parse_stack("cluster(3)/ext4")) == "no commit waits for a standby"
    assert commit_words(parse_stack("cluster(3,ANY 1,local)/ext4")) == "no commit waits for a standby"
    assert commit_words(parse_stack("cluster(3,ANY 2,remote_apply)/ext4")).endswith("synchronous_commit=remote_apply")


def test_a_folder_of_lost_nodes_says_so(tmp_path: Path) -> None:
    stack = "cluster(3,ANY 1)/tmpfs"
    row = {"nodes": 1, "reckoned": 30, "losing": 0, "missing_max": 0, "carried_out": 12}
    found = {"nodes": ["primary", "standby1", "standby2"], "moments": 10, "by_lost": [row]}
    with CampaignDirectory.create_or_open(tmp_path / "out", named_stacks([stack]), "crash") as directory:
        write_crash(directory, stack, verdict="held", states=12, cluster=found)
    data = read(tmp_path / "out")
    text = render_terminal(data, judge(data))
    assert "Lost nodes" in text
    assert "1 cluster, 12 failures" in text
    assert "survived the loss of any 1 of 3 nodes" in " ".join(text.split())
    assert "Power cuts" not in text
    assert '<a href="#power-cuts">Lost nodes</a>' in html_text(data, judge(data))
