"""The kernel settings of a stack, put together."""

from __future__ import annotations

from dataclasses import dataclass

from pgstrata.spec.stack import Kernel
from pgstrata.stack.parts import Check
from pgstrata.stack.step import Argument, Step
from pgstrata.stack.tuning import hugepage, queue, sysctl


@dataclass(frozen=True)
class Tuning:
    """Steps that set, and checks that read back."""

    steps: tuple[Step, ...] = ()
    checks: tuple[Check, ...] = ()


def plan_kernel(kernel: Kernel, media: tuple[Argument, ...]) -> Tuning:
    """Sets what the stack asks for on the host, and on the queue of every device in `media`."""
    parts = (
        sysctl.plan_sysctl(kernel.sysctl),
        hugepage.plan_transparent_hugepage(kernel.transparent_hugepage),
        queue.plan_queue(kernel.queue, media),
    )
    steps = tuple(
        Step(name=name, commands=(), settings=settings, host_wide=host_wide)
        for name, settings, host_wide, _ in parts
        if settings
    )
    return Tuning(steps, tuple(check for *_, checks in parts for check in checks))
