"""A record damaged in ten thousand ways: an error of ours or a trial less, never a trial dropped without a word."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from mutations import mutate

from attacking import scaled
from pgstrata.analyze.campaign.judge import judge
from pgstrata.cli.verbs.status import _describe
from pgstrata.errors import PgstrataError
from pgstrata.record.reader import read
from pgstrata.report.render import render_csv
from pgstrata.report.sentences.header import incidents, report_head
from pgstrata_fake.campaigns import Shape, write_campaign

MUTATIONS = 10_000
OF_NO_TRIAL = ("campaign.json", "decisions.jsonl")


@pytest.fixture(scope="module")
def directory(memory: Path) -> Path:
    shape = Shape(stacks=("ext4", "xfs"), blocks=1, duration_s=5, incidents=False)
    return write_campaign(memory / "campaign", shape)


def _look_at(directory: Path, *, every_view: bool) -> str:
    """The views of the record; what became of it. One with a trial less is judged only now and then: it takes long."""
    data = read(directory)
    lost = {trial.id for trial in data.unreadable}
    there = len(list((directory / "trials").iterdir()))
    assert len(data.trials) + len(lost) == there
    status = _describe(directory)  # which opens fewer files
    lost_to_status = {one["trial"] for one in status["unreadable"]}
    assert lost_to_status <= lost
    assert sum(sum(counts.values()) for counts in status["stacks"].values()) + len(lost_to_status) == there
    if lost and not every_view:
        return "a trial less"
    findings = judge(data)
    report_head(data, findings)
    told = " ".join(i.reason for i in incidents(data, findings) if i.what == "unreadable")
    assert all(name in told for name in lost)
    assert render_csv(data).count(",unreadable,") == len(lost)
    return "a trial less" if lost else "read"


@pytest.mark.timeout(3600)
def test_damaged_records(directory: Path) -> None:
    rng = random.Random(20)
    files = sorted(p for p in directory.rglob("*") if p.is_file() and "raw" not in p.parts)
    contents = {path: path.read_bytes() for path in files}
    whole = list(contents.values())
    assert _look_at(directory, every_view=True) == "read"
    outcomes: Counter[str] = Counter()
    wanted = scaled(MUTATIONS)
    while outcomes.total() < wanted:
        path = rng.choice(files)
        changed = mutate(contents[path], whole, rng)
        if changed == contents[path]:
            continue
        if rng.random() < 0.02:
            path.unlink()
        else:
            path.write_bytes(changed)
        try:
            outcomes[_look_at(directory, every_view=outcomes.total() % 5 == 0)] += 1
        except PgstrataError:
            assert path.name in OF_NO_TRIAL, f"{path.name} is a trial's"
            outcomes["error"] += 1
        except Exception as error:
            error.add_note(f"mutation {outcomes.total()} of {path.name}: {changed[:2000]!r}")
            raise
        path.write_bytes(contents[path])
    assert outcomes["a trial less"] > wanted / 4
    assert outcomes["read"] > wanted / 20
    assert outcomes["error"] > wanted / 100
