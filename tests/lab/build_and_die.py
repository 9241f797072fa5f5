"""Builds a stack on a lab machine and kills itself (SIGKILL): `build_and_die.py MACHINE STACK NAME-OF-STEP`."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench import context, stack_of

from pgstrata.host.local import LocalHost
from pgstrata.lab import machines
from pgstrata.lab.machine import connect_machine
from pgstrata.stack.build import build
from pgstrata.stack.journal import Journal
from pgstrata.stack.plan import plan_stack
from pgstrata.stack.step import Step


def main() -> None:
    machine, volume, last = sys.argv[1:]
    host = connect_machine(machines.find(LocalHost(), machine))
    plan = plan_stack(stack_of(json.loads(volume)), context())

    @contextmanager
    def around(step: Step) -> Iterator[None]:
        yield
        if step.name.startswith(last):
            os.kill(os.getpid(), signal.SIGKILL)

    build(host, plan, Journal.create(host, plan.context.trial_id), around=around)


if __name__ == "__main__":
    main()
