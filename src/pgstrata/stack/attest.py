"""Reads the built stack back from the kernel and compares it with the configuration."""

from __future__ import annotations

from collections.abc import Mapping

from pgstrata.host.protocol import Host
from pgstrata.stack.build import Built
from pgstrata.stack.plan import StackPlan
from pgstrata.stack.step import Attested


def attest(
    host: Host, plan: StackPlan, built: Built, elsewhere: Mapping[str, Host] | None = None
) -> tuple[Attested, ...]:
    """Return every checked property of the stack, whether it holds or not; `elsewhere` are the other hosts of its
    nodes."""
    hosts = {"": host, **(elsewhere or {})}
    checks = [("", check) for check in plan.checks]
    checks += [(name, check) for name, of_host in plan.far_checks.items() for check in of_host]
    return tuple(row for name, check in checks for row in check.attest(hosts[name], built.bindings))
