"""Starts the probes beside a workload, and stops them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgstrata.errors import TrialError
from pgstrata.host.protocol import Command, Host, Process, marked
from pgstrata.probe.postgres import FIRST_WITHIN_S, render_probe_script

SAMPLES = "samples.jsonl"
POSTGRES = "postgres.jsonl"

PATIENCE_S = FIRST_WITHIN_S + 20.0

_SAMPLER = Path(__file__).with_name("sampler.py")
_LONGEST_S = 30 * 24 * 3600.0


@dataclass(frozen=True)
class Probes:
    """Running probes. Their output is in `directory` on the host: SAMPLES, POSTGRES and *.err."""

    host: Host
    directory: str
    processes: tuple[tuple[str, Process], ...]

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name: `samples`, `postgres`."""
        return {name: process.pid for name, process in self.processes}

    def stop(self) -> None:
        """Ends the probes; raises TrialError when one of them had already ended by itself."""
        died = [name for name, process in self.processes if process.poll() is not None]
        for _, process in self.processes:
            process.stop()
        for name in died:
            raise self.failure(name, "ended before the run did")

    def failure(self, name: str, what: str) -> TrialError:
        said = self.host.read_text(f"{self.directory}/{name}.err").strip()
        return TrialError(f"the probe {name} on {self.host.name} {what}: {said[-500:] or 'it said nothing'}")


DEVICES_AT = 4
"""The position of the devices' numbers among the arguments of the host probe."""


def plan_host_probe(
    devices: str,
    *,
    data_directory: str = "",
    sockets: str = "",
    nodes: Mapping[str, str] | None = None,
    watcher: str | None = None,
    marker: str = "",
) -> Command:
    """Samples the host and the devices (`major:minor`, commas between) as OS user `watcher`: all it reads is open to
    everybody. The server on `data_directory` and the pgbench that connects by `sockets` are told apart by these, and
    the servers of a cluster by the data directories of its `nodes`."""
    programs = [f"--server={data_directory}"] if data_directory else []
    programs += [f"--client={sockets}"] if sockets else []
    programs += [f"--node={name}={directory}" for name, directory in (nodes or {}).items()]
    return Command(
        ("python3", "-I", "-", "--devices", devices, *programs),
        timeout_s=_LONGEST_S,
        stdin=_SAMPLER.read_text(encoding="utf-8"),
        user=watcher,
        env=marked(marker),
        cwd="/",
    )


def plan_postgres_probe(
    psql: Sequence[str], major: int, *, standbys: bool = False, user: str | None = None, marker: str = ""
) -> Command:
    """Samples the server: `psql` are the arguments that connect to the database of the workload (`Server.psql`),
    `major` is the server's, `user` the OS user that may connect; with `standbys` also how far each of them is."""
    script = render_probe_script(major, standbys=standbys)
    return Command(tuple(psql), timeout_s=_LONGEST_S, stdin=script, user=user, env=marked(marker), cwd="/")


def start_probes(host: Host, directory: str, host_probe: Command, postgres_probe: Command | None = None) -> Probes:
    """Starts the probes and waits for their first samples.

    Output goes to files in `directory` (an existing folder on the host that is the caller's alone, not on the devices
    that are watched).
    """
    begun = host.start(host_probe, stdout=f"{directory}/{SAMPLES}", stderr=f"{directory}/samples.err")
    processes = [("samples", begun)]
    if postgres_probe is not None:
        begun = host.start(postgres_probe, stdout=f"{directory}/{POSTGRES}", stderr=f"{directory}/postgres.err")
        processes.append(("postgres", begun))
    probes = Probes(host, directory, tuple(processes))
    try:
        _wait_for_first_lines(probes)
    except BaseException:
        for _, process in processes:
            process.stop()
        raise
    return probes


def _wait_for_first_lines(probes: Probes) -> None:
    """Wait for a sample of each from before the run, which counters are compared with."""
    deadline_s = time.monotonic() + PATIENCE_S
    waiting = dict(probes.processes)
    while waiting:
        for name, process in list(waiting.items()):
            status = probes.host.status(f"{probes.directory}/{name}.jsonl")
            if status is not None and status.size_bytes > 0:
                del waiting[name]
            elif process.poll() is not None or time.monotonic() > deadline_s:
                raise probes.failure(name, "gave no sample")
        time.sleep(0.02)
