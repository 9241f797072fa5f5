"""Recorded states against those that a kept event log makes."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from crashed import write_crash
from pgstrata.crash.program import ChosenState, parse_states
from pgstrata.crash.replay import SHOWN, compare, verify_trial
from pgstrata.host.local import LocalHost
from pgstrata.record.crash import StateRecord
from pgstrata.record.reader import read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.crash import crash_campaign, named_stacks

DIGEST = f"{7:016x}"
OTHER = f"{8:016x}"


def choice(digest: str = DIGEST, cut: int = 100) -> ChosenState:
    state = {"id": 0, "cut": cut, "how": "nothing kept", "volatile": 3, "kept": 0, "digest": digest}
    return parse_states(json.dumps({**state, "chosen": {"whole": "nothing"}}))[0]


def recorded(acknowledged: int = 0) -> dict[str, StateRecord]:
    state = StateRecord(
        id="1.0", cut=100, how="nothing kept", volatile=3, kept=0, digest=DIGEST,
        acknowledged=acknowledged, verdict="held",
    )  # fmt: skip
    return {DIGEST: state}


def test_a_state_that_is_made_as_recorded_is_not_named() -> None:
    assert list(compare(recorded(), [(choice(), DIGEST)], "")) == []


@pytest.mark.parametrize(
    ("made", "acknowledged", "problem"),
    [
        ((choice(), OTHER), 0, f"state 1.0 has digest {OTHER} when it is made of the event log, not {DIGEST}"),
        ((choice(OTHER), OTHER), 0, f"the choice with digest {OTHER} belongs to no recorded state"),
        ((choice(cut=90), DIGEST), 0, "state 1.0 is cut after event 90 by its choice, not 100"),
        ((choice(), DIGEST), 3, "state 1.0 has 0 acknowledged transactions in the event log, not 3"),
    ],
)
def test_each_difference_is_named(made: tuple[ChosenState, str], acknowledged: int, problem: str) -> None:
    assert list(compare(recorded(acknowledged), [made], "")) == [problem]


def test_a_record_without_log_and_choices_is_a_problem(tmp_path: Path) -> None:
    with CampaignDirectory.create_or_open(
        tmp_path / "out", crash_campaign(named_stacks(["ext4"])), "crash"
    ) as directory:
        write_crash(directory, "ext4", verdict="held", states=SHOWN)
    data = read(tmp_path / "out")
    file = tmp_path / "out" / "crash" / "ext4-0" / "states.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
    with closing(LocalHost()) as host:
        found = verify_trial(host, data.source, data.crashes[0])
    assert found.states == 0
    assert found.problems == (
        f"{SHOWN} states are counted, and {SHOWN - 1} are described",
        "crash/ext4-0/raw/events.log.gz and crash/ext4-0/raw/choices.jsonl are not kept",
    )
