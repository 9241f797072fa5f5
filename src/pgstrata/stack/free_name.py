"""A name must be free before something is made under it, and before its undo is journaled: the undo would else remove
what somebody else has under that name."""

from __future__ import annotations

from pgstrata.stack.step import Step, planned

# $1 what, $2 its name, then a command that succeeds when it is there
_REFUSE_TAKEN = """what=$1 name=$2; shift 2
if "$@" >/dev/null 2>&1; then
    echo "$what $name is there already, and this trial did not make it" >&2
    exit 1
fi
"""


def plan_free_name(what: str, name: str, *ask: str) -> Step:
    """Fails when `ask` succeeds. Has no undo, and must come before the step that has one."""
    return Step(name=f"name of {what} {name}", commands=(planned("sh", "-c", _REFUSE_TAKEN, "sh", what, name, ask),))


def plan_free_folder(path: str) -> Step:
    """Fails when there is anything called `path`, be it a link that leads nowhere."""
    return plan_free_name("folder", path, "test", "-e", path, "-o", "-L", path)
