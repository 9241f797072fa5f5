"""Results of pgbench in the texts that people keep, and what of such runs may be compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pgstrata.analyze.campaign.judge import judge
from pgstrata.errors import PgstrataError, UsageError
from pgstrata.importers.pgbench_files import import_pgbench
from pgstrata.importers.pgbench_text import read_pgbench_text
from pgstrata.importers.source import decode_text
from pgstrata.record.reader import CampaignData, read
from pgstrata.trial.scheduler import Inline
from pgstrata.workload.pgbench_output import PgbenchOutputError

PROGRESS = "progress: 1.0 s, 1000.0 tps, lat 8.000 ms stddev 1.000, 0 failed\n"


def output(
    tps: float = 1000.0,
    *,
    first: str = "pgbench (16.4)\n",
    mode: str = "simple",
    more: str = "",
    jobs: int = 2,
    late: str = "",
    kind: str = "without initial connection time",
    duration_s: int = 60,
) -> str:
    """A result of 60 s; `more` stands behind the scale, `late` behind the latency."""
    return (
        f"{first}transaction type: <builtin: TPC-B (sort of)>\nscaling factor: 10\n{more}query mode: {mode}\n"
        f"number of clients: 8\nnumber of threads: {jobs}\nmaximum number of tries: 1\nduration: {duration_s} s\n"
        f"number of transactions actually processed: {int(tps * duration_s)}\n"
        "number of failed transactions: 0 (0.000%)\n"
        f"latency average = {8000 / tps:.3f} ms\n{late}initial connection time = 12.000 ms\ntps = {tps:.6f} ({kind})\n"
    )


def prefixed(prefix: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in output().splitlines())


def stamped() -> str:
    lines = output().splitlines()
    return "".join(f"2026-01-01T10:00:{n:02d}.{n * 7919 % 1000:03d}Z {line}\n" for n, line in enumerate(lines))


SURROUNDINGS: dict[str, tuple[str, int]] = {
    "nothing": (output(), 0),
    "prompt": ("$ pgbench -c 8 bench\n" + output() + "$\n", 2),
    "set -x": ("+ pgbench -c 8 -j 2 -T 60 bench\n" + output(), 1),
    "date": ("Thu Nov 26 12:27:24 UTC 2026\n" + output(), 1),
    "nohup": ("nohup: ignoring input\n" + output(), 1),
    "time": (output() + "\nreal\t1m0.123s\nuser\t0m3.1s\nsys\t0m2.0s\n", 3),
    "GNU time": (output() + "0.01user 0.02system 1:00.10elapsed 0%CPU (0avgtext+0avgdata 8192maxresident)k\n", 1),
    "exit code": (output() + "exit status: 0\n", 1),
    "fence": ("```\n" + output() + "```\n", 2),
    "quotation": (prefixed("> "), 0),
    "indented": (prefixed("    "), 0),
    "tab": (prefixed("\t"), 0),
    "docker compose": (prefixed("pgbench-0  | "), 0),
    "kubectl --prefix": (prefixed("[pod/pgbench-x7/main] "), 0),
    "docker logs --timestamps": (stamped(), 0),
    "server log": ("2026-01-01 10:00:00 UTC LOG:  checkpoint starting: time\n" + output(), 1),
    "psql": ("psql (16.4)\n" + output(), 1),
    "colour": (output().replace("tps =", "\x1b[32mtps\x1b[0m ="), 0),
    "carriage returns": (output().replace("\n", "\r\n"), 0),
    "vacuum": ("pgbench (16.4)\nstarting vacuum...end.\n" + output(first=""), 0),
    "progress before": (PROGRESS + output(), 0),
    "progress behind": (output() + PROGRESS, 0),
    "nothing of a version": (output(first=""), 0),
    "init": ("dropping old tables...\ncreating tables...\ndone in 0.16 s (vacuum 0.04 s).\n" + output(), 3),
    "journald": (prefixed("Nov 26 10:00:00 db1 pgbench[4711]: "), 0),
    "journald with microseconds": (prefixed("2026-11-26T10:00:00.123456+0000 db1 pgbench[4711]: "), 0),
    "kubectl --timestamps": (prefixed("2026-11-26T10:00:00.123456789Z "), 0),
    "stern": (prefixed("bench-0 pgbench "), 0),
    "ansible": (prefixed('        "'), 0),
    "diff": (prefixed("+"), 0),
    "quotation of a quotation": (prefixed("> > "), 0),
    "comment": (prefixed("# "), 0),
    "blanks behind": (output().replace("\n", "   \n"), 0),
    "carriage return alone": (output().replace("\n", "\r"), 0),
    "page": ("<html><body><pre>\n" + output() + "</pre></body></html>\n", 2),
    "form feed": ("\x0c" + output(), 0),
    "no end of line": (output().rstrip("\n"), 0),
    "git log": ("commit 1234567\nAuthor: A <a@b>\n\n    numbers\n\n" + output(), 3),
}


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_lines_around_a_result_are_left_out_and_counted(name: str) -> None:
    text, left_out = SURROUNDINGS[name]
    found = read_pgbench_text(text)
    (run,) = found.runs
    assert (run.result.tps, run.result.transactions, run.result.clients) == (1000.0, 60000, 8)
    assert len(found.left_out) == left_out
    assert len(run.progress.rows) == ("progress" in name)


NO_RESULT = {
    "translated": output().replace("latency average =", "mittlere Latenz ="),
    "no transaction": output(tps=1e-9).replace("tps = 0.000000", "tps = 0.000000"),
    "infinite": output().replace("tps = 1000.000000", "tps = inf"),
    "not a number": output().replace("tps = 1000.000000", "tps = nan"),
    "negative": output().replace("tps = 1000.000000", "tps = -1000.000000"),
    "decimal comma": output().replace("tps = 1000.000000", "tps = 1000,000000"),
    "cut": output()[:-40],
    "cut in the middle": output()[: len(output()) // 2],
    "empty": "",
    "blank": "\n \n",
    "zeroes": "\x00" * 64,
    "progress alone": PROGRESS * 5,
    "another program": "fio-3.33\nread: IOPS=1000, BW=4000KiB/s\n",
}


@pytest.mark.parametrize("name", NO_RESULT)
def test_what_is_no_result_gives_no_figure(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.out").write_text(NO_RESULT[name], encoding="utf-8")
    (tmp_path / "b.out").write_text(output(), encoding="utf-8")
    with pytest.raises(PgstrataError) as caught:
        import_pgbench([f"a={tmp_path / 'a.out'}", f"b={tmp_path / 'b.out'}"], tmp_path / "out", Inline())
    assert "a.out" in caught.value.message
    assert caught.value.hint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text.encode("utf-16"),
        lambda text: text.encode("utf-16-le"),
        lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
        lambda text: text.encode("utf-8-sig"),
    ],
    ids=["utf-16 with mark", "utf-16-le", "utf-16-be", "utf-8 with mark"],
)
def test_what_windows_writes_is_read(encode: Callable[[str], bytes]) -> None:
    (run,) = read_pgbench_text(decode_text(encode(output()))).runs
    assert (run.result.version, run.result.tps) == ("16.4", 1000.0)


def test_several_results_are_several_runs_each_with_its_progress() -> None:
    loop = "".join(PROGRESS.replace("1000.0 tps", f"{tps}.0 tps") + output(tps) for tps in (900, 1000, 1100))
    runs = read_pgbench_text(loop).runs
    assert [(r.result.tps, r.progress.rows[0].tps) for r in runs] == [(900, 900), (1000, 1000), (1100, 1100)]
    behind = "".join(output(tps) + PROGRESS.replace("1000.0 tps", f"{tps}.0 tps") for tps in (900, 1100))
    assert [(r.result.tps, r.progress.rows[0].tps) for r in read_pgbench_text(behind).runs] == [
        (900, 900),
        (1100, 1100),
    ]


def test_a_line_within_a_result_that_is_not_understood_is_named_with_its_number() -> None:
    text = "$ pgbench\n" + output().replace("duration: 60 s", "duration: about a minute")
    with pytest.raises(PgbenchOutputError, match=r"line 9 is within a result of pgbench .* 'duration: about a minute'"):
        read_pgbench_text(text)
    with pytest.raises(PgbenchOutputError, match=r"the result at line 2: .* not complete: no tps"):
        read_pgbench_text(output().split("tps =")[0])
    with pytest.raises(PgbenchOutputError, match="no result of pgbench"):
        read_pgbench_text("hello\n")


OLD = """starting vacuum...end.
transaction type: TPC-B (sort of)
scaling factor: 50
query mode: prepared
number of clients: 10
number of threads: 2
number of transactions per client: 1000
number of transactions actually processed: 10000/10000
latency average: 209.443 ms
tps = 47.7 (including connections establishing)
tps = 47.8 (excluding connections establishing)
statement latencies in milliseconds:
\t0.002\t\\setrandom k 1 100000
\t6.1\tselect f(:id);
"""


def test_old_and_new_majors() -> None:
    (old,) = read_pgbench_text(OLD).runs
    assert (old.result.tps, old.result.latency_avg_ms, old.result.version) == (47.8, 209.443, None)
    new = output(first="pgbench (19.0)\n", late="latency stddev = 2.441 ms\n").replace(
        "(0.000%)\n", "(0.000%)\nnumber of serialization failures: 0 (0.000%)\nnumber of other failures: 3 (0.000%)\n"
    )
    (run,) = read_pgbench_text(new).runs
    assert (run.result.tps, run.result.latency_stddev_ms) == (1000.0, 2.441)


# ---------------------------------------------------------------- which runs compare


def imported(folder: Path, **stacks: list[str]) -> CampaignData:
    """The campaign of these outputs, by stack."""
    sources = []
    for stack, texts in stacks.items():
        for number, text in enumerate(texts):
            file = folder / f"{stack}{number}.out"
            file.write_text(text)
            sources.append(f"{stack}={file}")
    import_pgbench(sources, folder / "out", Inline())
    return read(folder / "out")


def three(tps: float, **kept: object) -> list[str]:
    return [output(tps + n, **kept) for n in (-1.0, 0.0, 1.0)]  # type: ignore[arg-type]


UNLIKE = {
    "protocol": ("simple", "prepared", three(1500, mode="prepared")),
    "partitions": ("no partitions", "8 partitions", three(900, more="partition method: hash\npartitions: 8\n")),
    "connections": (
        "kept connections",
        "a connection for each transaction",
        three(700, kind="including reconnection times"),
    ),
}


@pytest.mark.parametrize("trait", UNLIKE)
def test_runs_that_measured_something_else_are_cells_of_their_own(tmp_path: Path, trait: str) -> None:
    first, second, other = UNLIKE[trait]
    data = imported(tmp_path, ext4=three(1000), xfs=other)
    assert {c.cell.script for c in data.cells()} == {f"tpcb-like, {one}" for one in (first, second)}
    assert not any(pair.verdict in ("better", "worse") for pair in judge(data).comparisons)
    told = {t.facts.told.get(trait, "") for t in data.trials if t.facts is not None}
    assert len(told) == 2


def test_a_rate_limit_makes_another_cell_and_alone_latency_is_compared(tmp_path: Path) -> None:
    limited = three(500, late="rate limit schedule lag: avg 0.300 (max 9.000) ms\n")
    data = imported(tmp_path, ext4=[*three(1000), *limited])
    assert {c.cell.rate_tps for c in data.cells()} == {None, 500.0}
    assert any("3 of 6 runs have a rate limit" in line for line in [data.record.campaign.note])
    (tmp_path / "alone").mkdir()
    alone = imported(tmp_path / "alone", ext4=limited, xfs=limited)
    assert alone.record.campaign.goal.primary == "latency_avg_ms"


def test_another_package_or_server_does_not_forbid_a_comparison(tmp_path: Path) -> None:
    one = three(1100, first="pgbench (16.4 (Debian 16.4-1))\n")
    two = three(1000, first="pgbench (16.4 (Debian 16.4-1.pgdg120+1), server 13.16)\n")
    data = imported(tmp_path, one=one, two=two)
    findings = judge(data)
    assert [s.n for s in findings.stacks] == [3, 3]
    assert findings.ranking[0] == "one"
    assert "differ in version of pgbench" in data.record.campaign.note


def test_threads_duration_and_tries_that_differ_are_told(tmp_path: Path) -> None:
    data = imported(tmp_path, ext4=[output(), output(jobs=4), output(duration_s=300)])
    assert "differ in threads: 2, 4" in data.record.campaign.note
    assert "differ in duration: 300 s, 60 s" in data.record.campaign.note


ABORTED = "pgbench: error: Run was aborted; the above results are incomplete.\n"
LOST = "pgbench: error: client 3 aborted in command 5 (SQL) of script 0; perhaps the backend died while processing\n"


@pytest.mark.parametrize("text", [output() + ABORTED, LOST + output(), LOST.replace("pgbench: error: ", "") + output()])
def test_runs_that_pgbench_calls_incomplete_do_not_count(tmp_path: Path, text: str) -> None:
    data = imported(tmp_path, ext4=[output(), output(1100), text])
    assert len(data.trials) == 2
    (reason,) = data.record.rejected
    assert "run: pgbench says" in reason
    (tmp_path / "only").mkdir()
    with pytest.raises(UsageError, match="stack 'ext4' has no other run"):
        imported(tmp_path / "only", ext4=[text], xfs=[output()])


# ---------------------------------------------------------------- progress intervals


def steady(interval_s: int, missing: tuple[int, ...] = (), stamp_s: int = 0) -> str:
    ends = range(interval_s, 61, interval_s)
    lines = [
        f"progress: {stamp_s + end}.{'000' if stamp_s else '0'} s, {1000 + (end // interval_s) ** 2 % 7}.0 tps, "
        "lat 8.000 ms stddev 1.000, 0 failed\n"
        for end in ends
        if end not in missing
    ]
    return "".join(lines) + output()


@pytest.mark.parametrize("interval_s", [1, 2, 5, 10, 15, 20, 30])
@pytest.mark.parametrize("stamp_s", [0, 1_700_000_000])
def test_the_progress_interval_says_nothing_about_steadiness(tmp_path: Path, interval_s: int, stamp_s: int) -> None:
    findings = judge(imported(tmp_path, a=[steady(interval_s, stamp_s=stamp_s)] * 3, b=[steady(interval_s)] * 3))
    for stack in findings.stacks:
        metrics = {name: metric.estimate for name, metric in stack.metrics.items()}
        assert metrics.get("cv_1s") == (None if interval_s > 1 else pytest.approx(0.002, abs=0.002))
        assert metrics.get("longest_stall_s") in ((None,) if interval_s > 1 else (0.0,))
        assert (metrics.get("cv_15s") is not None) == (15 % interval_s == 0)
    assert not [s for s in findings.cells[0].statements if s.about in ("stalls", "period", "levels")]


def test_a_missing_progress_line_is_a_gap_of_its_length(tmp_path: Path) -> None:
    findings = judge(imported(tmp_path, a=[steady(5, missing=(20, 25))] * 3))
    assert findings.stacks[0].metrics["longest_stall_s"].estimate == 10.0


# ---------------------------------------------------------------- logs


def log(path: Path, *, begin_us: int, every_us: int = 2500, count: int = 4000, keep: int = 1, client: int = 0) -> None:
    """A log of one client with a transaction every `every_us`, of which every `keep`-th is logged."""
    with path.open("w") as file:
        for number in range(1, count + 1):
            end_us = begin_us + number * every_us
            if number % keep == 0:
                file.write(f"{client} {number} {every_us} 0 {end_us // 10**6} {end_us % 10**6}\n")


@pytest.mark.parametrize("offset_us", [0, 100_000, 500_000, 970_000, 999_999])
def test_throughput_of_a_log_does_not_depend_on_where_in_a_second_it_begins(tmp_path: Path, offset_us: int) -> None:
    log(tmp_path / "x.1000", begin_us=1_700_000_000_000_000 + offset_us)
    import_pgbench([f"a={tmp_path / 'x.1000'}"], tmp_path / "out", Inline())
    (cell,) = read(tmp_path / "out").cells()
    assert (cell.result.tps, cell.result.duration_s) == pytest.approx((400.0, 10.0))
    assert all(n in (399.0, 400.0, 401.0) for n in cell.table("progress")["tps"].tolist())
    metrics = judge(read(tmp_path / "out")).stacks[0].metrics
    assert metrics["longest_stall_s"].estimate == 0.0


def test_a_sampled_log_gives_the_throughput_of_all_transactions(tmp_path: Path) -> None:
    log(tmp_path / "s.1", begin_us=1_700_000_000_000_000, keep=10)
    summary = import_pgbench([f"s={tmp_path / 's.1'}"], tmp_path / "out", Inline())
    (cell,) = read(tmp_path / "out").cells()
    assert cell.result.tps == pytest.approx(400.0, rel=0.01)
    assert not cell.has("progress")
    assert any("10 % of the transactions: a sample" in notice for notice in summary.notices)


def test_runs_that_were_appended_to_one_log_are_no_run(tmp_path: Path) -> None:
    """Together they would have the transactions of both, over the time from the first to the second."""
    for run in range(2):
        log(tmp_path / f"{run}.1", begin_us=1_700_000_000_000_000 + run * 3_600_000_000)
    (tmp_path / "x.1").write_text((tmp_path / "0.1").read_text() + (tmp_path / "1.1").read_text())
    with pytest.raises(UsageError, match="more than once: several runs in one log"):
        import_pgbench([f"a={tmp_path / 'x.1'}"], tmp_path / "out", Inline())
    threads = [f"{client}{line[1:]}\n" for client in "01" for line in (tmp_path / "0.1").read_text().splitlines()]
    (tmp_path / "y.1").write_text("".join(threads))
    assert import_pgbench([f"a={tmp_path / 'y.1'}"], tmp_path / "out", Inline()).runs == 1


def test_a_clock_that_was_set_back_gives_no_length(tmp_path: Path) -> None:
    """An hour back in the middle of ten seconds is no run of an hour, nor one of five seconds."""
    log(tmp_path / "x.1", begin_us=1_700_000_000_000_000)
    lines = (tmp_path / "x.1").read_text().splitlines()
    half = len(lines) // 2
    for line in range(half, len(lines)):
        words = lines[line].split()
        lines[line] = " ".join([*words[:4], str(int(words[4]) - 3600), *words[5:]])
    (tmp_path / "x.1").write_text("\n".join(lines) + "\n")
    with pytest.raises(UsageError, match="the clock was set back by 3600 s during the run"):
        import_pgbench([f"a={tmp_path / 'x.1'}"], tmp_path / "out", Inline())


def test_a_latency_below_zero_is_no_latency(tmp_path: Path) -> None:
    log(tmp_path / "x.1", begin_us=1_700_000_000_000_000)
    lines = (tmp_path / "x.1").read_text().splitlines()
    words = lines[6].split()
    lines[6] = " ".join([*words[:2], f"-{words[2]}", *words[3:]])
    (tmp_path / "x.1").write_text("\n".join(lines) + "\n")
    with pytest.raises(UsageError, match=f"line 7 is not a line of a pgbench log: '-{words[2]}' is not a number"):
        import_pgbench([f"a={tmp_path / 'x.1'}"], tmp_path / "out", Inline())


@pytest.mark.parametrize("name", ["plainlog", "ext4_log", "run.2026.log", "pgbench_log", "a.b.c"])
def test_a_log_may_have_any_name(tmp_path: Path, name: str) -> None:
    log(tmp_path / name, begin_us=1_700_000_000_000_000, count=100)
    assert import_pgbench([f"a={tmp_path / name}"], tmp_path / "out", Inline()).runs == 1


def test_threads_of_a_run_are_told_by_the_log_without_a_number(tmp_path: Path) -> None:
    names = ["x.2026.100", "x.2026.200", "y.7", "y.7.1", "y.7.2"]
    for client, name in enumerate(names):
        log(tmp_path / name, begin_us=1_700_000_000_000_000, count=100, client=client)
    summary = import_pgbench([f"a={tmp_path / name}" for name in names], tmp_path / "out", Inline())
    assert summary.runs == 3


def test_words_in_place_of_a_latency_count_as_failed(tmp_path: Path) -> None:
    words = ["failed", "283", "other", "serialization", "deadlock", "skipped", "228"]
    text = "".join(f"0 {n} {word} 0 1795695295 {785000 + 300 * n}\n" for n, word in enumerate(words, 1))
    (tmp_path / "log19.txt").write_text(text)
    import_pgbench([f"a={tmp_path / 'log19.txt'}"], tmp_path / "out", Inline())
    (cell,) = read(tmp_path / "out").cells()
    assert (cell.result.transactions, cell.result.failed, cell.result.skipped) == (2, 4, 1)


def test_an_aggregated_log_is_read_as_intervals(tmp_path: Path) -> None:
    rows = [(1_700_000_000 + 5 * n, 2000 + n % 3, 8000 * 2000, 8000 * 8000 * 2000, 100, 9000) for n in range(13)]
    (tmp_path / "agg.1").write_text("".join(" ".join(map(str, (*row, 0, 0))) + "\n" for row in rows))
    import_pgbench([f"a={tmp_path / 'agg.1'}"], tmp_path / "out", Inline())
    (cell,) = read(tmp_path / "out").cells()
    assert (cell.result.duration_s, cell.result.tps) == pytest.approx((60.0, 400.2), rel=0.001)
    assert cell.result.latency_avg_ms == pytest.approx(8.0, rel=0.001)
    assert cell.result.percentiles_ms == {}
    (tmp_path / "agg.2").write_text(" ".join(map(str, rows[0])) + "\n")
    with pytest.raises(UsageError, match="has 1 interval"):
        import_pgbench([f"a={tmp_path / 'agg.2'}"], tmp_path / "other", Inline())
