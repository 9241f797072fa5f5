"""What does a trial of a large fleet cost its coordinator, and does its memory stay as it is?

    python benches/bench_fleet.py [--hosts 1000] [--trials 100000] [--workers 2]

Simulated hosts on the workers of a Dask cluster of this machine, over TLS, with the scheduler in this process:
sessions, trials and their files go the way of real ones, and the trials are those of PGSTRATA_FAKE=1, with seconds of
2 s. The overhead is the processor time of this process for a trial, the scheduler of Dask and the record included;
memory is that of this process after a tenth of the rounds and at the end. Bounds: 5 ms a trial, and 10 % more memory.
A line after each round says how it goes. On two idle cores the full size takes about a quarter of an hour.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgstrata.analyze.campaign.hosts_policy import HostsPolicy
from pgstrata.analyze.campaign.metrics import Observer
from pgstrata.fleet.cluster_backend import described_workers
from pgstrata.fleet.clusters import connected
from pgstrata.fleet.messages import SessionAsked
from pgstrata.fleet.opening import Machine, opened_sessions
from pgstrata.record.decision import Decision, Observation
from pgstrata.record.reader import TrialData
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.dask_cluster import DaskCluster
from pgstrata.trial.events import silent
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.scheduler import run_campaign

STACKS = ("ext4", "xfs")
OVERHEAD_MS = 5.0
GROWTH = 1.10


def memory_bytes() -> int:
    """What this process holds now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@dataclass
class Rounds:
    """The policy of the campaign, and what was seen between its rounds."""

    inner: HostsPolicy
    after: int
    trials: int
    """Of a round."""
    began_s: float = 0.0
    early_bytes: int = 0
    deciding_s: float = 0.0
    looking_s: float = 0.0
    """What this bench itself took, which is no overhead: to count memory collects garbage."""

    def decide(self, observations: Sequence[Observation], rounds_done: int, elapsed_s: float) -> Decision:
        began_s = time.process_time()
        if rounds_done == 0:
            self.began_s = began_s
        else:
            self.tell(rounds_done)
        if rounds_done == self.after:
            self.early_bytes = memory_bytes()
        self.looking_s += time.process_time() - began_s
        began_s = time.process_time()
        decision = self.inner.decide(observations, rounds_done, elapsed_s)
        self.deciding_s += time.process_time() - began_s
        return decision

    @property
    def spent_s(self) -> float:
        """Processor time of the coordinator so far."""
        return time.process_time() - self.began_s - self.looking_s

    def tell(self, rounds_done: int) -> None:
        """How it goes, while it goes on."""
        done, spent_s = rounds_done * self.trials, self.spent_s
        print(f"{done} trials: {1000 * spent_s / done:.2f} ms a trial, {memory_bytes() / 1e6:.0f} MB", flush=True)


@dataclass
class Seen:
    """The observations of the campaign, and the processor time that they take."""

    inner: Observer = field(default_factory=lambda: Observer("tps"))
    processor_s: float = 0.0

    def __call__(self, trials: Sequence[TrialData]) -> Sequence[Observation]:
        began_s = time.process_time()
        found = self.inner(trials)
        self.processor_s += time.process_time() - began_s
        return found


@dataclass(frozen=True)
class Figures:
    trials: int
    whole_s: float
    processor_s: float
    deciding_s: float
    observing_s: float
    early_bytes: int
    late_bytes: int


def campaign_of(rounds: int) -> Campaign:
    return Campaign.model_validate(
        {
            "name": "fleet",
            "stacks": [{"name": name, "data": {"fs": {"kind": name}}} for name in STACKS],
            "hosts": ["dask:local"],
            "workload": {"scale": 1, "clients": 2, "duration": 2},
            "runs": {"blocks": rounds},
        }
    )


def measure(folder: Path, hosts: int, trials: int, workers: int) -> Figures:
    rounds = max(2, trials // (hosts * len(STACKS)))
    campaign, interruption = campaign_of(rounds), Interruption()

    def asked(host: str) -> SessionAsked:
        return SessionAsked(token="bench", host=host, campaign=campaign, fake=True)

    policy, seen = Rounds(HostsPolicy.of(campaign, STACKS), max(1, rounds // 10), hosts * len(STACKS)), Seen()
    with (
        connected(DaskCluster(local=workers)) as client,
        CampaignDirectory.create_or_open(folder / "out", campaign) as directory,
    ):
        workers_found = described_workers(client)
        addresses = sorted(workers_found)
        named = [f"host-{number:05d}" for number in range(hosts)]
        machines = {name: Machine(name, name, (addresses[n % len(addresses)],)) for n, name in enumerate(named)}
        with opened_sessions(client, workers_found, machines, asked, directory, silent, interruption) as (work, far):
            began_s = time.monotonic()
            run_campaign(
                campaign, directory, far, policy, silent, observe=seen, interruption=interruption, executor=work
            )
            whole_s, processor_s = time.monotonic() - began_s, policy.spent_s
            late_bytes = memory_bytes()
    done = rounds * hosts * len(STACKS)
    return Figures(done, whole_s, processor_s, policy.deciding_s, seen.processor_s, policy.early_bytes, late_bytes)


def main() -> int:
    """Prints figure against bound; 1 when a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="pgstrata-bench-") as name:  # no wait for a disk
        os.environ["TMPDIR"] = name  # of the workers, too
        found = measure(Path(name), asked.hosts, asked.trials, asked.workers)
    each_ms = 1000 / found.trials
    overhead_ms = each_ms * found.processor_s
    growth = found.late_bytes / found.early_bytes
    print(f"{found.trials} trials on {asked.hosts} simulated hosts, {asked.workers} workers: {found.whole_s:.0f} s")
    print(f"coordinator: {overhead_ms:.2f} ms of processor time a trial   bound {OVERHEAD_MS:.0f} ms")
    print(f"  of that observing {each_ms * found.observing_s:.2f} ms, deciding {each_ms * found.deciding_s:.2f} ms")
    print(
        f"memory: {found.early_bytes / 1e6:.0f} MB after a tenth, {found.late_bytes / 1e6:.0f} MB at the end: "
        f"{growth:.2f} times   bound {GROWTH:.2f}"
    )
    return 0 if overhead_ms <= OVERHEAD_MS and growth <= GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
