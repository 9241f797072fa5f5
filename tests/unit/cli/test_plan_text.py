"""`pgstrata plan`: what it says about a machine that is not there yet, and about the whole host."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pgstrata.cli.hosts import inspection_host
from pgstrata.cli.verbs import plan
from pgstrata.cli.verbs.simulate import simulate
from pgstrata.host.protocol import Command
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.trial.survey.survey import survey
from typed import typed

CAMPAIGN = """\
host: HOST
scratch: /var/tmp
stacks:
  zfs: zfs:module.zfs_txg_timeout=1
  nfs: nfs(xfs)
  dir: dir:/var/tmp
workload: {scale: 1}
runs: {blocks: 1}
"""


@pytest.fixture
def described(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """A plan for the host that the test names."""
    file = tmp_path / "c.yaml"
    file.write_text(CAMPAIGN.replace("HOST", request.param), encoding="utf-8")
    campaign = load_campaign(file)
    with inspection_host(campaign) as host:
        return plan._describe(campaign, survey(host, campaign, tmp_path / "out"))


@pytest.mark.parametrize("described", ["local", "lab"], indirect=True)
def test_host_wide_changes_are_listed(described: dict[str, Any]) -> None:
    changes = [line for line in described["host_wide"] if line.startswith("during trials of ")]
    assert changes == [
        "during trials of zfs: zfs_txg_timeout = 1 (put back afterwards)",
        "during trials of zfs: load the zfs module",
        "during trials of nfs: NFS server, NFS export for data",
    ]


@pytest.mark.parametrize("described", ["lab"], indirect=True)
def test_a_lab_machine_is_not_judged_by_this_host(described: dict[str, Any]) -> None:
    assert described["refused"] is None
    assert described["unsupported"] == []
    assert described["medium"] == ""
    assert any("without its lab machine" in note for note in described["notes"])


@pytest.mark.parametrize("host", ["local", "lab"])
def test_a_stack_whose_server_is_missing_is_left_out_alone(tmp_path: Path, host: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        CAMPAIGN.replace("HOST", host).replace(
            "dir: dir:/var/tmp", 'dir: {stack: "dir:/var/tmp", postgresql: {major: 99}}'
        ),
        encoding="utf-8",
    )
    campaign = load_campaign(file)
    with inspection_host(campaign) as looked:
        described = plan._describe(campaign, survey(looked, campaign, tmp_path / "out"))
    assert {trial["stack"] for trial in described["trials"]} == {"zfs", "nfs"}
    said = [*described["notes"], *described["unsupported"], described["refused"] or ""]
    assert any("dir" in line and "PostgreSQL 99 is not on this host" in line for line in said)


def test_stacks_that_cannot_be_built_are_not_counted(tmp_path: Path) -> None:
    """A server that is not there does not run, nor does it lengthen a stage."""
    said = []
    for stacks in (
        '{a: "dir:/var/tmp", b: "dir:/var/tmp"}',
        '{a: "dir:/var/tmp", b: "dir:/var/tmp", zfs: {stack: zfs, postgresql: {major: 99}}, '
        'c: {stack: "dir:/var/tmp", postgresql: {settings: {max_connections: 3}}}}',
    ):
        file = tmp_path / "c.yaml"
        file.write_text(
            f"scratch: /var/tmp\nstacks: {stacks}\nworkload: {{scale: 1}}\nruns: {{blocks: 3}}\n"
            "latency: {rates: [0.5], blocks: 2}\nsoak: {duration: 600, runs: 1}\n"
            f"goal: {{kind: against, against: {'zfs' if 'zfs' in stacks else 'a'}}}\n",
            encoding="utf-8",
        )
        campaign = load_campaign(file)
        with inspection_host(campaign) as host:
            described = plan._describe(campaign, survey(host, campaign, tmp_path / "out"))
        if len(campaign.stacks) > 2:
            assert any(line.startswith("c cannot be built here: ") for line in described["unsupported"])
        said.append({key: described[key] for key in ("at_most", "first_block_s", "stages", "built", "goes_on")})
        assert plan._render(described).splitlines()[1] == "6 trials in 3 blocks"
        assert described["forecast"][1].startswith("3 blocks of 2 runs: ")
    assert said[0] == said[1]


def test_conditions_that_can_hardly_be_decided_are_named(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "scratch: /var/tmp\nstacks: [ext4, xfs]\nworkload: {scale: 1}\nruns: {blocks: 3}\n", encoding="utf-8"
    )
    near, far = "tps(xfs) < 0.97*tps(ext4)", "tps(xfs) < 0.2*tps(ext4)"
    options = ("--scratch", "/var/tmp", "--out", "out", "--fail-on", near, "--fail-on", far)
    for words in (("plan", "c.yaml"), ("quick", "ext4", "xfs", "--plan", "--minutes", "5")):
        done = typed(*words, *options, cwd=tmp_path)
        assert done.returncode == 0
        (warning,) = (line for line in done.stdout.splitlines() if "--fail-on: " in line)
        assert warning.startswith(f"  warning: --fail-on: {near}: differences from about ")
        assert typed(*words, *options[:4], cwd=tmp_path).stdout.count("--fail-on") == 0
        assert list(tmp_path.iterdir()) == [tmp_path / "c.yaml"]


def test_what_a_given_postgresql_conf_loses_is_listed_and_planned(tmp_path: Path) -> None:
    (tmp_path / "mine.conf").write_text("work_mem = 8MB\narchive_command = 'scp %p x:'\n", encoding="utf-8")
    file = tmp_path / "c.yaml"
    file.write_text(
        "scratch: /var/tmp\nruns: {blocks: 1}\nworkload: {scale: 1}\n"
        "stacks: {a: {fs: {kind: dir, path: /var/tmp}, postgresql: {postgresql_conf: mine.conf}}}\n",
        encoding="utf-8",
    )
    campaign = load_campaign(file)
    with inspection_host(campaign) as host:
        value = plan._describe(campaign, survey(host, campaign, tmp_path / "out"))
    assert value["left_out"] == {"a": {"archive_command": "WAL is not archived"}}
    assert "Left out of the postgresql.conf of a:\n  archive_command: WAL is not archived\n" in plan._render(value)
    (step,) = (s for s in value["trials"][0]["steps"] if s["name"] == "settings of the server")
    assert "work_mem = 8MB" in step["tells"]
    assert step["tells"][-1].endswith("mine.conf: archive_command: WAL is not archived")


MANY = """\
scratch: /var/tmp
matrix:
  name: "{fs} {memory}"
  factors:
    fs: [ext4, xfs, btrfs, "zfs:module.zfs_txg_timeout=1"]
    memory: {a: "@work_mem=4MB", b: "@work_mem=8MB", c: "@work_mem=16MB"}
workload: {scale: [1, 2], script: [tpcb-like, select-only]}
runs: {blocks: 2}
"""


def test_many_stacks_fit_a_screen_and_every_command_is_shown_on_request(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(MANY, encoding="utf-8")
    campaign = load_campaign(file)
    with inspection_host(campaign) as host:
        described = plan._describe(campaign, survey(host, campaign, tmp_path / "out"))
    short = plan._render(described).splitlines()
    assert len(campaign.stacks) == 12
    assert len([line for line in short if not line.startswith(("HINT", *(s.name for s in campaign.stacks)))]) <= 32
    assert sum("load the zfs module" in line for line in short) == 1
    assert sum(line.startswith("  scale ") for line in short) == 2
    whole = plan._render(described, commands=True)
    assert len(whole.splitlines()) > 500
    assert not re.search(r"\('|\{'|\bNone\b|\bsh -c\b", whole)
    programs = whole[whole.index("\nb000-") + 1 :].splitlines()
    assert all(line.startswith(("  ", "b0")) for line in programs)  # no command goes on in another line
    assert any(line.endswith(r"-printf $'%f\n'") for line in programs)
    undone = [line for line in programs if line.startswith("    # remove path: ")]
    assert any(re.search(r", uid \d+$", line) for line in undone)
    assert not any(re.search(r", \d+$", line) for line in undone)


@pytest.mark.parametrize("argument", ["%f\n", "it's\n\\n\t$HOME", "plain", "two words", ""])
def test_a_command_is_one_line_that_bash_reads_as_it_is(argument: str) -> None:
    text = plan._on_one_line(Command(("printf", "%s", argument)).text)
    assert "\n" not in text
    said = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said == argument


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("runs: {blocks: 3}", "6 trials in 3 blocks"),
        (
            "runs: {budget: 8h}",
            "24 trials in 12 blocks, fewer where every pair has its verdict, more as far as the budget",
        ),
        ("goal: all-pairs", "24 trials in 12 blocks, fewer where every pair has its verdict, more up to 60"),
        ("templates: {c: ext4}", "24 trials in 12 blocks, fewer where"),
        (
            "matrix: {name: c, factors: {fs: [btrfs]}}",
            "36 trials in 12 blocks at most, then pairs of the leaders up to 60",
        ),
    ],
)
def test_what_follows_the_planned_blocks_is_what_the_goal_makes_of_them(tmp_path: Path, rest: str, said: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"scratch: /var/tmp\nstacks: [ext4, xfs]\nworkload: {{scale: 1}}\n{rest}\n", encoding="utf-8")
    campaign = load_campaign(file)
    with inspection_host(campaign) as host:
        line = plan._render(plan._describe(campaign, survey(host, campaign, tmp_path / "out"))).splitlines()[1]
    assert line.startswith(said)


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("runs: {blocks: 3}", "block"),
        ("runs: {budget: 80h}", "; budget 80 h"),
        ("runs: {budget: 20min}", "; budget 20 min, which ends it earlier"),
    ],
)
def test_a_budget_that_ends_the_campaign_before_its_last_block_says_so(tmp_path: Path, rest: str, said: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"scratch: /var/tmp\nstacks: [ext4, xfs]\nworkload: {{scale: 1}}\n{rest}\n", encoding="utf-8")
    campaign = load_campaign(file)
    with inspection_host(campaign) as host:
        line = plan._render(plan._describe(campaign, survey(host, campaign, tmp_path / "out"))).splitlines()[2]
    assert line.endswith(said), line


@pytest.mark.parametrize(("host", "by"), [("local", "pgstrata doctor --media"), ("lab", "run")])
def test_media_whose_range_was_not_looked_at_are_named(tmp_path: Path, host: str, by: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"host: {host}\nstacks: ['media(nvme)/ext4@wal=media(hdd-7200)/xfs', 'media(none)/ext4']\n")
    (note,) = plan._media_notes(load_campaign(file))
    assert note.endswith(f"(nvme, hdd-7200) is not checked by `plan`; {by} measures it")
    file.write_text("stacks: ['media(none)/ext4', ext4]\n")
    assert plan._media_notes(load_campaign(file)) == []


@pytest.mark.parametrize(("effects", "screens"), [(("0", "-5%"), False), (("0", "-5%", "-30%"), True)])
def test_simulate_names_screening_where_there_is_one(
    effects: tuple[str, ...], screens: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate(list(effects), noise="quiet", campaigns=1)
    assert (" for screening" in capsys.readouterr().out) == screens


def test_the_plan_of_a_cluster_is_that_of_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("stacks: [tmpfs]\nhosts: {dask: 'tls://scheduler:8786'}\nworkload: {scale: 1, duration: 5}\n")
    plan.show_plan(load_campaign(file), tmp_path / "out")
    said = " ".join(capsys.readouterr().out.split())
    assert "the machines of the Dask cluster are known when it runs" in said
    assert "tmpfs" in said
