"""One small campaign with every major as a factor, through the command line, on memory alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pgstrata.host.local import LocalHost
from pgstrata.postgres.binaries import discover
from pgstrata.postgres.fetch import fetch

MAJORS = range(13, 19)

CAMPAIGN = """
name: majors
stacks:
{stacks}
workload: {{scale: 1, clients: 2, jobs: 1, duration: 3s, warmup: 1s}}
runs: {{blocks: 1}}
"""


def test_every_major_runs_the_same_campaign(tmp_path: Path) -> None:
    host = LocalHost()
    here = {i.major for i in discover(host)}
    for major in MAJORS:
        if major not in here:
            fetch(host, major)
    stacks = "\n".join(f"  pg{major}: {{data: tmpfs, postgresql: {{major: {major}}}}}" for major in MAJORS)
    campaign = tmp_path / "majors.yaml"
    campaign.write_text(CAMPAIGN.format(stacks=stacks))
    program = Path(sys.executable).with_name("pgstrata")
    out = tmp_path / "out"
    done = subprocess.run([program, "run", campaign, "--out", out], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]

    results = {path.parts[-4]: json.loads(path.read_text()) for path in out.glob("trials/*/cells/*/result.json")}
    assert sorted(trial.split("-")[2] for trial in results) == [f"pg{major}" for major in MAJORS]
    assert all(result["transactions"] > 0 and result["wal_bytes"] > 0 for result in results.values())
    for trial in results:
        (major,) = (m for m in MAJORS if f"-pg{m}-" in trial)
        facts = json.loads((out / "trials" / trial / "facts.json").read_text())
        assert str(major) in json.dumps(facts["checked"])
