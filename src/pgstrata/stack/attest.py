"""Reads back what the kernel says was built and sets it beside what was asked."""

from __future__ import annotations

from pgstrata.host.protocol import Host
from pgstrata.stack.build import Built
from pgstrata.stack.plan import StackPlan
from pgstrata.stack.step import Attested


def attest(host: Host, plan: StackPlan, built: Built) -> tuple[Attested, ...]:
    """Every checked property of the stack, whether it holds or not."""
    return tuple(row for check in plan.checks for row in check.attest(host, built.bindings))
