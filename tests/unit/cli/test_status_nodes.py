"""`status` of clusters with nodes on several hosts."""

from __future__ import annotations

import json
from pathlib import Path

from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.notation.stack import parse_stack
from typed import typed

NEAR, FAR = "cluster(2)/tmpfs", "cluster(3)/tmpfs@standby2.host=ssh://db2"


def test_it_says_which_host_has_which_node(tmp_path: Path) -> None:
    campaign = Campaign(name="x", host="ssh://db1", stacks=tuple(map(parse_stack, (NEAR, FAR))))
    with CampaignDirectory.create_or_open(tmp_path / "out", campaign, "run"):
        pass
    value = json.loads(typed("status", "out", "--json", cwd=tmp_path).stdout)
    assert value["nodes"] == {FAR: {"primary": "ssh://db1", "standby1": "ssh://db1", "standby2": "ssh://db2"}}
    lines = typed("status", "out", cwd=tmp_path).stdout.splitlines()
    assert lines.count("    nodes: primary on ssh://db1, standby1 on ssh://db1, standby2 on ssh://db2") == 1
