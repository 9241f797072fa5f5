"""Made-up crash trials, through the recorder of real ones."""

from __future__ import annotations

from typing import Any, Literal

from pgstrata.record.crash import CRASH, CrashRecord, MinimalRecord, StateRecord
from pgstrata.record.reader import read_crash
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import HostFacts, PlannedRecord, TrialVerdict
from pgstrata.record.source import FolderSource
from pgstrata.spec.campaign import Trial
from pgstrata.spec.expand import slug

Status = Literal["ok", "failed", "unsupported"]


def write_crash(
    directory: CampaignDirectory,
    stack: str,
    *,
    reason: str = "",
    status: Status | None = None,
    minimal: MinimalRecord | None = None,
    **found: Any,
) -> None:
    """A crash trial of a stack of the campaign that found this; one with a reason failed, or ended as is said."""
    names = [s.name for s in directory.record.campaign.stacks]
    trial = Trial(
        id=f"{slug(stack)}-{names.index(stack)}",
        stack=stack,
        block=0,
        position=names.index(stack),
        load="fresh",
        scale=1,
        cells=(),
        workload_seed=1,
    )
    planned = PlannedRecord(trial=trial, stack=directory.record.campaign.stack(stack), steps=())
    recorder = directory.start_crash(trial, planned)
    recorder.write("facts.json", HostFacts(name="made up", checked={"PostgreSQL version": "18.0"}))
    record = CrashRecord.model_validate({"stack": stack, "seed": 1, "amcheck": True, **found})
    recorder.write("durability.json", record)
    if minimal is not None:
        recorder.write("minimal.json", minimal)
    for number in range(record.states):
        state = StateRecord(
            id=f"1.{number}", cut=100 + number, how="nothing kept", volatile=3, kept=0, digest=f"{number:016x}",
            acknowledged=number, verdict=record.verdict,
        )  # fmt: skip
        recorder.append("states.jsonl", state)
    ended = status or ("failed" if reason else "ok")
    recorder.finish(TrialVerdict(trial_id=trial.id, status=ended, reason=reason, duration_s=3.0))


def read_crashes(source: FolderSource) -> tuple[CrashRecord, ...]:
    """What finished crash trials found."""
    return tuple(read_crash(source, name).found for name in source.trials(CRASH))
