"""A campaign that has ended goes on with more minutes, by either verb; made-up trials take a minute each."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from pgstrata.cli.overrides import begun_quick, run_command
from pgstrata_fake.campaigns import Shape, write_campaign
from typed import typed

SMALL = "stacks: [ext4, xfs]\nworkload: {scale: 1, clients: 2, duration: 5}\nruns: {budget: 6min}\n"


def blocks_of(directory: Path) -> int:
    done = typed("status", str(directory), "--json", cwd=directory)
    blocks: int = json.loads(done.stdout)["blocks"]
    return blocks


def trials_of(directory: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in directory.glob("trials/*/verdict.json")}


@pytest.mark.parametrize("again", ["quick ext4 xfs --minutes 24", "run out/quick-ext4-xfs --minutes 24"])
def test_quick_goes_on_as_begun(tmp_path: Path, again: str) -> None:
    first = typed("quick", "ext4", "xfs", "--minutes", "6", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    out = tmp_path / "out" / "quick-ext4-xfs"
    begun, before = begun_quick(out), trials_of(out)
    assert begun is not None
    assert blocks_of(out) == 3
    done = typed(*again.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    left = [int(minutes) for minutes in re.findall(r"budget left (\d+) min", done.stderr)]
    assert max(left) <= 18, "six of the 24 minutes were used before"
    extended, after = begun_quick(out), trials_of(out)
    assert extended is not None
    assert extended.workload == begun.workload
    assert blocks_of(out) > 3
    assert {name: after[name] for name in before} == before, "nothing that was finished runs again"


def test_both_verbs_go_on_with_the_same_campaign(tmp_path: Path) -> None:
    stacks = ("ext4", "xfs", "btrfs")
    for name in ("a", "b"):
        typed("quick", *stacks, "--minutes", "11", "--out", name, cwd=tmp_path)
    typed("quick", *stacks, "--minutes", "18", "--out", "a", cwd=tmp_path)
    typed("run", "b", "--minutes", "18", cwd=tmp_path)
    assert begun_quick(tmp_path / "a") == begun_quick(tmp_path / "b")
    assert trials_of(tmp_path / "a").keys() == trials_of(tmp_path / "b").keys()


def test_a_campaign_of_a_file_goes_on_without_the_file(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    typed("run", "small.yaml", cwd=tmp_path)
    (tmp_path / "small.yaml").unlink()
    assert blocks_of(tmp_path / "out" / "small") == 3
    plan = typed("plan", "out/small", "--minutes", "10", cwd=tmp_path)
    assert "budget 10 min" in plan.stdout
    done = typed("run", "out/small", "--minutes", "10", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert blocks_of(tmp_path / "out" / "small") == 5
    assert (tmp_path / "out" / "small" / "campaign.yaml").read_text() == SMALL


def test_what_cannot_go_on_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("stack,block,tps\na,1,10\nb,1,11\n")
    typed("import", "csv", "runs.csv", "--out", "imported", cwd=tmp_path)
    refused = typed("run", "imported", "--minutes", "10", cwd=tmp_path)
    assert refused.returncode == 2
    assert "imported results, which cannot be run" in refused.stderr
    typed("quick", "ext4", "xfs", "--minutes", "6", cwd=tmp_path)
    other = typed("quick", "ext4", "xfs", "--minutes", "24", "--clients", "3", cwd=tmp_path)
    assert other.returncode == 2
    assert "workload differ" in other.stderr


def test_the_command_is_whole(tmp_path: Path) -> None:
    assert run_command(tmp_path / "a b", minutes=12).endswith(f"run '{tmp_path}/a b' --minutes 12")
    assert run_command(Path("out/x"), blocks=9).endswith("run out/x --blocks 9")


@pytest.mark.parametrize("first", ["quick ext4 xfs --minutes 6", "quick ext4 xfs --minutes 40 --blocks 3"])
def test_the_command_that_would_settle_it_goes_on_until_it_is_settled(tmp_path: Path, first: str) -> None:
    """Typed as it is printed, again and again: every time more runs, and in the end a verdict."""
    done = typed(*first.split(), cwd=tmp_path)
    before = 0
    for _ in range(8):
        said = next(line for line in done.stdout.splitlines() if line.startswith("answer: "))
        if "is chosen" in said:
            return
        blocks = blocks_of(tmp_path / "out" / "quick-ext4-xfs")
        assert blocks > before, said
        before = blocks
        words = shlex.split(said[said.index(" run ") :])
        done = typed(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    raise AssertionError(f"still open after eight times: {done.stdout}")


def test_a_decision_without_a_reason_is_no_empty_line(tmp_path: Path) -> None:
    typed("quick", "ext4", "xfs", "--minutes", "6", cwd=tmp_path)
    decisions = tmp_path / "out" / "quick-ext4-xfs" / "decisions.jsonl"
    first = json.loads(decisions.read_text().splitlines()[0])
    assert first["reason"] == ""
    decisions.write_text(json.dumps(first) + "\n")
    shown = typed("status", "out/quick-ext4-xfs", cwd=tmp_path).stdout
    assert shown.rstrip().endswith("last decision: confirm")


def test_one_block_is_one(tmp_path: Path) -> None:
    write_campaign(tmp_path / "out", Shape(stacks=("ext4", "xfs"), blocks=1, duration_s=5))
    assert typed("status", "out", cwd=tmp_path).stdout.splitlines()[1].startswith("1 block begun, ")


def test_a_grid_says_in_how_many_cells_the_best_is_chosen(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(SMALL.replace("clients: 2", "clients: [2, 4]").replace("6min", "12min"))
    done = typed("run", "grid.yaml", cwd=tmp_path)
    said = next(line for line in done.stdout.splitlines() if line.startswith("answer: "))
    assert said.startswith("answer: The best is chosen in 0 of 2 cells. About ")
    assert " run out/grid --minutes " in said


def test_a_directory_keeps_the_minutes_that_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(f"name: c\n{SMALL}")

    def budget_after(*words: str) -> float:
        done = typed("run", *words, "--quiet", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        record = json.loads((tmp_path / "out" / "campaign.json").read_text())
        return float(record["campaign"]["runs"]["budget"])

    assert budget_after("c.yaml", "--minutes", "3", "--out", "out") == 180
    assert budget_after("out") == 180
    assert budget_after("out", "--minutes", "4") == 240
    assert budget_after("out") == 240
