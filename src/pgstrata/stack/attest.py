"""Reads back what the kernel says was built and sets it beside what was asked."""

from __future__ import annotations

from pgstrata.errors import TrialError
from pgstrata.host.protocol import Host
from pgstrata.stack.build import Built
from pgstrata.stack.plan import StackPlan
from pgstrata.stack.step import Attested


def attest(host: Host, plan: StackPlan, built: Built) -> tuple[Attested, ...]:
    """Every checked property of the stack, whether it holds or not."""
    return tuple(row for check in plan.checks for row in check.attest(host, built.bindings))


def require(attested: tuple[Attested, ...]) -> None:
    """TrialError that names every difference, if there is one."""
    wrong = [f"{row.what}: expected {row.expected}, found {row.actual}" for row in attested if not row.holds]
    if wrong:
        raise TrialError(f"the stack is not what was asked for: {'; '.join(wrong)}")
