"""A host that is lost in the middle of a trial says nothing of the stack, be it one of several or the only one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pgstrata.errors import PgstrataError
from pgstrata.host.protocol import HostLost
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import PlannedRecord, TrialVerdict
from pgstrata.spec.campaign import Campaign, Slices, Trial
from pgstrata.spec.expand import block_trials
from pgstrata.trial.events import Tell, silent
from pgstrata.trial.runner import PerformanceRunner

STACKS = [{"name": "ext4", "data": {"fs": {"kind": "ext4"}}}]
HOSTS = [{"host": "ssh://db1"}, {"hosts": ["ssh://db1", "ssh://db2"]}]


class Losing(PerformanceRunner):
    """Loses its host in so many attempts; `back` is whether it comes back."""

    def __init__(self, losses: int, *, back: bool) -> None:
        self.losses, self.back, self.done = losses, back, list[str]()

    def clean_after_loss(self, tell: Tell) -> None:
        self.done.append("clean")
        if not self.back:
            raise HostLost("it did not come back")

    def _attempt(
        self,
        trials: Sequence[Trial],
        directory: CampaignDirectory,
        tell: Tell,
        passed_on: tuple[type[PgstrataError], ...] = (),
    ) -> tuple[TrialVerdict, ...]:
        self.done.append("attempt")
        self.losses -= 1
        lost = self.losses >= 0
        if lost and HostLost in passed_on:
            raise HostLost("connection to ssh://db1 was lost")
        return tuple(TrialVerdict(trial_id=trial.id, status="failed" if lost else "ok") for trial in trials)


def run(runner: Losing, hosts: dict[str, Any], place: Path) -> str:
    campaign = Campaign.model_validate({"name": "c", "stacks": STACKS, **hosts})
    (trial,) = block_trials(campaign, 0, ("ext4",), host="ssh://db1" if "hosts" in hosts else "")
    with CampaignDirectory.create_or_open(place / "c", campaign) as directory:
        return runner.run(trial, directory, silent).status


@pytest.mark.parametrize("hosts", HOSTS)
def test_the_trial_begins_anew_when_it_is_back(tmp_path: Path, hosts: dict[str, Any]) -> None:
    runner = Losing(1, back=True)
    assert run(runner, hosts, tmp_path) == "ok"
    assert runner.done == ["attempt", "clean", "attempt"]


class LosingAfterOne(Losing):
    """The first of several trials has ended when the host is lost."""

    def _attempt(
        self,
        trials: Sequence[Trial],
        directory: CampaignDirectory,
        tell: Tell,
        passed_on: tuple[type[PgstrataError], ...] = (),
    ) -> tuple[TrialVerdict, ...]:
        planned = PlannedRecord(trial=trials[0], stack=directory.campaign.stack(trials[0].stack), steps=())
        directory.start_trial(trials[0], planned).finish(TrialVerdict(trial_id=trials[0].id, status="ok"))
        return super()._attempt(trials, directory, tell, passed_on)


def test_trials_beside_one_that_had_ended_are_excluded(tmp_path: Path) -> None:
    stacks = [{"name": name, "data": {"fs": {"kind": name}}} for name in ("ext4", "xfs")]
    campaign = Campaign.model_validate({"name": "c", "stacks": stacks, "host": "ssh://db1"})
    trials = block_trials(campaign, 0, ("ext4", "xfs"), slices=Slices())
    runner = LosingAfterOne(1, back=True)
    with CampaignDirectory.create_or_open(tmp_path / "c", campaign) as directory:
        verdicts = runner.run_together(trials, directory, silent)
    assert [v.status for v in verdicts] == ["ok", "excluded"]
    assert trials[0].stack in verdicts[1].reason
    assert runner.done == ["attempt", "clean"]


@pytest.mark.parametrize("hosts", HOSTS)
def test_a_second_loss_fails_it(tmp_path: Path, hosts: dict[str, Any]) -> None:
    assert run(Losing(2, back=True), hosts, tmp_path) == "failed"


@pytest.mark.parametrize("hosts", HOSTS)
def test_where_it_stays_away_the_trial_has_no_verdict(tmp_path: Path, hosts: dict[str, Any]) -> None:
    with pytest.raises(HostLost, match="did not come back"):
        run(Losing(1, back=False), hosts, tmp_path)
