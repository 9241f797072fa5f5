"""pgbench -l logs: exact percentiles of a run and its seconds, against COPY into PostgreSQL and percentile_cont.

    .venv/bin/python benches/bench_logs.py [--millions 10] [--workers 2]

PostgreSQL runs with its default settings and an ordinary table, as tools that load logs into a database leave it.
Both read the same file in the same run and must agree; prints transactions a second, peak memory and the ratio. Then
the parts of the same file are read by processes, as `import pgbench --workers N` does: they must agree, too. Bound:
10 times as fast as COPY and percentile_cont. Exit code 1 where it does not hold.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from pgstrata.fleet.work import opened_work
from pgstrata.host.local import LocalHost
from pgstrata.importers.pgbench_files import log_parts, read_part
from pgstrata.postgres.binaries import choose, discover
from pgstrata.postgres.server import Server, ServerDirectories
from pgstrata.postgres.user import readable_installation, run_user
from pgstrata.spec.stack import Postgres
from pgstrata.workload.pgbench_logs import LogSummary, merged, parse_summary, summarise_logs

BOUND_RATIO = 10.0
TPS = 25_000
START_S = 1_700_000_000
QUERIES = (
    "create table log(client int, number int, latency_us bigint, script int, epoch_s bigint, epoch_us int)",
    "copy log from '{path}' with (delimiter ' ')",
    "select count(*) from (select epoch_s, count(*) from log group by epoch_s) s",
)
RUN = "select percentile_cont(array[0.5,0.9,0.95,0.99,0.999]) within group (order by latency_us) as p from log"


def write_log(path: Path, rows: int) -> None:
    """A log of `rows` transactions with lognormal latencies, as one thread of pgbench would write it."""
    rng = np.random.default_rng(1)
    with pa.csv.CSVWriter(
        path,
        pa.schema([(name, pa.int64()) for name in ("c", "n", "us", "s", "t", "tu")]),
        write_options=pa.csv.WriteOptions(include_header=False, delimiter=" "),
    ) as writer:
        for first in range(0, rows, 1_000_000):
            index = np.arange(first, min(first + 1_000_000, rows))
            latency_us = rng.lognormal(7, 0.8, index.size).astype(np.int64)
            columns = [index % 32, index // 32, latency_us, index * 0, START_S + index // TPS, index % 1_000_000]
            writer.write_table(pa.table([pa.array(c) for c in columns], names=["c", "n", "us", "s", "t", "tu"]))


def time_postgres(path: Path, folder: Path) -> tuple[float, list[float]]:
    """Seconds for COPY and percentiles per second and per run; the percentiles of the run in microseconds."""
    host = LocalHost()
    user = run_user(host)
    installation = readable_installation(host, choose(discover(host), Postgres()), user)
    server = Server(
        host, installation, user, ServerDirectories(data_directory=str(folder / "data")), marker="bench-logs"
    )
    server.init()
    server.configure({})
    server.start()
    try:
        started = time.monotonic()
        for query in QUERIES:
            server.execute(query.format(path=path), timeout_s=3600)
        percentiles = server.sql(RUN, timeout_s=3600)[0]["p"]
        return time.monotonic() - started, percentiles
    finally:
        server.stop()
        host.remove(server.run_directory)


def read_by(workers: int, path: Path) -> tuple[float, LogSummary]:
    """Seconds for the parts of a log, without the start of the processes that read them."""
    with opened_work(workers) as executor:
        for future in [executor.submit(read_part, *part) for part in log_parts([path], open_loop=False)[:workers]]:
            future.result()
        started = time.monotonic()
        parts = [executor.submit(read_part, *part) for part in log_parts([path], open_loop=False)]
        whole = merged(parse_summary(part.result()) for part in parts)
        return time.monotonic() - started, whole


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    rows = given.millions * 1_000_000
    with tempfile.TemporaryDirectory(prefix="pgstrata-bench-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        path = folder / "pgbench_log.1"
        write_log(path, rows)
        path.read_bytes()
        started = time.monotonic()
        summary = summarise_logs([path])
        ours_s = time.monotonic() - started
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        split = {workers: read_by(workers, path) for workers in (1, given.workers)}
        postgres_s, theirs_us = time_postgres(path, folder)
    ours_us = summary.histogram.quantiles_us((0.5, 0.9, 0.95, 0.99, 0.999))
    if not np.allclose(ours_us, theirs_us):
        raise SystemExit(f"the percentiles differ: {ours_us} here, {theirs_us} by PostgreSQL")
    for _, other in split.values():
        if (other.seconds, other.percentiles_ms) != (split[1][1].seconds, summary.percentiles_ms):
            raise SystemExit("parts of the log say something else than the whole")
    print(f"transactions            {rows:>14,}")
    print(f"pgstrata                {rows / ours_s:>14,.0f} transactions/s ({ours_s:.2f} s)")
    print(f"COPY + percentile_cont  {rows / postgres_s:>14,.0f} transactions/s ({postgres_s:.2f} s)")
    ratio = postgres_s / ours_s
    holds = ratio >= BOUND_RATIO
    print(f"ratio                   {ratio:>14.1f} (>= {BOUND_RATIO:.0f}: {'holds' if holds else 'DOES NOT HOLD'})")
    print(f"peak memory             {peak_mib:>14,.0f} MiB")
    for workers, (took_s, _) in split.items():
        print(f"parts, workers: {workers:<8}{rows / took_s:>14,.0f} transactions/s ({took_s:.2f} s)")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
