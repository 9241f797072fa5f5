"""What people get wrong on the command line: every message says what, where, why, and how to mend it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgstrata.cli.usage_errors import explain_usage_error
from typed import typed

FILES = {
    "good.yaml": "stacks: [ext4, xfs]\nworkload: {scale: 1}\n",
    "open.yaml": "stacks: [ext4\n",
    "scale.yaml": "stacks: [ext4]\nworkload: {scale: abc}\n",
    "metric.yaml": "stacks: [ext4]\ngoal: {primary: tsp}\n",
    "unlogged.yaml": "stacks: [ext4]\ngoal: {primary: latency_p99_ms}\n",
    "study.yaml": "stacks: [ext4]\nstudy: zfs-tuning2\n",
    "kernel-name.yaml": "stacks: {a: {fs: ext4, device: /dev/sdb}}\n",
    "margin.yaml": "stacks: [ext4]\ngoal: {margin: 200%}\n",
    "negative.csv": "stack,tps,latency_avg_ms\na,1,-2\n",
    "text.csv": "stack,tps\na,fast\n",
}

MISTAKES = [
    ("qick ext4", "no such command 'qick'", "did you mean quick?"),
    ("run", "missing argument 'FILE'", "pgstrata run --help"),
    ("plan good.yaml --nosuch", "no such option: --nosuch", "pgstrata plan --help"),
    ("plan good.yaml --blocks x", "--blocks: not a whole number", "pgstrata plan --help"),
    ("plan good.yaml --blocks 0", "--blocks: must be at least 1", "pgstrata plan --help"),
    ("plan good.yaml extra", "got unexpected extra argument", "pgstrata plan --help"),
    ("run good.yaml --budget soon", "--budget: 'soon' is not a duration", "90min"),
    ("run good.yaml --fail-on tps(xf)<1", "there is no stack 'xf'", "did you mean 'xfs'?"),
    ("run good.yaml --fail-on tsp(xfs)<1", "there is no metric 'tsp'", "did you mean tps?"),
    ("run good.yaml --fail-on latency_p99_ms(xfs)>20", "latency_p99_ms is not measured", "log: all"),
    ("plan good.yaml --fail-on garbage(", "condition 'garbage(': expected", "tps(xfs)"),
    ("plan good.yaml --fail-on tps(xf)<1", "there is no stack 'xf'", "did you mean 'xfs'?"),
    ("quick ext4 xfs --plan --fail-on garbage(", "condition 'garbage(': expected", "tps(xfs)"),
    ("quick ext4 xfs --plan --fail-on tsp(xfs)<1", "there is no metric 'tsp'", "did you mean tps?"),
    ("quick ext4 xfs --plan --fail-undecided", "there is none", "add --fail-on CONDITION"),
    ("run absent.yaml", "campaign file absent.yaml does not exist", "pgstrata studies"),
    ("run .", ". holds no campaign", "the directory of a campaign"),
    ("run open.yaml", "open.yaml:2: not valid YAML", "bracket"),
    ("run scale.yaml", "scale.yaml:2: workload.scale: 'abc' is not a whole number", "docs/reference"),
    ("run metric.yaml", "goal.primary: there is no metric 'tsp'", "did you mean tps?"),
    ("run unlogged.yaml", "latency_p99_ms is not measured", "log: all"),
    ("studies run lvm-nfs", "lvm-nfs.yaml leaves its disks open: /dev/disk/by-id/CHANGE-ME", "copy that file"),
    ("run study.yaml", "there is no study 'zfs-tuning2'", "did you mean zfs-tuning?"),
    ("run kernel-name.yaml", "stack a: /dev/sdb is no stable id of a device", "/dev/disk/by-id"),
    ("run margin.yaml", "margin.yaml:2: goal.margin: 2.0 must be less than 1.0", "for example 2%"),
    ("quick ext4 --margin 200%", "--margin 200% is not between 0 and 100 %", "--margin 2%"),
    ("quick ext4 --device /dev/sdb", "/dev/sdb is no stable id of a device", "/dev/disk/by-id"),
    (
        "quick ext4@tablespace.a=xfs ext4@tablespace.b=xfs",
        "stack ext4@tablespace.a=xfs: nothing uses tablespace a",
        "workload: {tablespace: a}",
    ),
    ("simulate 0 -5% --margin abc", "--margin: 'abc' is not a share", "--margin 2%"),
    ("simulate 0 abc", "effect: 'abc' is not a share", "pgstrata simulate"),
    ("lab up --memory 4Q", "--memory: '4Q' is not a size", "--memory 4G"),
    ("doctor --host lab", "host lab is a machine that a campaign starts", "pgstrata lab up"),
    ("doctor --host ftp://x", "not a host: ftp://x", "ssh://[user@]host[:port]"),
    ("import csv negative.csv --out o", "line 2: negative: '-2' in column 'latency_avg_ms'", "--skip-bad-rows"),
    ("import csv text.csv --out o", "1 bad row, nothing was imported", "--skip-bad-rows"),
    ("import pgbench a= --out o", "'a=' names no file", "ext4=run1.out"),
    ("import pg-fs-benchmark text.csv --out o", "neither a folder nor a whole tar archive", "results.csv"),
    ("report .", ". is no campaign directory", "pgstrata run"),
    ("crash tmpfs", "the data directory is in memory", "for example: pgstrata crash ext4"),
    ("crash nfs:server=db2:/srv", "are not of this host", "for example: pgstrata crash ext4"),
    ("crash ext4 --ignore-flushes some", "'some' is neither all nor a number", "for example: 3"),
    ("crash exty", "unknown filesystem 'exty'", "ext4"),
]


@pytest.mark.parametrize(("line", "what", "hint"), MISTAKES, ids=[line for line, _, _ in MISTAKES])
def test_a_mistake_is_explained(tmp_path: Path, line: str, what: str, hint: str) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = typed(*line.split(), cwd=tmp_path)
    said, _, mended = done.stderr.partition("\nHINT: ")
    assert done.returncode == 2
    assert said.startswith("error: ")
    assert what in said
    assert hint in mended
    assert done.stdout == ""


def test_a_verb_without_words_shows_its_help(tmp_path: Path) -> None:
    done = typed("import", cwd=tmp_path)
    assert done.returncode == 2
    assert "pg-fs-benchmark" in done.stderr
    assert "error:" not in done.stderr


def test_sentences_of_the_parser() -> None:
    guess = explain_usage_error("No such option: --blocs (Possible options: --blocks, --budget)", "pgstrata run")
    assert guess.message == "no such option: --blocs"
    assert guess.hint == "did you mean --blocks, --budget? pgstrata run --help lists all"
