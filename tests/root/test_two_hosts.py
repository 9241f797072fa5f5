"""One campaign on two hosts at once: this machine, and itself behind ssh, which is told apart for the occasion."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from campaigning import reachable, remains, write_campaign
from loopback_sshd import LoopbackSshd
from pgstrata.analyze.campaign.hosts_policy import HostsPolicy
from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.campaign.metrics import Observer
from pgstrata.errors import PreflightError
from pgstrata.host.facts.gather import gather
from pgstrata.host.local import LocalHost
from pgstrata.host.ssh import SshHost
from pgstrata.record.reader import read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.trial import opening
from pgstrata.trial.events import Event, StepBegun, StepEnded, Tell, silent
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.opening import performance_runners
from pgstrata.trial.scheduler import run_campaign
from pgstrata.trial.undo_errors import note_undo_errors, undo_errors
from pgstrata.watch.follow import Follower

pytestmark = pytest.mark.root


def campaign(place: Path) -> Campaign:
    asked = load_campaign(write_campaign(place, "ext4"))
    hosts = ("local", "ssh://root@127.0.0.1")
    return asked.model_copy(update={"hosts": hosts, "scratch": str(place / "out" / "scratch")})


@dataclass
class Watched:
    """A listener that looks at the directory, as the live view does, whenever something happens."""

    follower: Follower
    hosts: dict[str, set[str]] = field(default_factory=dict)
    """Where each trial was seen to run, in its steps and between them."""
    rounds: set[int] = field(default_factory=set)
    """Trials of the round, while any ran."""
    _looking: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, event: Event) -> None:
        if not isinstance(event, StepBegun | StepEnded):
            return
        with self._looking:
            progress = self.follower.look()
        for one in progress.running:
            if one.stack:  # its plan is written
                self.hosts.setdefault(one.trial, set()).add(one.host)
                self.rounds.add(progress.block_trials)


def run(place: Path, sshd: LoopbackSshd, tell: Tell = silent) -> str:
    asked = campaign(place)
    local, far = (
        LocalHost(state_directory=str(place / "state")),
        SshHost(sshd.target, options=sshd.options, state_directory=str(place / "far")),
    )
    interruption = Interruption()
    try:
        with (
            CampaignDirectory.create_or_open(place / "out", asked) as directory,
            performance_runners((local, far), asked, directory, tell, interruption) as opened,
            ThreadPoolExecutor(2) as executor,
        ):
            outcome = run_campaign(
                asked,
                directory,
                opened[0],
                HostsPolicy.of(asked, opened[1]),
                tell,
                observe=Observer("tps"),
                interruption=interruption,
                executor=executor,
            )
            return outcome.reason
    finally:
        far.close()
        local.close()


def test_two_hosts_run_side_by_side_and_one_machine_is_no_two_hosts(
    tmp_path: Path, sshd: LoopbackSshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reachable(tmp_path) as place:
        with pytest.raises(PreflightError, match="are one machine"):
            run(place, sshd)
        honest = gather

        def told_apart(host: Any) -> Any:
            found = honest(host)
            return found.__class__({**found.checked, "machine id": host.name}, found.told)

        monkeypatch.setattr(opening, "gather", told_apart)
        with CampaignDirectory.create_or_open(place / "out", campaign(place)):
            for host in ("local", "ssh://away"):
                note_undo_errors(place / "out", ["unmount: target is busy"], host)
        watched = Watched(Follower(place / "out"))
        assert run(place, sshd, watched) == "blocks done: 1 on each host, as planned"
        data = read(place / "out")
        assert [(t.trial.block, t.verdict.status) for t in data.trials] == [(0, "ok"), (1, "ok")], [
            t.verdict for t in data.trials
        ]
        assert len({t.trial.host for t in data.trials}) == 2
        assert len({t.facts.name for t in data.trials if t.facts}) == 2
        assert judge(data).hosts[0].rows
        assert watched.hosts == {t.id: {t.trial.host} for t in data.trials}
        assert watched.rounds == {2}
        assert undo_errors(place / "out") == ("ssh://away: unmount: target is busy",)
        assert remains(place) == []
