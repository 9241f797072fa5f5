"""Builds a stack on a lab machine and kills itself (SIGKILL): `build_and_die.py MACHINE STACK NAME-OF-STEP`."""

from __future__ import annotations

import json
import os
import signal
import sys

from bench import context, stack_of

from pgstrata.host.local import LocalHost
from pgstrata.lab import machines
from pgstrata.lab.machine import connect_machine
from pgstrata.stack.build import StepRunner
from pgstrata.stack.journal import Journal
from pgstrata.stack.plan import plan_stack


def main() -> None:
    machine, volume, last = sys.argv[1:]
    host = connect_machine(machines.find(LocalHost(), machine))
    plan = plan_stack(stack_of(json.loads(volume)), context())

    runner = StepRunner(host, Journal.create(host, plan.context.trial_id), plan.context.erase)
    for step in plan.steps:
        runner.run(step)
        if step.name.startswith(last):
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
