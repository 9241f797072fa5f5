"""Whether a trial did what its plan says: planned steps and commands against its `events.jsonl`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OUTLIVING = ": start the pooler"
"""The step that starts what still runs when it has ended."""

Step = tuple[str, list[list[str]]]
"""The name of a step, and the arguments of its commands."""


def planned_steps(planned: Sequence[dict[str, Any]]) -> list[Step]:
    """From `planned.json` or from a trial of `plan --json`; the undo has no commands."""
    return [(s["name"], [shlex.split(c) for c in s["commands"]]) for s in planned]


def executed_steps(trial: Path) -> list[Step]:
    """From the `events.jsonl` of a trial's folder."""
    steps: list[Step] = []
    for line in (trial / "events.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["event"] == "step_begun":
            steps.append((event["step"], []))
        elif event["event"] == "command":
            assert {"at", "argv", "user", "host"} <= event.keys(), event
            assert {"exit_code", "duration_s"} <= event.keys() or event["step"].endswith(OUTLIVING), event
            assert event["step"] == steps[-1][0]
            steps[-1][1].append(event["argv"])
    return steps


def differences(planned: Sequence[Step], executed: Sequence[Step]) -> list[str]:
    """What was not carried out as planned; `<name>` in a plan stands for one value in the whole trial."""
    names, done = [name for name, _ in planned], [name for name, _ in executed]
    if names != done:
        return [f"steps planned {names}, executed {done}"]
    known: dict[str, str] = {}
    found = []
    for (name, asked), (_, run) in zip(planned, executed, strict=True):
        if len(asked) != len(run):
            found.append(f"{name}: planned {asked}, executed {run}")
            continue
        found += [
            f"{name}: planned {a}, executed {r}" for a, r in zip(asked, run, strict=True) if not same(a, r, known)
        ]
    return found


def same(asked: list[str], run: list[str], known: dict[str, str]) -> bool:
    return len(asked) == len(run) and all(_same_word(a, r, known) for a, r in zip(asked, run, strict=True))


def _same_word(asked: str, run: str, known: dict[str, str]) -> bool:
    before, opened, rest = asked.partition("<")
    name, closed, after = rest.partition(">")
    if asked == run or not (opened and closed):
        return asked == run
    if not (run.startswith(before) and run.endswith(after)):
        return False
    value = run[len(before) : len(run) - len(after)].rsplit("/", 1)[-1]
    return known.setdefault(name, value) == value


def not_followed_so_far(trial: Path) -> list[str]:
    """The same of a trial that failed: the steps that ended well are the first ones of its plan, as planned."""
    planned = planned_steps(json.loads((trial / "planned.json").read_text(encoding="utf-8"))["steps"])
    events = [json.loads(line) for line in (trial / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    ended = [event for event in events if event["event"] == "step_ended"]
    failed = next(number for number, event in enumerate(ended) if event.get("error"))
    assert failed > 0
    return differences(planned[:failed], executed_steps(trial)[:failed])


def not_followed(trial: Path) -> list[str]:
    """Differences between a trial and the plan in its own folder."""
    planned = json.loads((trial / "planned.json").read_text(encoding="utf-8"))["steps"]
    return differences(planned_steps(planned), executed_steps(trial))
