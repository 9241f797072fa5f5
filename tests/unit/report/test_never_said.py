"""Odd campaigns in numbers, and what no report of them may say."""

from __future__ import annotations

import random
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from pgstrata.analyze.campaign.judge import judge
from pgstrata.cli.overrides import run_command
from pgstrata.importers.csv_runs import import_csv
from pgstrata.record.reader import CampaignData, TrialData, read
from pgstrata.record.schema import Origin
from pgstrata.report.markdown import render_markdown
from pgstrata.report.sentences.answer import answer
from pgstrata.report.terminal import render_terminal
from pgstrata.spec.campaign import Runs

pytestmark = pytest.mark.slow

Table = dict[str, list[float]]


def scattered(stacks: int, blocks: int, cv: float, seed: int = 1) -> Table:
    rng = random.Random(seed)
    return {
        f"s{k:02d}": [1000 * (1 + k / 20) * rng.lognormvariate(0, cv) for _ in range(blocks)] for k in range(stacks)
    }


TABLES: dict[str, Table] = {
    "single runs": scattered(2, 1, 0.1),
    "two blocks": scattered(2, 2, 0.1),
    "three blocks": scattered(2, 3, 0.1),
    "four blocks": scattered(2, 4, 0.02),
    "huge scatter, two": scattered(2, 3, 2.0),
    "huge scatter, many runs": scattered(2, 12, 1.5),
    "huge scatter, six": scattered(6, 2, 1.5),
    "one stack": scattered(1, 4, 0.1),
    "one run": scattered(1, 1, 0.1),
    "twelve stacks": scattered(12, 3, 0.05),
    "twelve stacks, one block": scattered(12, 1, 0.05),
    "far apart": {"a": [10.0, 11.0, 12.0, 10.5], "b": [40000.0, 41000.0, 39000.0, 40100.0]},
    "all alike": {"a": [1000.0] * 5, "b": [1000.0] * 5},
    "nearly alike": {"a": [1000.0, 1000.1, 1000.0, 999.9] * 9, "b": [1000.1, 1000.0, 999.9, 1000.0] * 9},
    "nothing done": {"a": [0.0, 0.0, 0.0], "b": [0.0, 0.0, 0.0]},
    "one does nothing": {"a": [0.0, 0.0, 0.0, 0.0], "b": [900.0, 1000.0, 1100.0, 1000.0]},
    "slow": {"a": [0.4, 0.5, 0.6, 0.5], "b": [0.1, 0.3, 0.2, 0.2]},
    "uneven": {"a": [900.0, 1000.0, 1100.0], "b": [950.0], "c": [1.0, 3000.0]},
}
NOTHING = 1e-9
"""An import takes no zero."""
NEVER = {
    "no number": r"\b(nan|inf|None)\b",
    "scientific notation": r"\d[eE][-+]\d",
    "a rest of rounding": r"0\.00000",
    "minus nothing": r"(?<![\d.…])[-−]0(?:\.0+)?(?= |%|…)",
    "a margin of no use": r"(?:equal|equality|prove is|margin of) (?:within )?(?:[2-9][1-9]|[3-9]\d|\d{3,}) %",
    "percent in thousands": r"\d{4,}(?:\.\d+)? %|\d,\d{3} %",
    "a wrong plural": r"\b1 (?:pairs|runs|blocks|stacks|trials|cells|minutes)\b",
    "one that survive": r"only stack that (?:survive|lose) ",
    "empty brackets": r"\(\s*\)|\[\s*\]",
    "an empty part": r":\s*[.;](?!\w)|;\s*[.;]|\.\.(?!\.)(?<!\.\.\.)",
    "no chance": r"chance of 0\s?%",
    "a judgement of the reader's means": r"ffordable",
    "a factor of thousands": r"\d,\d{3}×",
}


def recorded(folder: Path, table: Table, origin: Origin, blocks: int | None = None) -> CampaignData:
    rows = [f"{stack},{block},{tps or NOTHING}" for stack, runs in table.items() for block, tps in enumerate(runs)]
    (folder / "runs.csv").write_text("\n".join(["stack,block,tps", *rows]) + "\n")
    import_csv(folder / "runs.csv", folder / "imported")
    data = read(folder / "imported")
    if origin.startswith("import"):
        return data
    runs = Runs(blocks=blocks) if blocks else Runs(budget=600.0)
    campaign = data.campaign.model_copy(update={"runs": runs})
    trials = tuple(as_run(t) for t in data.trials)
    record = data.record.model_copy(update={"origin": origin, "campaign": campaign})
    return replace(data, record=record, trials=trials)


def as_run(trial: TrialData) -> TrialData:
    cells = tuple(
        replace(cell, result=cell.result.model_copy(update={"tps": 0.0})) if cell.result.tps == NOTHING else cell
        for cell in trial.cells
    )
    return replace(trial, cells=cells, verdict=trial.verdict.model_copy(update={"duration_s": 20.0}))


def command(minutes: int | None, blocks: int | None) -> str:
    return run_command(Path("out dir"), minutes, blocks)


@pytest.mark.parametrize("origin", ["import csv", "quick", "run"])
@pytest.mark.parametrize("name", TABLES)
def test_odd_campaigns(tmp_path: Path, name: str, origin: Origin) -> None:
    table = TABLES[name]
    fixed = max(len(runs) for runs in table.values()) if origin == "run" else None
    data = recorded(tmp_path, table, origin, fixed)
    findings = judge(data)
    said = answer(data, findings, command)
    text = "\n".join([render_terminal(data, findings), render_markdown(data, findings), said])
    for what, pattern in NEVER.items():
        found = re.search(pattern, text)
        assert found is None, f"{what}: {text[max(0, found.start() - 120) : found.end() + 40]!r}"
    if origin == "import csv":
        assert said == ""
        assert "more pair" not in text
        return
    if "**not proven**" in said and "It would take more than" not in said:
        words = shlex.split(said[said.index(" run ") :])
        spent = sum(t.verdict.duration_s for t in data.trials)
        if fixed:
            assert int(words[words.index("--blocks") + 1]) > fixed
        else:
            assert int(words[words.index("--minutes") + 1]) * 60 > spent


def test_before_there_are_bounds_runs_speak_for_themselves(tmp_path: Path) -> None:
    data = recorded(tmp_path, {"a": [900.0, 1100.0], "b": [1900.0, 2100.0]}, "quick")
    text = render_terminal(data, judge(data))
    assert "no bounds yet; SD 14.1 %, 900 … 1,100" in text
    (tmp_path / "alone").mkdir()
    alone = recorded(tmp_path / "alone", {"a": [900.0]}, "quick")
    assert "no bounds yet; one run" in render_terminal(alone, judge(alone))


def test_a_campaign_that_ends_before_any_verdict_says_what_has_room_for_bounds(tmp_path: Path) -> None:
    said = {}
    for name, fixed in (("adaptive", None), ("declared", 1)):
        (tmp_path / name).mkdir()
        data = recorded(tmp_path / name, scattered(2, 1, 0.1), "quick", fixed)
        said[name] = answer(data, judge(data), command)
        assert render_terminal(data, judge(data)).count("too few runs for any verdict") == 1
    head = "There are too few runs for any verdict yet: it takes at least two blocks of two stacks. About "
    # Bounds take three blocks; a block of two runs of 20 s takes 40 s.
    assert re.fullmatch(
        re.escape(head) + r"2 min more have room for bounds: \S+ run 'out dir' --minutes 2", said["adaptive"]
    )
    assert re.fullmatch(
        re.escape(head) + r"[23] min more have room for bounds: \S+ run 'out dir' --blocks \d", said["declared"]
    )
    (tmp_path / "alone").mkdir()
    alone = recorded(tmp_path / "alone", scattered(1, 1, 0.1), "quick")
    assert answer(alone, judge(alone), command) == ""


def test_what_is_open_names_stacks_minutes_and_command(tmp_path: Path) -> None:
    data = recorded(tmp_path, scattered(2, 4, 0.05), "quick")
    said = answer(data, judge(data), command)
    assert re.fullmatch(
        r"`s0\d` leads, which is \*\*not proven\*\* against `s0\d`\. "
        r"`s0\d` and `s0\d` differ by at most [\d.]+ %: choose by other grounds, or give it more time\. "
        r"About [\w ]+ more would settle it "
        r"if the differences stay as they are: "
        r"\S+ run 'out dir' --minutes \d+",
        said,
    ), said


def test_a_stack_far_behind_is_not_named_beside_one_that_is_close(tmp_path: Path) -> None:
    """The third stack scatters more and is 52 % behind: its three runs keep it open, and nobody asks about it."""
    runs = {
        "ext4": [3138.0, 2936, 2912, 2660, 2901, 2514, 2734, 2521, 2266, 2658, 2299, 2684],
        "xfs": [2920.0, 2943, 2655, 2595, 2527, 2680, 2876, 2650, 2308, 2840, 3058, 2905],
        "btrfs": [1067.0, 1521, 1398],
    }
    data = recorded(tmp_path, runs, "quick")
    findings = judge(data)
    first, second, third = answer(data, findings, command).split(". ", 2)
    assert first == "`xfs` leads, which is **not proven** against `ext4`"
    assert second == "`xfs` and `ext4` differ by at most 24 %: choose by other grounds, or give it more time"
    assert third.startswith(
        "`btrfs` was slower than `xfs` in each of 3 rounds (`btrfs` against `xfs` at a single look, 95 %: -72 ... "
        "-23 %): too few runs for a proof. "
    ), third
    rounds = next(c.rounds for c in findings.comparisons if {c.a, c.b} == {"btrfs", "xfs"} and c.metric == "tps")
    assert rounds is not None
    assert rounds.low is not None
    assert rounds.high is not None
    d = np.log(runs["btrfs"]) - np.log(runs["xfs"][:3])
    bounds = ttest_1samp(d, 0.0).confidence_interval(0.95)
    assert sorted(abs(np.log([rounds.low, rounds.high]))) == pytest.approx(sorted([-bounds.high, -bounds.low]))


def test_what_is_settled_is_said_once_and_asks_for_nothing(tmp_path: Path) -> None:
    data = recorded(tmp_path, scattered(3, 12, 0.001), "run", 12)
    said = answer(data, judge(data), command)
    assert "is **chosen**" in said
    assert "--" not in said


def test_the_headline_says_how_far_the_next_one_is_behind_and_nothing_repeats_it(tmp_path: Path) -> None:
    data = recorded(tmp_path, scattered(3, 12, 0.001), "run", 12)
    findings = judge(data)
    chosen, behind = re.split(r"(?<=confidence\.) ", answer(data, findings, command))
    assert "`s02` is **chosen**" in chosen
    assert re.fullmatch(r"`s01` is slower than `s02` by 4\.\d % \(4\.\d \.\.\. 4\.\d\): \*\*.+\*\*\.", behind), behind
    assert render_terminal(data, findings).count("s01 is slower than s02 by") == 1
    assert render_markdown(data, findings).count("`s01` is slower than `s02` by") == 1


def test_a_headline_without_a_runner_up_that_is_behind_names_none(tmp_path: Path) -> None:
    data = recorded(tmp_path, TABLES["nearly alike"], "run", 36)
    findings = judge(data)
    said = answer(data, findings, command)
    assert "is **chosen**" in said
    assert "slower" not in said


def test_an_open_question_names_the_difference_that_is_excluded(tmp_path: Path) -> None:
    """Two are open within a bound, and the verdict on the third is said beside it."""
    runs = {
        "ext4": [1000.0, 1010, 985, 1002, 993, 1015, 990, 1008],
        "xfs": [1002.0, 1001, 992, 1010, 987, 1009, 1001, 995],
        "btrfs": [500.0, 510, 495, 505, 492, 508, 499, 501],
    }
    data = recorded(tmp_path, runs, "quick")
    said = answer(data, judge(data), command)
    bound = "`ext4` and `xfs` differ by at most 1.3 %: choose by other grounds, or give it more time. "
    assert f"{bound}`btrfs` is slower than `ext4` by 50 % (49 ... 50): **proven**. About" in said


def test_a_bound_of_no_use_is_not_said(tmp_path: Path) -> None:
    data = recorded(tmp_path, {"a": [1000.0, 700, 1500], "b": [900.0, 1400, 800]}, "quick")
    assert "at most" not in answer(data, judge(data), command)
