"""Machines themselves: a private network, an export of another machine, one that dies, one whose owner was killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench import context, stack_of
from remains import SCRATCH, remains

from built import differences, standing
from pgstrata.errors import PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import HostLost, command
from pgstrata.lab import machines
from pgstrata.lab.image import Image
from pgstrata.lab.machine import EndedBooting, Machine, connect_machine, free_port, machine_pid, start_machine
from pgstrata.lab.machines import LabHost, lab_host, machine_directory
from pgstrata.lab.qemu import MachineSpec
from pgstrata.record.reader import read
from pgstrata.spec.campaign import Campaign
from pgstrata.stack.build import attest, build
from pgstrata.stack.journal import Journal, clean
from pgstrata.stack.plan import plan_stack

PAIR = f"pair-{os.getpid()}"
EXPORT = "/srv/exported"


@dataclass(frozen=True)
class Pair:
    here: LocalHost
    image: Image
    client: Machine
    server: Machine


@pytest.fixture(scope="module")
def pair(here: LocalHost, image: Image, tell: Callable[[str], None]) -> Iterator[Pair]:
    specs = [MachineSpec(name=name, cpus=1, memory_bytes=2 << 30) for name in machines.names(PAIR, 2)]
    client, server = machines.up(here, image, specs, say=tell, owned=True)
    yield Pair(here, image, client, server)
    for each in (client, server):
        if here.status(each.directory) is not None:  # the last test has one of them cleaned away
            machines.down(here, each.name)
        assert here.status(each.directory) is None


def test_an_export_of_another_machine(pair: Pair) -> None:
    server = connect_machine(pair.server)
    server.make_directory(EXPORT)
    server.run(command("systemctl", "start", "nfs-server", timeout_s=180))
    options = "rw,sync,no_subtree_check,no_root_squash"
    server.run(command("exportfs", ["-o", options], f"{pair.client.spec.private_address}:{EXPORT}"))
    client = connect_machine(pair.client)
    source = f"{pair.server.spec.private_address}:{EXPORT}"
    plan = plan_stack(stack_of({"fs": {"kind": "nfs", "server": source}}), context())
    with standing(client, plan) as built:
        assert differences(attest(client, plan, built)) == {}
        client.write_text(f"{plan.data_directory}/file", "over the private network")
        (folder,) = server.list_directory(EXPORT)
        assert server.read_text(f"{EXPORT}/{folder}/pgdata/file") == "over the private network"
    assert remains(client) == []
    assert server.list_directory(EXPORT) == ()
    client.close()
    server.close()


def test_a_cluster_of_two_machines(pair: Pair, tmp_path: Path) -> None:
    """Each has an eth0 already, and a kernel that holds packets back."""
    client, server = (f"lab/{machine.name}" for machine in (pair.client, pair.server))
    stack = f"cluster(2,ANY 1,delay_ms=2)/tmpfs@max_wal_size=64MB@standby1=zfs@standby1.host={server}"
    campaign = {
        "name": "two machines",
        "host": client,
        "scratch": SCRATCH,
        "stacks": {"cluster": stack},
        "workload": {"scale": 1, "clients": 2, "duration": 3, "warmup": 0},
        "runs": {"blocks": 1, "fresh_blocks": 1},
    }
    file, out = tmp_path / "campaign.yaml", tmp_path / "out"
    file.write_text(json.dumps(campaign))
    call = [sys.executable, "-m", "pgstrata.cli.main", "run", str(file), "--out", str(out)]
    ended = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (trial,) = (out / "trials").iterdir()
    attested = json.loads((trial / "attested.json").read_text())
    found = {(row["what"], row["actual"]) for row in attested if row["moment"] == "after cell"}
    assert {("cluster standby1 sync_state", "quorum"), ("network standby1 queue", "netem 2 ms, loss 0")} <= found
    assert {row["holds"] for row in attested} == {True}
    (cell,) = read(out).cells()
    assert [node.host for node in cell.result.nodes] == ["", server]
    for machine in (pair.client, pair.server):
        with closing(connect_machine(machine)) as host:
            assert remains(host) == []


def test_an_unreachable_server_is_told_at_once(pair: Pair) -> None:
    client = connect_machine(pair.client)
    plan = plan_stack(stack_of({"fs": {"kind": "nfs", "server": "10.77.0.99:/nothing"}}), context())
    with pytest.raises(Exception, match=r"mount|10\.77\.0\.99"):
        build(client, plan, Journal.create(client, plan.context.trial_id))
    assert remains(client) == []
    client.close()


def test_a_machine_that_dies_in_the_middle(pair: Pair) -> None:
    host = LabHost(pair.here, pair.image, pair.client)
    plan = plan_stack(stack_of({"layers": [{"kind": "lvm"}], "fs": {"kind": "xfs"}}), context())
    built = build(host, plan, Journal.create(host, plan.context.trial_id))
    assert differences(attest(host, plan, built)) == {}
    pid = machine_pid(pair.here, pair.client)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(HostLost):
        host.run(command("true"))
    assert host.reconnect(600.0) is False
    assert not clean(host).failed
    assert remains(host) == []
    host.close()


def test_the_machine_of_a_campaign(pair: Pair, tell: Callable[[str], None]) -> None:
    """It has the disks that the stacks name, is marked as what it is, and is gone afterwards."""
    disk = "/dev/disk/by-id/virtio-hdd"
    campaign = Campaign.model_validate(
        {
            "name": "lab",
            "host": "lab",
            "lab": {"memory": "1GiB", "disks": {"hdd": {"size": "300MiB", "iops": 500}}},
            "stacks": [{"name": "x", "data": {"device": {"kind": "disk", "ids": [disk]}, "fs": {"kind": "ext4"}}}],
        }
    )
    with lab_host(campaign, say=tell) as host:
        assert host.kind == pair.client.kind
        assert host.run(command("blockdev", "--getsize64", disk)).stdout.strip() == str(300 << 20)
        name = host.name.removeprefix("lab/")
        assert name in [found.machine.name for found in machines.status(pair.here)]
    assert name not in [found.machine.name for found in machines.status(pair.here)]


def test_names_that_are_taken_are_refused(pair: Pair, tell: Callable[[str], None]) -> None:
    with pytest.raises(PreflightError, match="is there already"):
        machines.up(pair.here, pair.image, [pair.client.spec], say=tell)
    assert machine_pid(pair.here, pair.client) is not None


def test_a_port_that_is_taken(pair: Pair) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], free_port()])
        spec = MachineSpec(name=f"port-{os.getpid()}", cpus=1, memory_bytes=512 << 20)
        parent = machine_directory(pair.here)
        started = start_machine(
            pair.here, pair.image, spec, parent=parent, accelerator="tcg", owned=True, choose_port=lambda: next(ports)
        )
        assert started.ssh_port != taken.getsockname()[1]
    assert machine_pid(pair.here, started) is not None
    assert machines.down(pair.here, started.name) == (started.name,)
    assert machine_pid(pair.here, started) is None


@contextmanager
def ended_while_booting(here: LocalHost, name: str, times: int) -> Iterator[list[int]]:
    """Kills that machine's QEMU as soon as it runs, so often; the pids of those that it killed."""
    killed: list[int] = []
    done = threading.Event()

    def kill() -> None:
        while len(killed) < times and not done.wait(0.02):
            for found in machines.status(here):
                if found.machine.name == name and found.pid is not None and found.pid not in killed:
                    time.sleep(1.5)  # its options have been taken: the machine boots
                    killed.append(found.pid)
                    os.kill(found.pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        done.set()
        thread.join()


def test_a_machine_that_ends_while_it_boots_is_started_again(pair: Pair) -> None:
    spec, told = MachineSpec(name=f"again-{os.getpid()}", cpus=1, memory_bytes=1 << 30), list[str]()
    with ended_while_booting(pair.here, spec.name, 1) as killed:
        (started,) = machines.up(pair.here, pair.image, [spec], say=told.append, owned=True)
    assert machine_pid(pair.here, started) not in (None, *killed)
    assert [line for line in told if "ended while booting" in line and line.endswith("it is started again")]
    with closing(connect_machine(started)) as host:
        assert host.run(command("hostname")).stdout.strip() == spec.name
    machines.down(pair.here, spec.name)


def test_a_machine_that_always_ends_while_it_boots_is_given_up(pair: Pair, tell: Callable[[str], None]) -> None:
    spec = MachineSpec(name=f"never-{os.getpid()}", cpus=1, memory_bytes=1 << 30)
    with (
        ended_while_booting(pair.here, spec.name, machines.BOOT_ATTEMPTS) as killed,
        pytest.raises(EndedBooting, match="ended while booting"),
    ):
        machines.up(pair.here, pair.image, [spec], say=tell, owned=True)
    assert len(killed) == machines.BOOT_ATTEMPTS
    assert spec.name not in [found.machine.name for found in machines.status(pair.here)]


def test_a_machine_whose_owner_was_killed_is_cleaned(pair: Pair) -> None:
    gone = pair.server.model_copy(update={"owner_started": 1})
    pair.here.write_text(f"{gone.directory}/machine.json", gone.model_dump_json())
    assert machines.clean(pair.here) == (f"removed lab machine {gone.name}: its run is gone",)
    assert pair.here.status(gone.directory) is None
