"""From a recorded campaign to findings: what counts, what is said, what is refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pgstrata.analyze.campaign.evidence import durability_of, gather
from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.campaign.metrics import Observer
from pgstrata.analyze.campaign.selection import Selection
from pgstrata.analyze.campaign.statements import (
    BadModeStatement,
    Choice,
    DeclaredBlocks,
    LostRuns,
    PairStatement,
    Price,
)
from pgstrata.analyze.findings import CellFinding, Comparison, Findings
from pgstrata.importers.csv_runs import import_csv
from pgstrata.record.parquet import write_series
from pgstrata.record.reader import CampaignData, TrialData, read
from pgstrata.record.schema import AttestedRecord, DecisionRecord, OthersUse
from pgstrata.report.sentences.statements import comparison_words, sentence
from pgstrata.report.sentences.summary import cell_words, told
from pgstrata.spec.campaign import Goal, Runs
from pgstrata.spec.durability import of_class
from pgstrata.spec.layers.devices import LoopDevice
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.not_built import Existing
from pgstrata.spec.stack import Postgres, Stack, Volume
from pgstrata_fake.campaigns import Shape, write_campaign

# Ten runs each of a published comparison (SIOS Technology 2024; see studies/lvm-nfs), TPS without connection time.
LVM_NFS = {
    "xfs": (1093.966, 1078.742, 1101.81, 1060.335, 1078.079, 1053.222, 1102.692, 1054.451, 1083.29, 1056.351),
    "lvm x1": (1106.864, 1110.075, 1093.947, 1039.999, 1101.913, 1009.69, 1088.381, 1045.73, 1095.371, 1096.891),
    "lvm x25": (1096.325, 1071.844, 1076.765, 1038.889, 1064.246, 1012.033, 1079.861, 1065.923, 1073.894, 1037.636),
    "nfs": (880.7962, 870.4461, 804.7554, 786.8345, 816.9299, 809.6224, 784.6754, 845.2306, 785.601, 827.0654),
}  # fmt: skip


def import_runs(tmp_path: Path, runs: Mapping[str, tuple[float, ...]], margin: float, *, blocks: bool) -> Findings:
    table = tmp_path / "runs.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["stack", *(["block"] if blocks else []), "tps"])
        for stack, values in runs.items():
            for number, value in enumerate(values):
                writer.writerow([stack, *([number] if blocks else []), value])
    out = tmp_path / "imported"
    import_csv(table, out, margin=margin)
    return judge(read(out))


def pair(findings: Findings, a: str, b: str, metric: str = "tps") -> Comparison:
    found = [c for c in findings.comparisons if {c.a, c.b} == {a, b} and c.metric == metric]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("margin", [0.001, 0.02, 0.05, 0.2])
def test_nfs_is_worse_than_xfs_at_any_margin(tmp_path: Path, margin: float) -> None:
    found = pair(import_runs(tmp_path, LVM_NFS, margin, blocks=True), "xfs", "nfs")
    assert (found.a, found.verdict) == ("xfs", "better")
    assert not found.proven
    assert "shown, not confirmed** (imported)" in comparison_words(found)


def test_both_lvm_stacks_are_equal_to_xfs_within_5_percent(tmp_path: Path) -> None:
    findings = import_runs(tmp_path, LVM_NFS, 0.05, blocks=True)
    for name in ("lvm x1", "lvm x25"):
        found = pair(findings, "xfs", name)
        assert (found.verdict, found.kind, found.level) == ("equal", "equivalence", 0.90)
        assert found.low is not None
        assert found.low > 1 / 1.05
        assert "practically equal" in comparison_words(found)
        assert found.unseen_mode == pytest.approx(1 - 0.05 ** (1 / found.pairs))
        assert "of the runs could have been missed" in comparison_words(found)


def test_both_lvm_stacks_are_undecided_within_2_percent(tmp_path: Path) -> None:
    findings = import_runs(tmp_path, LVM_NFS, 0.02, blocks=True)
    for name in ("lvm x1", "lvm x25"):
        found = pair(findings, "xfs", name)
        assert found.verdict == "undecided"
        assert found.needed_pairs is not None
        assert found.needed_pairs > 5
        assert found.unseen_mode is None
        assert "pairs" not in comparison_words(found)  # nobody can run more of somebody else's
    assert any("imported" in n for n in findings.campaign.notices)
    assert all("imported" in s.labels for s in findings.stacks)


def test_runs_without_blocks_are_reported_as_unprotected(tmp_path: Path) -> None:
    findings = import_runs(tmp_path, LVM_NFS, 0.02, blocks=False)
    assert any("unpaired" in n for n in findings.campaign.notices)
    assert pair(findings, "xfs", "nfs").verdict == "better"
    assert pair(findings, "xfs", "lvm x1").verdict == "undecided"


def test_single_runs_give_no_verdict(tmp_path: Path) -> None:
    findings = import_runs(tmp_path, {"a": (1000.0,), "b": (500.0,)}, 0.02, blocks=False)
    assert findings.comparisons == ()
    assert findings.chosen is None
    assert findings.ranking == ("a", "b")
    assert "no verdict" in cell_words(findings.cells[0])[0]


def test_one_block_gives_no_verdict(tmp_path: Path) -> None:
    findings = import_runs(tmp_path, {"a": (1000.0,), "b": (500.0,)}, 0.02, blocks=True)
    assert findings.comparisons == ()
    assert findings.chosen is None


def test_one_stack_alone_has_an_estimate(tmp_path: Path) -> None:
    findings = import_runs(tmp_path, {"a": (1000.0, 1010.0, 990.0)}, 0.02, blocks=True)
    assert findings.stacks[0].metrics["tps"].estimate == pytest.approx(1000, rel=0.01)
    assert findings.comparisons == ()


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = Shape(stacks=("ext4", "xfs", "btrfs", "tmpfs"), blocks=6, duration_s=60)
    return write_campaign(tmp_path_factory.mktemp("judge") / "campaign", shape)


@pytest.fixture(scope="module")
def findings(campaign: Path) -> Findings:
    return judge(read(campaign))


def test_the_same_record_gives_the_same_findings(campaign: Path, findings: Findings) -> None:
    assert judge(read(campaign)).model_dump_json() == findings.model_dump_json()


def test_ranking_estimates_and_choice_agree(findings: Findings) -> None:
    level = {s.name: s.metrics["tps"].estimate or 0 for s in findings.stacks}
    assert max(level, key=lambda n: level[n]) == findings.ranking[-1] == "tmpfs"
    assert sorted(level.keys() - {"tmpfs"}, key=lambda n: -level[n]) == list(findings.ranking[:-1])
    assert findings.chosen is not None
    assert (findings.chosen.name, findings.chosen.class_) == ("xfs", "survives power loss")
    prices = [s for s in findings.cells[0].statements if isinstance(s, Price)]
    assert [(p.subject, p.object, p.class_) for p in prices] == [("tmpfs", "xfs", "loses on power loss")]
    verdicts = {frozenset((c.a, c.b)): c.verdict for c in reversed(findings.comparisons) if c.margin is not None}
    assert [p.proven for p in prices] == [verdicts[frozenset(("tmpfs", "xfs"))] != "undecided"]


def test_the_goal_can_ask_for_another_durability(campaign: Path) -> None:
    goal = Goal.model_validate({"durability": "any"})
    findings = judge(asking(read(campaign), goal=goal))
    assert findings.ranking[0] == "tmpfs"
    assert not any(isinstance(s, Price) for s in findings.cells[0].statements)
    none = judge(asking(read(campaign), goal=Goal(durability="unknown")))
    assert none.ranking[0] == "xfs"


def test_a_bad_mode_of_a_stack_is_told(campaign: Path) -> None:
    data = read(campaign)
    name = max(gather(data).stacks, key=lambda n: sum(t.valid for t in data.trials if t.trial.stack == n))
    slow = {t.id for t in data.trials if t.trial.stack == name and t.trial.block in (1, 4)}
    found = judge(replace(data, trials=tuple(_slowed(t) if t.id in slow else t for t in data.trials)))
    (told,) = [s for s in found.cells[0].statements if isinstance(s, BadModeStatement)]
    assert (told.subject, told.bad, told.blocks) == (name, 2, (1, 4))


def _slowed(trial: TrialData) -> TrialData:
    cells = (replace(c, result=c.result.model_copy(update={"tps": (c.result.tps or 0) / 2})) for c in trial.cells)
    return replace(trial, cells=tuple(cells))


def test_what_would_settle_the_runner_up_is_told_of_a_choice_that_is_open(tmp_path: Path) -> None:
    shape = Shape(stacks=("ext4", "xfs", "btrfs"), blocks=3, duration_s=5, incidents=False)
    (cell,) = judge(read(write_campaign(tmp_path / "c", shape))).cells
    assert cell.chosen is None
    (told,) = [s for s in cell.statements if isinstance(s, PairStatement)]
    assert {told.subject, told.object} == set(cell.ranking[:2])
    assert (told.certainty, told.settled_by_pairs is None) == ("open", told.settled_by_s is None)


def test_the_order_of_durability(campaign: Path) -> None:
    classes = {"a": "loses on power loss", "b": "loses recent commits", "c": "unknown"}
    assert of_class(classes, None) == ("b",)
    assert of_class(classes, "unknown") == ("b", "c")
    assert of_class(classes, "survives power loss") == ()
    assert of_class(classes, "any") == ("a", "b", "c")


def test_estimates_and_intervals_agree(findings: Findings) -> None:
    for stack in findings.stacks:
        metric = stack.metrics["tps"]
        assert metric.low is not None
        assert metric.high is not None
        assert metric.estimate is not None
        assert metric.low < metric.estimate < metric.high
        assert len(metric.runs) == stack.n == len(stack.trials)


def test_every_pair_and_metric_once(findings: Findings) -> None:
    keys = [(c.metric, frozenset((c.a, c.b))) for c in findings.comparisons]
    assert len(keys) == len(set(keys))
    assert sum(c.metric == "tps" for c in findings.comparisons) == 6
    assert {c.metric for c in findings.comparisons} >= {
        "tps",
        "latency_avg_ms",
        "cv_1s",
        "longest_stall_s",
        "wal_bytes",
    }


def test_undeclared_metrics_are_never_proven_or_equal(findings: Findings) -> None:
    others = [c for c in findings.comparisons if c.metric != "tps"]
    assert others
    assert not any(c.proven or c.verdict == "equal" for c in others)


def test_screening_proves_what_its_interval_excludes(findings: Findings) -> None:
    found = pair(findings, "ext4", "tmpfs")
    assert (found.verdict, found.kind, found.proven) == ("worse", "screen", True)
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.high < 1
    assert "proven" in comparison_words(found)


def test_lower_is_better_for_latency(findings: Findings) -> None:
    found = pair(findings, "ext4", "tmpfs", "latency_avg_ms")
    assert found.verdict == "worse"
    assert found.ratio is not None
    assert found.ratio > 1


def test_durability_is_said_before_anything(findings: Findings) -> None:
    assert any("different durability" in n and "tmpfs" in n for n in findings.campaign.notices)
    tmpfs = next(s for s in findings.stacks if s.name == "tmpfs")
    assert tmpfs.durability.class_ != "survives power loss"


def test_durability_of_a_whole_postgresql_conf_is_what_the_server_said(tmp_path: Path) -> None:
    data = read(write_campaign(tmp_path / "c", Shape(stacks=("ext4", "xfs"), blocks=2, duration_s=5)))
    stack = data.trials[0].stack
    stack = stack.model_copy(update={"postgresql": Postgres(postgresql_conf="mine.conf")})
    assert durability_of(replace(data, trials=()), stack).class_ == "unknown"
    said = AttestedRecord(what="PostgreSQL fsync", expected="off", actual="off", holds=True)
    ran = replace(data, trials=(replace(data.trials[0], stack=stack, attested=(said,)),))
    assert durability_of(ran, stack).class_ == "loses on power loss"


def test_durability_of_a_directory_and_of_a_loop_file_is_that_of_what_they_lie_on(tmp_path: Path) -> None:
    data = read(write_campaign(tmp_path / "c", Shape(stacks=("ext4", "xfs"), blocks=2, duration_s=5)))

    def of(stack: Stack, **said: str) -> str:
        rows = tuple(AttestedRecord(what=what, expected=v, actual=v, holds=True) for what, v in said.items())
        trials = (replace(data.trials[0], stack=stack, attested=rows),)
        return durability_of(replace(data, trials=trials), stack).class_

    here = Stack(name="here", data=Volume(fs=Existing(path="/dev/shm/x")))
    assert of(here) == "unknown"
    assert of(here, **{"data mount fstype": "tmpfs", "data mount options": "rw"}) == "loses on power loss"
    assert of(here, **{"data mount fstype": "ext4", "data mount options": "rw"}) == "survives power loss"
    assert of(here, **{"data mount fstype": "ext4", "data mount options": "rw,nobarrier"}) == "loses on power loss"
    loop = Stack(name="loop", data=Volume(fs=Ext4(), device=LoopDevice()))
    assert of(loop, **{"loop data.0 file fstype": "tmpfs"}) == "loses on power loss"
    assert of(loop, **{"loop data.0 file fstype": "xfs"}) == "survives power loss"
    imported = replace(data, record=data.record.model_copy(update={"origin": "import csv"}))
    assert durability_of(imported, loop).class_ == "unknown"


def test_what_does_not_count_is_listed(findings: Findings) -> None:
    reasons = {e.reason.split(":")[0] for s in findings.stacks for e in s.excluded}
    assert reasons == {"failed", "excluded"}


def test_runs_that_are_lost_unevenly_are_told_with_their_counts(campaign: Path, tmp_path: Path) -> None:
    def lose(path: Path, value: dict[str, Any]) -> None:
        if path.parent.name.startswith(("b02-", "b04-")) and value["status"] == "ok" and path.parent.name in lost:
            value |= {"status": "failed", "reason": "the server was gone"}

    lost = {t.id for t in read(campaign).trials if t.trial.stack == "xfs"}
    findings = judge(changed(campaign, tmp_path / "c", "verdict.json", lose))
    assert isinstance(findings.cells[0].statements[0], Choice)
    found = findings.cells[0].statements[1]
    assert isinstance(found, LostRuns)
    counts = {c.name: (c.lost, c.runs) for c in found.counts}
    assert counts["xfs"] == (2, 6)
    assert counts.keys() == {"ext4", "xfs", "btrfs", "tmpfs"}
    assert all(lost == len(s.excluded) for s in findings.stacks for lost, _ in [counts[s.name]])
    assert "2 of 6 of `xfs`" in sentence(found)
    assert "none of the others" in sentence(found)


def test_runs_that_are_lost_evenly_are_not_told(tmp_path: Path) -> None:
    shape = Shape(stacks=("ext4", "xfs"), blocks=5, duration_s=20, incidents=False)

    def lose(path: Path, value: dict[str, Any]) -> None:
        if path.parent.name.startswith("b03-"):
            value |= {"status": "failed", "reason": "the server was gone"}

    found = judge(changed(write_campaign(tmp_path / "a", shape), tmp_path / "c", "verdict.json", lose))
    assert [len(s.excluded) for s in found.stacks] == [1, 1]
    assert not any(isinstance(s, LostRuns) for s in found.cells[0].statements)


def changed(campaign: Path, to: Path, name: str, change: Callable[[Path, dict[str, Any]], None]) -> CampaignData:
    """A copy in which `change` edits every file of that name in the trials."""
    import shutil

    shutil.copytree(campaign, to)
    for path in sorted((to / "trials").glob(f"**/{name}")):
        value = json.loads(path.read_text())
        change(path, value)
        path.write_text(json.dumps(value))
    return read(to)


def test_another_kernel_is_not_compared(campaign: Path, tmp_path: Path) -> None:
    def change(path: Path, value: dict[str, Any]) -> None:
        if "b03-" in str(path):
            value["checked"]["kernel release"] = "6.19.0"

    found = judge(changed(campaign, tmp_path / "c", "facts.json", change))
    assert any("kernel release is 6.19.0, of most trials 6.18.0" in n for n in found.campaign.notices)
    assert all(any(e.block == 3 for e in s.excluded) for s in found.stacks)


def test_the_policy_does_not_see_what_the_judge_leaves_out(campaign: Path, tmp_path: Path) -> None:
    def change(path: Path, value: dict[str, Any]) -> None:
        if "b03-" in str(path):
            value["checked"]["kernel release"] = "6.19.0"

    trials = changed(campaign, tmp_path / "c", "facts.json", change).trials
    seen = {o.block for o in Observer("tps")(trials)}
    assert seen == {t.trial.block for t in trials} - {3}


def disturbed(trial: TrialData, share: float) -> TrialData:
    """Return a trial during whose runs others used that share of the processors."""
    others = OthersUse(used_s=40 * share, stolen_s=0, elapsed_s=20, processors=2)
    cells = [replace(c, result=c.result.model_copy(update={"others": others})) for c in trial.cells]
    return replace(trial, cells=tuple(cells))


def test_a_run_that_others_disturbed_does_not_count_whatever_its_throughput(campaign: Path) -> None:
    """A run of ext4 on a machine that was busy for a while; that of tmpfs is as busy as all of tmpfs are."""
    data = read(campaign)
    busy = {"ext4": {2: 0.5}, "tmpfs": dict.fromkeys(range(9), 0.5)}
    shares = [busy.get(t.trial.stack, {}).get(t.trial.block, 0.1) for t in data.trials]
    trials = [disturbed(trial, share) for trial, share in zip(data.trials, shares, strict=True)]
    left = {(t.trial.stack, t.trial.block): Selection.of(trials).why_not(t) for t in trials}
    failed = {(t.trial.stack, t.trial.block) for t in data.trials if not t.valid}
    assert {where for where, reason in left.items() if reason} == failed | {("ext4", 2)}
    assert left["ext4", 2] == "disturbed: others used more than 25% of the processors beyond what is usual here"
    seen = {(o.stack, o.block) for o in Observer("tps")(trials)}
    assert seen == left.keys() - failed - {("ext4", 2)}
    found = judge(replace(data, trials=tuple(trials)))
    assert (2, left["ext4", 2]) in [(e.block, e.reason) for s in found.stacks if s.name == "ext4" for e in s.excluded]
    assert any("1 trial does not count: disturbed" in notice for notice in found.campaign.notices)


@pytest.mark.parametrize("seed", range(5))
def test_block_by_block_the_policy_sees_what_counts_of_all_so_far(campaign: Path, seed: int) -> None:
    """Kernels and what others use change from trial to trial, so that which of them is usual changes too."""
    rng = np.random.default_rng(seed)
    trials = []
    for trial in read(campaign).trials:
        assert trial.facts is not None
        checked = {**trial.facts.checked, "kernel release": str(rng.choice(["6.17.0", "6.18.0"]))}
        facts = trial.facts.model_copy(update={"checked": checked})
        trials.append(disturbed(replace(trial, facts=facts), float(rng.choice([0.1, 0.2, 0.9]))))
    observer = Observer("tps")
    for block in range(6):
        seen = observer([t for t in trials if t.trial.block == block])
        known = [t for t in trials if t.trial.block <= block]
        counting = Selection.of(known)
        assert [(o.stack, o.block, o.value) for o in seen] == [
            (t.trial.stack, t.trial.block, c.result.tps) for t in known if counting.counts(t) for c in t.cells
        ]


def test_a_minor_upgrade_of_one_of_several_majors_is_noticed(campaign: Path, tmp_path: Path) -> None:
    """xfs runs on 17 and everything else on 18; the server of xfs is upgraded before the last block."""

    def facts(path: Path, value: dict[str, Any]) -> None:
        if json.loads((path.parent / "planned.json").read_text())["stack"]["name"] == "xfs":
            value["checked"]["PostgreSQL version"] = "17.6 (system)" if "b05-" in str(path) else "17.5 (system)"

    def plan(path: Path, value: dict[str, Any]) -> None:
        value["stack"]["postgresql"]["major"] = 17 if value["stack"]["name"] == "xfs" else 18

    changed(campaign, tmp_path / "c", "facts.json", facts)
    found = judge(changed(tmp_path / "c", tmp_path / "d", "planned.json", plan))
    upgraded = {s.name: [e for e in s.excluded if "17.6" in e.reason] for s in found.stacks}
    assert {name for name, excluded in upgraded.items() if excluded} == {"xfs"}
    assert "PostgreSQL version is 17.6 (system), of most trials 17.5 (system)" in upgraded["xfs"][0].reason
    assert not any("of most trials" in e.reason for s in found.stacks for e in s.excluded if s.name != "xfs")


def test_a_run_without_transactions_is_left_out_and_named(campaign: Path, tmp_path: Path) -> None:
    def change(path: Path, value: dict[str, Any]) -> None:
        if "b04-" in str(path) and "-01-s50" in str(path):
            value["tps"] = 0.0

    found = judge(changed(campaign, tmp_path / "c", "result.json", change))
    xfs = next(s for s in found.stacks if s.name == "xfs")
    assert any("tps is 0" in e.reason for e in xfs.excluded)


def test_a_share_of_failures_counts_the_runs_without_any(campaign: Path, tmp_path: Path) -> None:
    def change(path: Path, value: dict[str, Any]) -> None:
        if "b04-" in str(path) and "-01-s50" in str(path):
            value["failed"] = value["transactions"] // 3

    found = judge(changed(campaign, tmp_path / "c", "result.json", change))
    shares = {s.name: s.metrics["failed_fraction"] for s in found.stacks}
    assert sorted(v for v in shares["xfs"].runs if v is not None) == pytest.approx([0, 0, 0, 0, 0, 0.25], rel=0.01)
    assert set(shares["ext4"].runs) == {0.0}


def test_where_nothing_failed_failures_are_not_shown(findings: Findings) -> None:
    assert not any("failed_fraction" in s.metrics for s in findings.stacks)
    assert not any(c.metric == "failed_fraction" for c in findings.comparisons)


def test_an_emulated_machine_is_functional_only(campaign: Path, tmp_path: Path) -> None:
    def change(path: Path, value: dict[str, Any]) -> None:
        value["kind"] = "emulated"

    found = judge(changed(campaign, tmp_path / "c", "facts.json", change))
    assert found.comparisons == ()
    assert found.chosen is None
    assert all("functional only" in s.labels for s in found.stacks)
    assert any("functional only" in n for n in found.campaign.notices)


def test_durability_is_told_of_stacks_with_runs_alone(campaign: Path, tmp_path: Path) -> None:
    def fail(path: Path, value: dict[str, Any]) -> None:
        if json.loads((path.parent / "planned.json").read_text())["stack"]["name"] == "tmpfs":
            value |= {"status": "failed", "reason": "never works"}

    def ranked_together(notices: tuple[str, ...]) -> list[str]:
        return [n for n in notices if "different durability" in n]

    assert "tmpfs" in ranked_together(judge(read(campaign)).campaign.notices)[0]
    found = judge(changed(campaign, tmp_path / "c", "verdict.json", fail))
    assert ranked_together(found.campaign.notices) == []


def asking(data: CampaignData, **changes: Any) -> CampaignData:
    """The same record under a campaign that asked for something else."""
    asked = data.campaign.model_copy(update=changes)
    return replace(data, record=data.record.model_copy(update={"campaign": asked}))


def test_more_clients_than_branches_are_told(tmp_path: Path) -> None:
    """Sessions that wait for rows of one another say little of what storage does."""
    shape = Shape(
        stacks=("ext4",),
        blocks=1,
        duration_s=5,
        scripts=("tpcb-like", "simple-update"),
        scales=(8,),
        clients=(8, 9),
    )
    data = read(write_campaign(tmp_path / "campaign", shape))
    (found,) = [n for n in gather(data).notices if "row locks" in n]
    assert "(9 clients at scale 8)" in found
    own = asking(data, workload=data.campaign.workload.model_copy(update={"sql": "/mine.sql"}))
    assert not [n for n in gather(own).notices if "row locks" in n], "whose tables are not pgbench's"


def test_a_pair_is_told_with_its_own_margin(campaign: Path) -> None:
    goal = Goal.model_validate({"kind": "equivalent", "equivalent": [["ext4", "xfs", "30%"]]})
    found = judge(asking(read(campaign), goal=goal))
    assert pair(found, "ext4", "xfs").margin == pytest.approx(0.3)
    assert pair(found, "ext4", "btrfs").margin == pytest.approx(0.02)
    assert pair(found, "ext4", "xfs", "latency_avg_ms").margin is None


def test_a_number_of_blocks_is_a_fixed_design(campaign: Path) -> None:
    data = read(campaign)
    assert not gather(data).design().fixed
    design = gather(asking(data, runs=Runs(blocks=6))).design()
    assert (design.fixed, design.max_blocks) == (True, 6)


def test_a_stage_that_did_not_fit_into_the_budget_is_told(campaign: Path) -> None:
    data, notice = read(campaign), "budget used: 2 h of 3 h; stage soak was left out"
    last = DecisionRecord(after_block=6, stage="done", continue_with=(), budget_notice=notice)
    assert notice in judge(replace(data, decisions=(last,))).campaign.notices


def test_stalls_are_named(tmp_path: Path) -> None:
    shape = Shape(stacks=("ext4", "btrfs"), blocks=3, duration_s=60, incidents=False)
    found = judge(read(write_campaign(tmp_path / "c", shape)))
    assert any("`btrfs` **stalls**" in words for words in cell_words(found.cells[0]))
    assert not any("`ext4` **stalls**" in words for words in cell_words(found.cells[0]))


def test_a_grid_is_judged_cell_by_cell(tmp_path: Path) -> None:
    shape = Shape(
        stacks=("ext4", "xfs", "btrfs"), blocks=4, duration_s=20, incidents=False,
        scripts=("tpcb-like", "simple-update"), scales=(10, 50),
    )  # fmt: skip
    found = judge(read(write_campaign(tmp_path / "c", shape)))
    assert len(found.cells) == 4
    assert all(len(c.ranking) == 3 for c in found.cells)
    tps = [c for c in found.comparisons if c.metric == "tps"]
    assert len(tps) == 4 * 3
    # 0.05 over 4 cells and 3 pairs
    assert {round(c.level, 6) for c in tps if c.kind == "screen"} == {round(1 - 0.05 / 12, 6)}


def every_word(cell: CellFinding) -> list[str]:
    return [said.words for said in (*told(cell).said, *told(cell).more)]


def test_checkpoints_and_levels_are_told_in_long_runs(tmp_path: Path) -> None:
    shape = Shape(stacks=("ext4", "xfs"), blocks=3, duration_s=320, incidents=False)
    found = judge(read(write_campaign(tmp_path / "c", shape)))
    # The made-up runs lose 30 % for 9 of every 30 s from the start of a checkpoint.
    assert any("`ext4` and `xfs` follow the checkpoints" in words for words in every_word(found.cells[0]))
    assert not any("level" in words for words in every_word(found.cells[0]))


def test_slope_stalls_and_levels_of_soak_runs_are_told(tmp_path: Path) -> None:
    shape = Shape(stacks=("ext4", "xfs", "btrfs"), blocks=3, duration_s=20, incidents=False, soak_s=960)
    directory = write_campaign(tmp_path / "c", shape)
    (series,) = directory.glob("trials/b03-*-01-s50/cells/*/progress.parquet")
    tps = np.where(np.arange(960) < 480, 2000, 1000) * np.random.default_rng(1).normal(1, 0.05, 960)
    rows = [(t + 1, float(tps[t]), 4.0, 1.0, None, 0, 0, 0) for t in range(960)]
    write_series(series, "progress", rows)
    said = [words for words in every_word(judge(read(directory)).cells[0]) if words.startswith("Soak: ")]
    (slopes,) = [words for words in said if "Theil-Sen" in words]
    assert slopes.count("an hour") == 3
    assert any("`btrfs` **stalls**" in words and "the longest stall: 3 s" in words for words in said)
    assert any(words.startswith("Soak: `xfs` changed its level within a run, at 8 min, by 6") for words in said)
    assert len(said) == 3


def test_one_stack_and_no_run_at_all_have_words(tmp_path: Path) -> None:
    alone = judge(
        read(write_campaign(tmp_path / "one", Shape(stacks=("ext4",), blocks=3, duration_s=5, incidents=False)))
    )
    assert cell_words(alone.cells[0])[0].startswith("`ext4` alone")
    empty = judge(read(write_campaign(tmp_path / "none", Shape(stacks=("ext4", "xfs"), blocks=0))))
    assert empty.ranking == ()
    assert "too few runs" in cell_words(empty.cells[0])[0]


def declaring(data: CampaignData, blocks: int, asked: int | None = None) -> CampaignData:
    """The same record, of a campaign that declared so many blocks, and was extended to as many as are `asked` for."""
    data = asking(data, runs=Runs(blocks=asked or blocks))
    return replace(data, record=data.record.model_copy(update={"declared_blocks": blocks}))


def test_a_declared_number_of_blocks_has_intervals_of_that_design_alone(tmp_path: Path) -> None:
    shape = Shape(stacks=("ext4", "xfs", "btrfs"), blocks=5, duration_s=5, incidents=False)
    data = read(write_campaign(tmp_path / "c", shape))
    four = replace(data, trials=tuple(t for t in data.trials if t.trial.block < 4))
    found, extended, going_on = (
        judge(d) for d in (declaring(four, 4), declaring(data, 4, asked=5), declaring(four, 5))
    )
    assert any(isinstance(s, DeclaredBlocks) and s.blocks == 4 for s in found.cells[0].statements)
    (said,) = [line for line in cell_words(found.cells[0]) if "not extendable" in line]
    assert "4 declared blocks" in said
    assert all(c.one_look for c in found.comparisons)
    wide, narrow = pair(judge(asking(four, runs=Runs(blocks=4))), "ext4", "btrfs"), pair(found, "ext4", "btrfs")
    assert None not in (wide.low, wide.high, narrow.low, narrow.high)
    assert (narrow.high or 0) - (narrow.low or 0) < 0.7 * ((wide.high or 0) - (wide.low or 0))
    for other in (extended, going_on):
        assert not any(c.one_look for c in other.comparisons)
        assert not any(isinstance(s, DeclaredBlocks) for s in other.cells[0].statements)
