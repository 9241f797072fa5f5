"""Output and logs of real pgbench in all modes: an import has the figures that the per-transaction log gives."""

from __future__ import annotations

import random
import subprocess
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import pytest
from servers import ready

from pgstrata.errors import UsageError
from pgstrata.importers.pgbench_files import import_pgbench
from pgstrata.postgres.server import Server
from pgstrata.record.reader import read
from pgstrata.trial.scheduler import Inline

CONFLICT = """BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT sum(bbalance) FROM pgbench_branches;
UPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 1;
END;
"""
TALKS = "DO $$ BEGIN RAISE NOTICE E'one\\ntwo'; RAISE INFO 'three'; END $$;\n"
SCRIPTS = {"one.sql": "SELECT 1;\n", "two.sql": "SELECT abalance FROM pgbench_accounts WHERE aid = 1;\n",
           "conflict.sql": CONFLICT, "talks.sql": TALKS}  # fmt: skip

MODES: dict[str, tuple[str, ...]] = {
    "statements": ("-r", "-P", "1"),
    "interval": ("-P", "2"),
    "epochs": ("-P", "1", "--progress-timestamp"),
    "rate": ("-R", "100", "-P", "1"),
    "rate and limit": ("-R", "100", "-L", "1", "-P", "1"),
    "connections": ("-C", "-P", "1"),
    "prepared": ("-M", "prepared", "-r"),
    "extended": ("-M", "extended", "-S"),
    "transactions": ("-t", "600"),
    "mix": ("-f", "one.sql@9", "-f", "two.sql@1", "-r"),
    "built-in mix": ("-b", "select-only@8", "-b", "simple-update@2", "-P", "1"),
    "a script that talks": ("-f", "talks.sql"),
}
WITH_TRIES: dict[str, tuple[str, ...]] = {
    "failures": ("-f", "conflict.sql", "-r", "-P", "1"),
    "retries": ("-f", "conflict.sql", "--max-tries=5", "-r", "--failures-detailed", "-P", "1"),
}


@dataclass(frozen=True)
class Counted:
    """A per-transaction log, counted line by line."""

    transactions: int
    latency_avg_ms: float
    words: int
    duration_s: float


def counted(logs: list[Path]) -> Counted:
    latencies, words, begins_us, ends_us = [], 0, [], []
    for log in logs:
        for number, line in enumerate(log.read_text().splitlines()):
            fields = line.split()
            end_us = int(fields[4]) * 1_000_000 + int(fields[5])
            ends_us.append(end_us)
            if number == 0:
                begins_us.append(end_us - (int(fields[2]) if fields[2].isdigit() else 0))
            if fields[2].isdigit():
                latencies.append(int(fields[2]))
            else:
                words += 1
    average_ms = sum(latencies) / max(1, len(latencies)) / 1000
    return Counted(len(latencies), average_ms, words, (max(ends_us) - min(begins_us)) / 1e6)


def pgbench(server: Server, folder: Path, *options: str) -> str:
    """What pgbench printed, standard error first; any exit code."""
    where = ("-h", server.run_directory, "-p", str(server.port), "-U", "postgres")
    words = [f"{server.installation.client_directory}/pgbench", *where, *options, "postgres"]
    done = subprocess.run(
        words, cwd=folder, user=server.user, capture_output=True, text=True, timeout=60, extra_groups=[], check=False
    )
    return done.stderr + done.stdout


def run_pgbench(server: Server, folder: Path, *options: str) -> tuple[Path, list[Path]]:
    """Output with progress in one file, and the logs."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text)
    bounded = () if {"-t", "-T"} & set(options) else ("-T", "2" if {"-P", "-R"} & set(options) else "1")
    output = folder / "run.out"
    output.write_text(pgbench(server, folder, "-c", "4", "-j", "2", "-n", "-l", *bounded, *options))
    return output, sorted(folder.glob("pgbench_log.*"))


@pytest.fixture
def loaded(server: Server, folder: Path) -> Server:
    ready(server)
    said = pgbench(server, folder, "-i")
    assert "done in" in said
    return server


def test_every_mode_has_the_figures_of_its_log(loaded: Server, folder: Path) -> None:
    modes = MODES | (WITH_TRIES if loaded.installation.major >= 15 else {})
    for number, (mode, options) in enumerate(modes.items()):
        place = folder / f"run{number}"
        output, logs = run_pgbench(loaded, place, *options)
        truth = counted(logs)
        import_pgbench([f"x={output}", *(f"x={log}" for log in logs)], place / "out", Inline())
        (cell,) = read(place / "out").cells()
        found = cell.result
        assert found.transactions == truth.transactions, mode
        assert found.failed + found.skipped == truth.words, mode
        assert found.latency_avg_ms == pytest.approx(truth.latency_avg_ms, abs=0.002), mode
        import_pgbench([f"x={log}" for log in logs], place / "log", Inline())
        (from_log,) = read(place / "log").cells()
        assert from_log.result.transactions == truth.transactions, mode
        assert from_log.result.latency_avg_ms == pytest.approx(truth.latency_avg_ms, abs=0.001), mode
        assert from_log.result.tps == pytest.approx(truth.transactions / truth.duration_s, rel=1e-3), mode
        assert found.tps, mode
        assert truth.duration_s < found.transactions / found.tps + 0.01 or mode == "connections", mode


def test_a_sample_has_the_figures_of_its_lines(loaded: Server, folder: Path) -> None:
    output, logs = run_pgbench(loaded, folder / "sampled", "-S", "--sampling-rate=0.2", "-P", "1")
    truth = counted(logs)
    import_pgbench([f"x={log}" for log in logs], folder / "sampled/out", Inline())
    (cell,) = read(folder / "sampled/out").cells()
    # The share is estimated from the lines; 5 standard deviations of a sample, and the rounding of a share.
    spread = 5 * sqrt(0.8 / truth.transactions) + 0.01
    import_pgbench([f"x={output}"], folder / "sampled/whole", Inline())
    (whole,) = read(folder / "sampled/whole").cells()
    assert cell.result.transactions == pytest.approx(whole.result.transactions, rel=spread)
    assert cell.result.latency_avg_ms == pytest.approx(truth.latency_avg_ms, abs=0.001)


def test_an_aggregate_has_the_figures_of_its_whole_intervals(loaded: Server, folder: Path) -> None:
    output, logs = run_pgbench(loaded, folder / "sums", "-S", "-T", "5", "--aggregate-interval=1")
    lines = [tuple(map(int, line.split()[:3])) for log in logs for line in log.read_text().splitlines()]
    last = max(start for start, _, _ in lines)
    transactions = sum(count for start, count, _ in lines if start < last)
    latency_us = sum(latency for start, _, latency in lines if start < last)
    import_pgbench([f"x={log}" for log in logs], folder / "sums/out", Inline())
    (sums,) = read(folder / "sums/out").cells()
    assert sums.result.transactions == transactions
    assert sums.result.latency_avg_ms == pytest.approx(latency_us / transactions / 1000, abs=0.001)
    import_pgbench([f"x={output}"], folder / "sums/whole", Inline())
    (whole,) = read(folder / "sums/whole").cells()
    assert sums.result.transactions < whole.result.transactions


def test_a_run_whose_clients_were_lost_is_not_taken_for_one(loaded: Server, folder: Path) -> None:
    place = folder / "aborted"
    place.mkdir()
    (place / "bad.sql").write_text("SELECT 1 / (random() > 0.01)::int;\n")
    output, _ = run_pgbench(loaded, place, "-f", "bad.sql")
    with pytest.raises(UsageError, match=r"has no other run|not complete"):
        import_pgbench([f"x={output}"], place / "out", Inline())


def test_cut_texts_are_refused_or_have_the_same_figures(loaded: Server, folder: Path) -> None:
    output, _ = run_pgbench(loaded, folder / "cut", "-S", "-P", "1", "-r")
    text, rng = output.read_text(), random.Random(1)
    import_pgbench([f"x={output}"], folder / "cut/out", Inline())
    (whole,) = read(folder / "cut/out").cells()
    refused = 0
    for number in range(60):
        output.write_text(text[: rng.randrange(len(text))])
        try:
            import_pgbench([f"x={output}"], folder / f"cut/{number}", Inline())
        except UsageError:
            refused += 1
            continue
        (cell,) = read(folder / f"cut/{number}").cells()
        assert cell.result.transactions == whole.result.transactions
        assert f"{whole.result.tps:.6f}".startswith(f"{cell.result.tps:.6f}".rstrip("0").rstrip("."))
    assert refused > 20
