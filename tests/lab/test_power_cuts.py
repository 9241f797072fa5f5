"""Power cuts of a stack whose layers only the lab has: md below LVM below ext4, and pg_wal on an export."""

from __future__ import annotations

from pathlib import Path

from remains import SCRATCH

from pgstrata.crash.ledger import LedgerSize
from pgstrata.crash.opening import crash_trials, open_crash_runner
from pgstrata.crash.program import CrashAsked
from pgstrata.host.protocol import Host
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import StateRecord
from pgstrata.spec.crash import crash_campaign, named_stacks
from pgstrata.trial.events import silent
from pgstrata.trial.interruption import Interruption

STATES = 3
STACK = "md(raid1,2)/lvm/ext4@wal=nfs"


def test_states_of_layers_are_brought_up_and_taken_down(host: Host, tmp_path: Path) -> None:
    campaign = crash_campaign(named_stacks([STACK])).model_copy(update={"scratch": SCRATCH})
    asked = CrashAsked(states=STATES, nested=0, minimise=0, size=LedgerSize(transactions=6))
    by = Interruption()
    with CampaignDirectory.create_or_open(tmp_path / "out", campaign, "crash") as directory:
        runner = open_crash_runner(host, campaign, directory, asked, silent, by)
        (verdict,) = (runner.run(trial, directory, silent) for trial in crash_trials(campaign, 1))
        (crash,) = directory.data().crashes
    assert (verdict.status, verdict.reason) == ("ok", "")
    lines = (tmp_path / "out" / "crash" / crash.id / "states.jsonl").read_text().splitlines()
    states = [StateRecord.model_validate_json(line) for line in lines]
    assert [(state.verdict, state.reason) for state in states] == [("held", "")] * STATES
