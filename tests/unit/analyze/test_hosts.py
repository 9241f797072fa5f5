"""Campaigns on several hosts: the host is the unit of evidence, and what each host shows by itself is told."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t as student

from pgstrata.analyze.campaign.conclude import conclude
from pgstrata.analyze.campaign.hosts_policy import HostsPolicy
from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.campaign.statements import BadModeStatement
from pgstrata.analyze.stats.comparison import Design
from pgstrata.analyze.stats.hosts import DISAGREES, evident_hosts, over_hosts, p_alike, tabulate_hosts
from pgstrata.analyze.stats.interval import Estimate
from pgstrata.analyze.why.medium import medium_notices
from pgstrata.record.decision import Observation
from pgstrata.record.reader import TrialData, read
from pgstrata.record.schema import MediumRecord
from pgstrata.report.render import render
from pgstrata.report.sentences.answer import cell_answer
from pgstrata.report.terminal import render_terminal
from pgstrata.spec.campaign import Goal
from pgstrata_fake.campaigns import Shape, write_campaign

pytestmark = pytest.mark.slow

CELL = "cell"
DESIGN = Design(("a", "b"), (CELL,), Goal())


def observed(differences: dict[str, list[float]], *, level: float = 7.0) -> list[Observation]:
    """Blocks of each host in which `a` leads `b` by so much, on the logarithmic scale."""
    found, block = [], 0
    for number, (host, own) in enumerate(differences.items()):
        for difference in own:
            base = level + number
            found.append(Observation("a", block, CELL, math.exp(base + difference), host=host, duration_s=10))
            found.append(Observation("b", block, CELL, math.exp(base), host=host, duration_s=10))
            block += 1
    return found


def test_equal_numbers_of_blocks_give_the_t_of_the_hosts_means() -> None:
    d = {"h1": [0.09, 0.11, 0.10], "h2": [0.04, 0.06, 0.05], "h3": [0.14, 0.16, 0.15], "h4": [0.07, 0.09, 0.08]}
    over = over_hosts(tabulate_hosts(DESIGN, observed(d), CELL), 0, 1)
    means = np.array([np.mean(own) for own in d.values()])
    assert over.estimate.value == pytest.approx(means.mean(), abs=1e-6)
    assert over.estimate.se == pytest.approx(means.std(ddof=1) / 2, rel=1e-4)
    assert (over.estimate.nu, over.estimate.n) == (3, 4)
    within = np.concatenate([np.array(own) - np.mean(own) for own in d.values()])
    tau2 = means.var(ddof=1) - within @ within / 8 / 3
    assert over.tau == pytest.approx(math.sqrt(tau2), rel=0.05)
    assert over.mean.n == 12, "runs, not hosts: a rare bad run needs runs to be seen"


def test_differences_that_all_blocks_of_a_host_share_prove_nothing_about_the_kind_of_machine() -> None:
    d = {"h1": [0.30, 0.301, 0.299] * 4, "h2": [-0.20, -0.201, -0.199] * 4, "h3": [0.20, 0.201, 0.199] * 4}
    known = conclude(DESIGN, observed(d), CELL).confirmed[0]
    ignored = [replace(o, host="") for o in observed({"h1": d["h1"], "h3": d["h3"]})]
    assert known.verdict.verdict == "undecided"
    assert conclude(DESIGN, ignored, CELL).confirmed[0].verdict.verdict == "better"
    reason = HostsPolicy(DESIGN).decide(observed(d), 12, 0.0).reason
    assert "more hosts would settle it" in reason


def test_the_host_that_disagrees_is_found_and_the_others_are_not() -> None:
    rng = np.random.default_rng(4)
    d = {f"h{k}": list(0.05 + rng.normal(0, 0.01, 6)) for k in range(6)}
    d["h3"] = list(0.25 + rng.normal(0, 0.01, 6))
    found = over_hosts(tabulate_hosts(DESIGN, observed(d), CELL), 0, 1).hosts
    assert [one.host for one in found if one.disagrees] == ["h3"]
    others = np.array([np.mean(own) for host, own in d.items() if host != "h3"])
    assert found[3].estimate.value - others.mean() == pytest.approx(0.2, abs=0.02)


def test_alike_hosts_disagree_no_more_often_than_asked_for() -> None:
    rng, alarms = np.random.default_rng(5), 0
    for _ in range(60):
        d = {f"h{k}": list(rng.normal(0, 0.03, 4)) for k in range(6)}
        alarms += any(one.disagrees for one in over_hosts(tabulate_hosts(DESIGN, observed(d), CELL), 0, 1).hosts)
    assert alarms <= 60 * 0.05 + 3 * math.sqrt(60 * 0.05 * 0.95)


def test_hosts_of_three_blocks_disagree_no_more_often_than_asked_for() -> None:
    """With the variance of each host alone 14 of 60."""
    rng, alarms = np.random.default_rng(6), 0
    for _ in range(60):
        own = [Estimate(d.mean(), d.std(ddof=1) / math.sqrt(3), 2, 3) for d in rng.normal(0, 0.03, (12, 3))]
        alarms += bool((p_alike(own) < DISAGREES / 12).any())
    assert alarms <= 3


def test_a_host_that_evidently_scatters_more_has_a_variance_of_its_own() -> None:
    quiet, odd = [Estimate(0.0, 0.01, 5, 6) for _ in range(6)], Estimate(0.2, 0.10, 5, 6)
    assert evident_hosts(np.array([e.se**2 * e.n for e in (*quiet, odd)]), np.full(7, 5.0)).tolist() == [False] * 6 + [
        True
    ]
    assert p_alike([*quiet, odd])[-1] > DISAGREES / 7
    assert p_alike([*quiet, replace(odd, se=0.01)])[-1] < DISAGREES / 7


def test_a_claim_over_the_kind_takes_six_hosts_and_fewer_are_told_how_many_more() -> None:
    for hosts in (5, 6):
        d = {f"h{k}": [0.5 + 0.001 * k, 0.51, 0.49] for k in range(hosts)}
        (pair,) = conclude(DESIGN, observed(d), CELL).confirmed
        assert pair.verdict.verdict == ("better" if hosts == 6 else "undecided")
        assert math.isfinite(pair.verdict.interval.low) == (hosts == 6)
        assert pair.needed() == (None if hosts == 6 else 1)
        reason = HostsPolicy(DESIGN).decide(observed(d), 3, 0.0).reason
        assert reason.startswith("every pair is settled" if hosts == 6 else "1 pair open: more hosts would settle it")


def test_two_hosts_and_one_give_no_bounds() -> None:
    for hosts in (1, 2):
        d = {f"h{k}": [0.3, 0.31, 0.29] for k in range(hosts)}
        (pair,) = conclude(DESIGN, observed(d), CELL).confirmed
        assert not math.isfinite(pair.verdict.interval.low)
    assert student.ppf(0.975, 1) > 12, "one degree of freedom is next to none"


def test_the_policy_asks_for_rounds_until_pairs_are_settled_or_the_budget_is_used_up() -> None:
    policy = HostsPolicy(DESIGN, budget_s=1000.0)
    assert policy.decide([], 0, 0.0).run == ("a", "b")
    clear = {f"h{k}": [0.50, 0.51, 0.49] for k in range(8)}
    assert policy.decide(observed(clear), 2, 100.0).stage == "screen"
    assert policy.decide(observed(clear), 3, 100.0).reason == "every pair is settled over the hosts"
    rng = np.random.default_rng(1)
    unclear = {f"h{k}": list(rng.normal(0.0, 0.03, 3)) for k in range(6)}
    assert policy.decide(observed(unclear), 3, 100.0).stage == "screen"
    assert policy.decide(observed(unclear), 3, 990.0).reason == "the time budget is used up"
    assert "open after 12 blocks" in policy.decide(observed(unclear), 12, 100.0).reason


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    effects = {(host, "ext4"): 0.05 * host for host in range(6)} | {(host, "xfs"): 0.05 * host for host in range(6)}
    effects[3, "xfs"] += 0.40
    shape = Shape(stacks=("ext4", "xfs"), blocks=24, duration_s=10, incidents=False, hosts=6, host_effects=effects)
    return write_campaign(tmp_path_factory.mktemp("hosts") / "c", shape)


def test_the_judge_speaks_of_hosts_and_leaves_none_out_for_its_facts(campaign: Path) -> None:
    findings = judge(read(campaign))
    assert [len(stack.excluded) for stack in findings.stacks] == [0, 0]
    (pair,) = [c for c in findings.comparisons if c.metric == "tps"]
    assert (pair.source, pair.pairs) == ("hosts", 6)
    (hosts,) = findings.hosts
    assert len(hosts.rows) == 12
    odd = [row for row in hosts.rows if row.disagrees]
    assert {row.host for row in odd} == {"ssh://db03"}
    assert all(row.low is not None and row.high is not None and row.low <= row.high for row in odd)


def test_a_stack_that_has_no_run_on_a_host_is_no_error() -> None:
    seen = [o for o in observed({"h0": [0.1, 0.1], "h1": [0.1, 0.1]}) if (o.stack, o.host) != ("a", "h1")]
    assert conclude(DESIGN, seen, CELL).bad_modes == ()


def test_a_host_on_which_a_stack_is_slow_is_no_bad_mode_and_a_run_that_is_slow_there_is_one(tmp_path: Path) -> None:
    shape = Shape(stacks=("ext4", "xfs"), blocks=18, duration_s=10, incidents=False, hosts=3,
                  host_effects={(2, "xfs"): -0.5})  # fmt: skip
    data = read(write_campaign(tmp_path / "c", shape))
    assert not [s for s in judge(data).cells[0].statements if isinstance(s, BadModeStatement)]
    slow = {t.id for t in data.trials if t.trial.stack == "xfs" and t.trial.block in (4, 9)}
    worse = judge(replace(data, trials=tuple(_halved(t) if t.id in slow else t for t in data.trials)))
    (told,) = [s for s in worse.cells[0].statements if isinstance(s, BadModeStatement)]
    assert (told.subject, told.blocks) == ("xfs", (4, 9))


def _halved(trial: TrialData) -> TrialData:
    cells = (replace(c, result=c.result.model_copy(update={"tps": (c.result.tps or 0) / 2})) for c in trial.cells)
    return replace(trial, cells=tuple(cells))


def test_what_would_settle_it_is_hosts_and_no_command(campaign: Path) -> None:
    data = read(campaign)
    findings = judge(data)
    (cell,) = findings.cells
    found = cell_answer(data, findings, cell)
    assert found is not None
    assert found.settling is not None
    assert re.fullmatch(r"About \d+ more hosts? would settle it if the differences stay as they are", found.cost), (
        found.cost
    )
    assert "--" not in found.whole(lambda minutes, blocks: "--minutes 5")
    many = findings.model_copy(
        update={"comparisons": tuple(c.model_copy(update={"needed_pairs": 1904}) for c in findings.comparisons)}
    )
    hopeless = cell_answer(data, many, cell)
    assert hopeless is not None
    assert hopeless.cost == "It would take more than 100 more hosts to settle it"


def test_every_report_shows_hosts_and_stacks(campaign: Path, tmp_path: Path) -> None:
    data = read(campaign)
    findings = judge(data)
    paths = render(data, findings, ["html", "md"], tmp_path).paths
    for text in (render_terminal(data, findings), *(path.read_text() for path in paths)):
        assert "Each host by itself" in text
        assert "ssh://db05" in text
        assert "differs from the other hosts" in text


def test_a_host_unlike_its_kind_is_named_by_its_flushes() -> None:
    def baseline(host: str, flushes: float) -> MediumRecord:
        return MediumRecord(
            at="", before_block=0, medium="disk", seconds=2.0, host=host, flushes_per_s=flushes, flushes_by="fio"
        )

    alike = [baseline(f"h{k}", 1000.0 + k) for k in range(6)]
    assert list(medium_notices(alike)) == []
    (line,) = medium_notices([*alike, baseline("h7", 690.0)])
    assert line == "unlike the other hosts: h7 has 31 % fewer flushes a second"
    assert list(medium_notices([baseline("h0", 1000.0), baseline("h1", 600.0)])) == [], "which one is the odd one?"
