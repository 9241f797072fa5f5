"""What people get wrong on the command line: every message says what, where, why, and how to mend it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pgstrata.cli.main import explain_usage_error
from typed import typed

FIXTURES = Path(__file__).parents[2] / "fixtures"
FILES = {
    "good.yaml": "stacks: [ext4, xfs]\nworkload: {scale: 1}\n",
    "open.yaml": "stacks: [ext4\n",
    "scale.yaml": "stacks: [ext4]\nworkload: {scale: abc}\n",
    "metric.yaml": "stacks: [ext4]\ngoal: {primary: tsp}\n",
    "unlogged.yaml": "stacks: [ext4]\ngoal: {primary: latency_p99_ms}\n",
    "study.yaml": "stacks: [ext4]\nstudy: zfs-tuning2\n",
    "kernel-name.yaml": "stacks: {a: {fs: ext4, device: /dev/sdb}}\n",
    "margin.yaml": "stacks: [ext4]\ngoal: {margin: 200%}\n",
    "negative.csv": "stack,tps,latency_avg_ms\na,1,-2\na,1,2\n",
    "text.csv": "stack,tps\na,fast\na,12\n",
    "alone.csv": "stack,tps\na,fast\n",
    "sound.csv": "stack,tps\na,12\nb,13\n",
    "run1.out": (FIXTURES / "pgbench" / "15-mix.out").read_text(encoding="utf-8"),
    "machine/zfs/results.csv": "1;2;raidz1;no-fpw;50;rw;900;3600;5\n1;2;mirror;50;rw;950;3600;5\n",
}

MISTAKES: list[tuple[str, str, str, str | tuple[str, str, str]]] = [
    ("qick ext4", "no such command 'qick'", "did you mean quick?", "quick ext4 --plan"),
    ("run", "missing argument 'FILE'", "pgstrata run --help", "run --help"),
    ("plan good.yaml --nosuch", "no such option: --nosuch", "pgstrata plan --help", "plan --help"),
    ("plan good.yaml --blocks x", "--blocks: not a whole number", "pgstrata plan --help", "plan --help"),
    ("plan good.yaml --blocks 0", "--blocks: must be at least 1", "pgstrata plan --help", "plan --help"),
    ("plan good.yaml extra", "got unexpected extra argument", "pgstrata plan --help", "plan --help"),
    (
        "run good.yaml --budget 90min",
        "no such option: --budget",
        "it is --minutes N now",
        "run good.yaml --minutes 90 --blocks 1 --quiet",
    ),
    (
        "run good.yaml --fail-on tps(xf)<1",
        "there is no stack 'xf'",
        "did you mean 'xfs'?",
        "run good.yaml --fail-on tps(xfs)<1 --blocks 1 --quiet",
    ),
    (
        "run good.yaml --fail-on tsp(xfs)<1",
        "there is no metric 'tsp'",
        "did you mean tps?",
        "run good.yaml --fail-on tps(xfs)<1 --blocks 1 --quiet",
    ),
    (
        "run good.yaml --fail-on latency_p99_ms(xfs)>20",
        "latency_p99_ms is not measured",
        "log: all",
        ("good.yaml", "{scale: 1}", "{scale: 1, log: all}"),
    ),
    (
        "plan good.yaml --fail-on garbage(",
        "condition 'garbage(': expected",
        "tps(xfs)",
        "plan good.yaml --fail-on tps(xfs)<0.95*tps(ext4)",
    ),
    (
        "plan good.yaml --fail-on tps(xf)<1",
        "there is no stack 'xf'",
        "did you mean 'xfs'?",
        "plan good.yaml --fail-on tps(xfs)<1",
    ),
    (
        "quick ext4 xfs --plan --fail-on garbage(",
        "condition 'garbage(': expected",
        "tps(xfs)",
        "quick ext4 xfs --plan --fail-on tps(xfs)<0.95*tps(ext4)",
    ),
    (
        "quick ext4 xfs --plan --fail-on tsp(xfs)<1",
        "there is no metric 'tsp'",
        "did you mean tps?",
        "quick ext4 xfs --plan --fail-on tps(xfs)<1",
    ),
    (
        "quick ext4 xfs --plan --fail-undecided",
        "there is none",
        "add --fail-on CONDITION",
        "quick ext4 xfs --plan --fail-undecided --fail-on tps(xfs)<1",
    ),
    ("run absent.yaml", "campaign file absent.yaml does not exist", "pgstrata studies", "studies"),
    ("run .", ". holds no campaign", "the directory of a campaign", "run good.yaml --blocks 1 --quiet"),
    ("run open.yaml", "open.yaml:2: not valid YAML", "bracket", ("open.yaml", "[ext4", "[ext4]")),
    (
        "run scale.yaml",
        "scale.yaml:2: workload.scale: 'abc' is not a whole number",
        "docs/reference",
        ("scale.yaml", "abc", "2"),
    ),
    ("run metric.yaml", "goal.primary: there is no metric 'tsp'", "did you mean tps?", ("metric.yaml", "tsp", "tps")),
    (
        "run unlogged.yaml",
        "latency_p99_ms is not measured",
        "log: all",
        ("unlogged.yaml", "[ext4]", "[ext4]\nworkload: {log: all}"),
    ),
    (
        "studies run lvm-nfs",
        "lvm-nfs.yaml leaves its disks open: /dev/disk/by-id/CHANGE-ME",
        "copy that file",
        "studies run lvm-nfs --size lab --quiet",
    ),
    (
        "run study.yaml",
        "there is no study 'zfs-tuning2'",
        "did you mean zfs-tuning?",
        ("study.yaml", "zfs-tuning2", "zfs-tuning"),
    ),
    (
        "run kernel-name.yaml",
        "stack a: /dev/sdb is no stable id of a device",
        "/dev/disk/by-id",
        ("kernel-name.yaml", "/dev/sdb", "/dev/vdb+10737418240+254:16"),
    ),
    (
        "run margin.yaml",
        "margin.yaml:2: goal.margin: 2.0 must be less than 1.0",
        "for example 2%",
        ("margin.yaml", "200%", "2%"),
    ),
    (
        "quick ext4 --margin 200%",
        "--margin 200% is not between 0 and 100 %",
        "--margin 2%",
        "quick ext4 --margin 2% --plan",
    ),
    (
        "quick ext4 --device /dev/sdb",
        "/dev/sdb is no stable id of a device",
        "/dev/disk/by-id",
        "quick ext4 --device /dev/vdb+10737418240+254:16 --plan",
    ),
    (
        "quick ext4@tablespace.a=xfs ext4@tablespace.b=xfs",
        "stack ext4@tablespace.a=xfs: nothing uses tablespace a",
        "workload: {tablespace: a}",
        (
            "good.yaml",
            "[ext4, xfs]\nworkload: {scale: 1}",
            "[ext4@tablespace.a=xfs, 'ext4@tablespace.a=btrfs']\nworkload: {tablespace: a}",
        ),
    ),
    (
        "simulate 0 -5% --margin abc",
        "--margin: 'abc' is not a share",
        "--margin 2%",
        "simulate 0 -5% --margin 2% --campaigns 1",
    ),
    ("simulate 0 abc", "effect: 'abc' is not a share", "pgstrata simulate", "simulate 0 -3% -10% --campaigns 1"),
    ("lab up --memory 4Q", "--memory: '4Q' is not a size", "--memory 4G", "lab up --help"),
    ("doctor --host lab", "host lab is a machine that a campaign starts", "pgstrata lab up", "lab up --help"),
    ("doctor --host ftp://x", "not a host: ftp://x", "ssh://[user@]host[:port]", "doctor --host local"),
    (
        "import csv negative.csv --out o",
        "line 2: negative: '-2' in column 'latency_avg_ms'",
        "--skip-bad-rows",
        "import csv negative.csv --out o --skip-bad-rows",
    ),
    (
        "import csv text.csv --out o",
        "1 bad row, nothing was imported",
        "--skip-bad-rows",
        "import csv text.csv --out o --skip-bad-rows",
    ),
    ("import csv alone.csv --out o", "1 bad row, nothing was imported", "mend the rows", ("alone.csv", "fast", "1")),
    ("import pgbench a= --out o", "'a=' names no file", "ext4=run1.out", "import pgbench ext4=run1.out --out o"),
    (
        "import pg-fs-benchmark text.csv --out o",
        "neither a folder nor a whole tar archive",
        "results.csv",
        "import pg-fs-benchmark machine --out o",
    ),
    ("report .", ". is no campaign directory", "pgstrata run", "report measured"),
    ("report sound.csv", "is neither a campaign directory nor a zip", "pgstrata import", "report measured"),
    ("status nosuch", "no campaign directory at nosuch", "pgstrata run", "status measured"),
    ("run measured", "measured holds imported results", "pgstrata report measured", "report measured"),
    ("report measured --format xls", "unknown format 'xls'", "html, json, md", "report measured --format md"),
    (
        "import csv sound.csv --out measured",
        "measured already holds a campaign",
        "--out DIR",
        "import csv sound.csv --out DIR",
    ),
    ("import sysbench sound.csv", "missing option '--out'", "import sysbench --help", "import sysbench --help"),
    ("lab down nosuch", "there is no lab machine nosuch", "pgstrata lab status", "lab status"),
    ("capture", "capture takes logs or --from-statements", "pgstrata capture postgresql.csv", "capture --help"),
    (
        "quick ext4 xfs:noatim --plan",
        "xfs has no option 'noatim'",
        "did you mean noatime?",
        "quick ext4 xfs:noatime --plan",
    ),
    ("quick ext4 ramdisk --plan", "unknown filesystem 'ramdisk'", "write tmpfs", "quick ext4 tmpfs --plan"),
    ("crash tmpfs", "the data directory is in memory", "for example: pgstrata crash ext4", "crash --help"),
    ("crash nfs:server=db2:/srv", "are not of this host", "for example: pgstrata crash ext4", "crash --help"),
    (
        "crash ext4 --ignore-flushes some",
        "'some' is neither all nor a number",
        "for example: 3",
        "crash ext4 --help --ignore-flushes 3",
    ),
    ("crash exty", "unknown filesystem 'exty'", "ext4", "crash ext4 --help"),
]
"""The line, what is said, what the hint says, and what is typed next: a line, or a change of a file before it."""


WORDS_OF_THE_TEST = {
    "--campaigns",
    "--help",
    "--plan",
    "--quiet",
    "--blocks",
    "1",
    "2",
    "good.yaml",
    "machine",
    "measured",
    "tps",
    "tablespace.a",
    "btrfs",
}
"""Files that lie there, and what keeps the next step short; the hint need not say them."""


def lay_out(folder: Path) -> None:
    (folder / "machine" / "zfs").mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    assert typed("import", "csv", "sound.csv", "--out", "measured", cwd=folder).returncode == 0


@pytest.mark.parametrize(("line", "what", "hint", "following"), MISTAKES, ids=[line for line, *_ in MISTAKES])
def test_a_mistake_is_explained_and_its_hint_mends_it(
    tmp_path: Path, line: str, what: str, hint: str, following: str | tuple[str, str, str]
) -> None:
    lay_out(tmp_path)
    done = typed(*line.split(), cwd=tmp_path)
    said, _, mended = done.stderr.partition("\nHINT: ")
    assert done.returncode == 2
    assert said.startswith("error: ")
    assert what in said
    assert hint in mended
    assert done.stdout == ""
    if isinstance(following, str):
        new, old = following, line
        then = typed(*following.split(), cwd=tmp_path)
    else:
        name, old, new = following
        file = tmp_path / name
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")
        then = typed(*(line if name in line else f"run {name} --blocks 1 --quiet").split(), cwd=tmp_path)
    words = set(re.split(r"[][{}()<>*:=@',\s]+", new)) - WORDS_OF_THE_TEST
    unsaid = [word for word in words if word not in mended and word not in old]
    assert not unsaid, f"the hint does not say {unsaid}: {mended}"
    assert not then.stderr.startswith("error: "), then.stderr
    assert then.returncode in ((0, 3) if "/dev/vdb" in new else (0,))


def test_a_verb_without_words_shows_its_help(tmp_path: Path) -> None:
    done = typed("import", cwd=tmp_path)
    assert done.returncode == 2
    assert "pg-fs-benchmark" in done.stderr
    assert "error:" not in done.stderr


def test_sentences_of_the_parser() -> None:
    guess = explain_usage_error("No such option: --blocs (Possible options: --blocks, --minutes)", "pgstrata run")
    assert guess.message == "no such option: --blocs"
    assert guess.hint == "did you mean --blocks, --minutes? pgstrata run --help lists all"
    renamed = explain_usage_error("No such option: --to", "pgstrata export")
    assert renamed.hint == "it is --out FOLDER now; pgstrata export --help lists all"
