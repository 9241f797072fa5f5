"""What an error in the middle of a trial makes of it: a failed trial, or a campaign that stops resumably."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgstrata.errors import RecordError, writing
from pgstrata.host.local import LocalHost
from pgstrata.record.recorder import CampaignDirectory, TrialRecorder
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.expand import block_trials
from pgstrata.spec.layers.not_built import Existing
from pgstrata.spec.stack import Stack, Volume
from pgstrata.trial.events import silent
from pgstrata.trial.executor import Executor
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.runner import PerformanceRunner
from pgstrata.trial.survey.survey import survey


class Failing(PerformanceRunner):
    """Records to a full disk, or finds the host's own disk full."""

    host_is_full = False

    def _perform(self, trial: Trial, recorder: TrialRecorder, executor: Executor) -> Iterator[None]:
        if self.host_is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/mnt/data")
        full = Path("/dev/full")
        with writing(full):
            full.write_text("a log", encoding="utf-8")
        yield


@pytest.mark.parametrize("host_is_full", [False, True])
def test_a_full_disk_of_the_record_is_no_failed_trial(tmp_path: Path, host_is_full: bool) -> None:
    campaign = Campaign(name="x", stacks=(Stack(name="here", data=Volume(fs=Existing(path=str(tmp_path)))),))
    host = LocalHost(state_directory=str(tmp_path / "state"))
    (trial,) = block_trials(campaign, 0, ["here"])
    with CampaignDirectory.create_or_open(tmp_path / "c", campaign) as directory:
        runner = Failing(survey(host, campaign, tmp_path / "c"), Interruption())
        runner.host_is_full = host_is_full
        try:
            if host_is_full:
                verdict = runner.run(trial, directory, silent)
                assert (verdict.status, verdict.reason) == ("failed", "No space left on device: /mnt/data")
            else:
                with pytest.raises(RecordError, match="no space left"):
                    runner.run(trial, directory, silent)
                assert [p.name for p in (tmp_path / "c" / "interrupted").iterdir()] == [f"{trial.id}.1"]
            assert len(directory.finished()) == host_is_full
        finally:
            assert runner.close() == ()
