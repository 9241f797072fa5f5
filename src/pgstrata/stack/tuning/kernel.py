"""The kernel settings of a stack, put together."""

from __future__ import annotations

from pgstrata.spec.stack import Kernel
from pgstrata.stack.kind import Check
from pgstrata.stack.step import Argument, Step
from pgstrata.stack.tuning import hugepage, queue, sysctl


def plan_kernel(kernel: Kernel, media: tuple[Argument, ...]) -> tuple[tuple[Step, ...], tuple[Check, ...]]:
    """Sets what the stack asks for on the host, and on the queue of every device in `media`."""
    parts = (
        *sysctl.plan_sysctl(kernel.sysctl),
        hugepage.plan_transparent_hugepage(kernel.transparent_hugepage),
        queue.plan_queue(kernel.queue, media),
    )
    steps = tuple(
        Step(name=part.name, commands=(), settings=part.settings, host_wide=part.host_wide)
        for part in parts
        if part.settings
    )
    return steps, tuple(check for part in parts for check in part.checks)
