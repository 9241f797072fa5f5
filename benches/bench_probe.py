"""What the probes cost: CPU time of the sampler, of psql and of its server process, beside a busy pgbench.

Run: python benches/bench_probe.py [--seconds 30] [--major 18]

Prints the share of one core that each takes. Bound: 1 % for all together; exit code 1 where they take more.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Host
from pgstrata.postgres.binaries import choose, discover
from pgstrata.postgres.server import Server, ServerDirectories
from pgstrata.postgres.user import readable_installation, run_user
from pgstrata.probe.parse import parse_lines
from pgstrata.probe.postgres import APPLICATION_NAME
from pgstrata.probe.start import POSTGRES, SAMPLES, Probes, plan_host_probe, plan_postgres_probe, start_probes
from pgstrata.spec.stack import Postgres
from pgstrata.spec.workload import Cell, Workload
from pgstrata.workload.pgbench import plan_init, plan_run
from pgstrata.workload.pgbench_output import parse_result
from pgstrata.workload.target import Target

BOUND = 0.01
"""The promise: at most 1 % of one core."""


def cpu_s(pid: int) -> float:
    """CPU time of a process, user and system (/proc/PID/schedstat counts nanoseconds)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def devices_of(path: Path) -> list[tuple[int, int]]:
    """The device below a path, and one loop device, as a stack of two would have."""
    number = path.stat().st_dev
    return [(os.major(number), os.minor(number)), (7, 0)]


def measure(server: Server, folder: Path, seconds: int) -> tuple[dict[str, float], float, int]:
    """CPU seconds by part, throughput of pgbench meanwhile, and the number of samples."""
    host, user = server.host, server.user
    target = Target(
        server.installation.client_directory, server.installation.client_major,
        server.run_directory, server.port, user,
    )  # fmt: skip
    host.run(plan_init(target, 10))
    psql = server.psql()
    numbers = ",".join(f"{major}:{minor}" for major, minor in devices_of(folder))
    postgres_probe = plan_postgres_probe(psql, server.installation.major, user=user)
    probes = start_probes(host, str(folder), plan_host_probe(numbers), postgres_probe)
    try:
        pids = {**probes.pids, "server process": backend_pid(server)}
        run = plan_run(target, Cell(script="tpcb-like", scale=10, clients=4), Workload(duration=seconds), seed=1)
        before = {name: cpu_s(pid) for name, pid in pids.items()}
        began = time.monotonic()
        result = parse_result(host.run(run).stdout)
        took_s = time.monotonic() - began
        after = {name: cpu_s(pid) for name, pid in pids.items()}
    finally:
        stop(probes)
    shares = {name: (after[name] - before[name]) / took_s for name in pids}
    return shares, result.tps, len(parse_lines((folder / SAMPLES).read_text()))


def backend_pid(server: Server) -> int:
    query = "SELECT pid FROM pg_stat_activity WHERE application_name = :'name'"
    return int(server.value(query, name=APPLICATION_NAME))


def stop(probes: Probes) -> None:
    probes.stop()
    assert (Path(probes.directory) / POSTGRES).stat().st_size > 0


def run(host: Host, major: int | None, seconds: int) -> dict[str, float]:
    user = run_user(host)
    installation = readable_installation(host, choose(discover(host), Postgres(major=major)), user)
    with tempfile.TemporaryDirectory(prefix="pgstrata-bench-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o711)
        server = Server(host, installation, user, ServerDirectories(f"{folder}/data"))
        server.init()
        server.configure({"fsync": "off"})
        server.start()
        try:
            shares, tps, samples = measure(server, folder, seconds)
        finally:
            server.crash_stop()
            host.remove(server.run_directory)
    print(f"PostgreSQL {installation.version}, {seconds} s, {samples} samples, pgbench beside it at {tps:.0f} tps")
    return shares


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--major", type=int)
    arguments = parser.parse_args()
    shares = run(LocalHost(), arguments.major, arguments.seconds)
    names = {"samples": "sampler", "postgres": "psql", "server process": "its server process"}
    for part, share in shares.items():
        print(f"{names[part]:20s} {share:8.3%} of one core")
    total = sum(shares.values())
    print(f"{'all probes':20s} {total:8.3%} of one core (bound {BOUND:.0%}): {'ok' if total <= BOUND else 'TOO MUCH'}")
    return 0 if total <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
