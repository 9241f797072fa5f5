"""Golden plans: what a stack means in commands, compared word by word.

Each file in `plans/` holds a stack and every command and write of its plan, as `pgstrata plan` shows them. After a
wanted change: `python tests/golden/test_plans.py` writes the commands anew, and the difference is to be read.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pgstrata.spec.stack import Stack
from pgstrata.stack.plan import PlanContext, plan_stack

FILES = sorted((Path(__file__).parent / "plans").glob("*.json"))
CONTEXT = PlanContext("b0-t1", "/scratch", 4 * 2**30, owner="postgres", mount_root="/run")


def shown(stack: dict[str, object]) -> dict[str, object]:
    """A plan as text: a line for each command and write, then the notes."""
    plan = plan_stack(Stack.model_validate(stack), CONTEXT)
    commands = [line for step in plan.steps for line in (*step.shown_besides, *step.shown_commands)]
    return {"commands": commands, **({"notes": list(plan.notes)} if plan.notes else {})}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_plan(file: Path) -> None:
    case = json.loads(file.read_text())
    assert {"stack": case["stack"], **shown(case["stack"])} == case


def test_there_are_cases() -> None:
    assert len(FILES) > 10


if __name__ == "__main__":
    for path in FILES:
        written = json.loads(path.read_text())["stack"]
        path.write_text(json.dumps({"stack": written, **shown(written)}, indent=1) + "\n")
