"""`pgstrata status`: how far a campaign is, without analysing it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pgstrata.cli.output import CampaignPath, JsonFlag, print_json, print_text

if TYPE_CHECKING:
    from pgstrata.record.reader import CampaignData


def status(directory: CampaignPath, json: JsonFlag = False) -> None:
    """How far a running or finished campaign is: trials by stack and status, failures, the last decision."""
    from pgstrata.record.reader import read

    data = read(directory)
    value = _describe(data)
    if json:
        print_json(value)
    else:
        print_text(_render(value))


def _describe(data: CampaignData) -> dict[str, Any]:
    from pgstrata.record.recorder import is_locked
    from pgstrata.trial.undo_errors import undo_errors

    stacks = {s.name: {"ok": 0, "failed": 0, "excluded": 0, "unsupported": 0} for s in data.campaign.stacks}
    for trial in data.trials:
        counts = stacks.setdefault(trial.trial.stack, {})
        counts[trial.verdict.status] = counts.get(trial.verdict.status, 0) + 1
    last = data.decisions[-1] if data.decisions else None
    return {
        "campaign": data.campaign.name,
        "directory": data.source.text,
        "running": is_locked(data.source.text),
        "imported": data.record.origin.startswith("import"),
        "finished": last is not None and last.stage == "done",
        "blocks": 1 + max((t.trial.block for t in data.trials), default=-1),
        "machine_time_s": round(sum(t.verdict.duration_s for t in data.trials), 3),
        "stacks": stacks,
        "failures": [
            {"trial": t.id, "status": t.verdict.status, "reason": t.verdict.reason, "hint": t.verdict.hint}
            for t in data.trials
            if not t.valid
        ],
        "undo_errors": list(undo_errors(Path(data.source.text))),
        "unreadable": [{"trial": t.id, "reason": t.reason, "hint": t.hint} for t in data.unreadable],
        "last_decision": last.model_dump(mode="json") if last else None,
    }


def _render(value: dict[str, Any]) -> str:
    from pgstrata.report.figures import render_count
    from pgstrata.spec.units import render_duration

    states = {"imported": "imported", "running": "running", "finished": "finished"}
    state = next((word for key, word in states.items() if value[key]), "not running, resumable")
    lines = [
        f"{value['campaign']} in {value['directory']}: {state}",
        f"{value['blocks']} blocks begun, {render_duration(value['machine_time_s'])} of machine time",
    ]
    width = max(len(name) for name in value["stacks"])
    for name, counts in value["stacks"].items():
        shown = ", ".join(f"{n} {status}" for status, n in counts.items() if n) or "none yet"
        lines.append(f"  {name:<{width}}  {shown}")
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
