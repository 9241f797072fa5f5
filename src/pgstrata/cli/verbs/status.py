"""`pgstrata status`: how far a campaign is, without analysing it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pgstrata.cli.output import CampaignPath, JsonFlag, end, print_result
from pgstrata.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgstrata.record.reader import CrashData
    from pgstrata.record.schema import CampaignRecord, DecisionRecord


def status(directory: CampaignPath, json: JsonFlag = False) -> None:
    """Show the progress of a campaign: trials by stack and status, failures, the last decision."""
    value = _describe(directory)
    print_result(value, lambda: _render(value), json=json)
    end(ExitCode.TRIALS_FAILED if value["unreadable"] else ExitCode.DONE)


def _describe(directory: Path) -> dict[str, Any]:
    """Read the small files with request and verdict of each trial; results are left to the report."""
    from pgstrata.record.reader import place, read_campaign, read_crash_trials, read_decisions, read_head, read_trials
    from pgstrata.record.recorder import is_locked
    from pgstrata.record.source import open_source
    from pgstrata.trial.undo_errors import undo_errors

    source = open_source(directory)
    record = read_campaign(source)
    campaign, decisions = record.campaign, read_decisions(source)
    trials, unreadable = read_trials(source, read_head)
    tested, damaged = read_crash_trials(source)
    every = (*sorted(trials, key=place), *tested)
    stacks = {s.name: {"ok": 0, "failed": 0, "excluded": 0, "unsupported": 0} for s in campaign.stacks}
    for trial in trials:
        counts = stacks.setdefault(trial.trial.stack, {})
        counts[trial.verdict.status] = counts.get(trial.verdict.status, 0) + 1
    crashes = {c.found.stack: {"status": c.verdict.status, "verdict": c.found.verdict, "states": c.found.states}
               for c in tested}  # fmt: skip
    last = decisions[-1] if decisions else None
    return {
        "campaign": campaign.name,
        "directory": source.text,
        "running": is_locked(source.text),
        "imported": record.origin.startswith("import"),
        "finished": _finished(record, tested, last),
        "resumable": record.origin != "crash",
        "blocks": 1 + max((t.trial.block for t in trials), default=-1),
        "machine_time_s": round(sum(t.verdict.duration_s for t in every), 3),
        "stacks": stacks,
        "hosts": dict(Counter(t.trial.host for t in trials if t.trial.host)),
        "nodes": {s.name: {n.name: n.host or campaign.host for n in s.nodes} for s in campaign.stacks if s.far_hosts},
        "crash_trials": crashes,
        "failures": [
            {"trial": t.id, "status": t.verdict.status, "reason": t.verdict.reason, "hint": t.verdict.hint}
            for t in every
            if t.verdict.status != "ok"
        ],
        "undo_errors": list(undo_errors(Path(source.text))),
        "unreadable": [{"trial": t.id, "reason": t.reason, "hint": t.hint} for t in (*unreadable, *damaged)],
        "last_decision": last.model_dump(mode="json") if last else None,
    }


def _finished(record: CampaignRecord, tested: Sequence[CrashData], last: DecisionRecord | None) -> bool:
    """True if the last decision is `done`; for nothing but crash trials, if each stack had one."""
    if record.origin == "crash":
        return {c.trial.stack for c in tested} >= {s.name for s in record.campaign.stacks}
    return last is not None and last.stage == "done"


def _render(value: dict[str, Any]) -> str:
    from pgstrata.report.sentences.figures import render_count
    from pgstrata.spec.units import render_duration

    states = ("imported", "running", "finished")
    ended = "not running, resumable" if value["resumable"] else "ended early, not resumable"
    state = next((word for word in states if value[word]), ended)
    begun = f"{render_count(value['blocks'], 'block')} begun, " if value["blocks"] or not value["crash_trials"] else ""
    lines = [
        f"{value['campaign']} in {value['directory']}: {state}",
        f"{begun}{render_duration(value['machine_time_s'])} of machine time",
    ]
    width = max(len(name) for name in value["stacks"])
    for name, counts in value["stacks"].items():
        crash = value["crash_trials"].get(name)
        parts = [f"{n} {status}" for status, n in counts.items() if n]
        if crash:
            cuts = f"{crash['verdict']}, {render_count(crash['states'], 'state')}"
            parts.append(f"power cuts: {cuts if crash['status'] != 'unsupported' else 'not tested'}")
        shown = ", ".join(parts) or "none yet"
        lines.append(f"  {name:<{width}}  {shown}")
        if name in value["nodes"]:
            lines.append(f"    nodes: {', '.join(f'{node} on {host}' for node, host in value['nodes'][name].items())}")
    lines += [f"  {host}: {render_count(count, 'trial')}" for host, count in value["hosts"].items()]
    for failure in value["failures"]:
        lines.append(f"{failure['trial']}: {failure['status']}: {failure['reason']}")
        if failure["hint"]:
            lines.append(f"HINT: {failure['hint']}")
    if value["unreadable"]:
        lines.append(f"{render_count(len(value['unreadable']), 'trial')} could not be read and count for nothing:")
        lines += [f"  {one['trial']}: {one['reason']}" for one in value["unreadable"]]
    lines += [f"could not be undone when it was last run: {line}" for line in value["undo_errors"]]
    if value["undo_errors"]:
        lines.append("HINT: pgstrata clean, on the host of the campaign")
    if value["last_decision"]:
        last = value["last_decision"]
        lines.append(": ".join(part for part in ("last decision", last["stage"], last["reason"]) if part))
    return "\n".join(lines)


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: pgstrata status out/demo --json")(status)
