"""Whole trials on a lab machine, their stack changed behind pgstrata's back: each fails, the difference named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import slow_resync

from following import not_followed_so_far
from pgstrata.host.protocol import Host, command
from pgstrata.record.reader import read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.campaign import Campaign
from pgstrata.trial.events import Event, StepBegun, TrialBegun
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.opening import performance_runner
from pgstrata.trial.scheduler import run_campaign
from pgstrata.trial.scheduling import FixedBlocks

ATTEST = "attest the stack"

Meddle = Callable[[Host], None]


def _words(host: Host, program: str, *arguments: str) -> list[str]:
    return host.run(command(program, *arguments)).stdout.split()


def build_another_level(host: Host) -> None:
    """The array made again of the same members as raid6, with a first resync that has no time to end."""
    (array,) = [f"/dev/md/{name}" for name in host.list_directory("/dev/md") if name.startswith("pgstrata-")]
    node = host.run(command("readlink", "--canonicalize", array)).stdout.strip()
    members = [f"/dev/{name}" for name in host.list_directory(f"/sys/class/block/{node.rsplit('/', 1)[-1]}/slaves")]
    host.run(command("mdadm", "--stop", array))
    name = array.rsplit("/", 1)[-1]
    options = ["--name", name, "--homehost", "any", "--run", "--metadata", "1.2", "--bitmap", "internal"]
    shape = ["--level", "raid6", "--raid-devices", str(len(members)), "--chunk", "512"]
    host.run(command("mdadm", "--create", array, options, shape, members, timeout_s=120))
    host.run(command("udevadm", "settle"))


def stripe_the_volume(host: Host) -> None:
    """The volume made again, striped over both PVs instead of running through them one after another."""
    (group,) = _words(host, "vgs", "--noheadings", "--options", "vg_name")
    host.run(command("lvremove", "--yes", f"{group}/volume", timeout_s=120))
    shape = ["--type", "striped", "--stripes", "2", "--stripesize", "64k", "--extents", "100%VG"]
    host.run(command("lvcreate", "--yes", shape, ["--name", "volume"], group, timeout_s=120))


def change_record_size(host: Host) -> None:
    (dataset,) = [name for name in _words(host, "zfs", "list", "-H", "-o", "name") if name.endswith("/data")]
    host.run(command("zfs", "set", "recordsize=128k", dataset))


def change_module_parameter(host: Host) -> None:
    host.write_text("/sys/module/zfs/parameters/zfs_txg_timeout", "7")


def export_async(host: Host) -> None:
    (folder, client, *_) = _words(host, "exportfs")
    options = ["-o", "rw,async,no_subtree_check,no_root_squash"]
    host.run(command("exportfs", options, f"{client.partition('(')[0]}:{folder}"))


@dataclass(frozen=True)
class Sabotage:
    volume: dict[str, Any]
    step: str
    """Done the moment this step begins."""
    meddle: Meddle
    named: tuple[str, ...]
    """What the verdict must say."""


CASES = {
    "md": Sabotage(
        {"device": {"kind": "loop", "count": 4}, "layers": [{"kind": "md", "level": "raid10", "assume_clean": True}]},
        "wipe the array for data",
        build_another_level,
        ("data md level: expected raid10, found raid6", "data md sync_action: expected idle, found resync"),
    ),
    "lvm": Sabotage(
        {"device": {"kind": "loop", "count": 2}, "layers": [{"kind": "lvm"}]},
        "find logical volume data.lvm",
        stripe_the_volume,
        ("data lvm layout: expected linear, found striped", "data lvm stripes: expected 1, found 2"),
    ),
    "zfs record size": Sabotage(
        {"fs": {"kind": "zfs", "recordsize": "16k"}},
        ATTEST,
        change_record_size,
        ("data zfs data recordsize: expected 16384, found 131072",),
    ),
    "zfs module parameter": Sabotage(
        {"fs": {"kind": "zfs", "module": {"zfs_txg_timeout": 2}}},
        ATTEST,
        change_module_parameter,
        ("zfs module zfs_txg_timeout: expected 2, found 7",),
    ),
    "nfs": Sabotage(
        {"fs": {"kind": "nfs", "export": {"kind": "ext4"}}},
        ATTEST,
        export_async,
        ("data nfs export commits: expected sync, found async",),
    ),
}


@dataclass
class Saboteur:
    """Changes the stack of each trial at its step."""

    host: Host
    current: str = ""
    done: list[str] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        match event:
            case TrialBegun(trial=trial):
                self.current = trial.stack
            case StepBegun(step=name) if name == CASES[self.current].step:
                CASES[self.current].meddle(self.host)
                self.done.append(self.current)


def test_each_fails_its_trial(host: Host, tmp_path: Path) -> None:
    campaign = Campaign.model_validate(
        {
            "name": "sabotaged",
            "stacks": [
                {"name": name, "data": {"fs": {"kind": "ext4"}, "device": {"kind": "loop"}, **case.volume}}
                for name, case in CASES.items()
            ],
            "workload": {"scale": 1, "clients": 2, "duration": 1, "warmup": 0},
            "runs": {"blocks": 1, "fresh_blocks": 1},
        }
    )
    saboteur, interruption = Saboteur(host), Interruption()
    with (
        slow_resync(host, 1000),
        CampaignDirectory.create_or_open(tmp_path / "out", campaign) as directory,
        performance_runner(host, campaign, directory, saboteur, interruption) as (
            runner,
            _,
        ),
    ):
        policy = FixedBlocks(tuple(CASES), 1)
        outcome = run_campaign(
            campaign, directory, runner, policy, saboteur, observe=lambda trials: (), interruption=interruption
        )
    assert sorted(saboteur.done) == sorted(CASES)
    assert outcome.counts == {"failed": len(CASES)}
    for trial in (tmp_path / "out" / "trials").iterdir():
        assert not_followed_so_far(trial) == []
    reasons = {t.trial.stack: t.verdict.reason for t in read(tmp_path / "out").trials}
    for name, case in CASES.items():
        for difference in case.named:
            assert difference in reasons[name], reasons[name]
