"""The password of a load that cannot use the server's socket, made anew at every start of a server that is alone.

In a cluster the roles get theirs when the standbys join (`trial.steps.cluster`).
"""

from __future__ import annotations

import secrets

from pgstrata.postgres.server import SUPERUSER
from pgstrata.postgres.standby import (
    PASSWORD_BYTES,
    PRIMARY_PASSFILE,
    SALT_BYTES,
    plan_passfile,
    render_passfile,
    render_superuser,
    scram_verifier,
)
from pgstrata.stack.step import Step
from pgstrata.trial.context import TrialContext, TrialSetup


def admission_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """Return the step that admits the load by TCP to the running server; none for a load that uses the socket."""
    if not setup.workload.driver.over_tcp:
        return ()
    server = setup.server
    commands = server.planned(*plan_passfile(server, PRIMARY_PASSFILE), server.plan_execute(""))
    return (Step("password of the load", commands, act=_admit),)


def _admit(context: TrialContext) -> None:
    """Makes the password, which the server's user alone can read; the server stores its verifier."""
    run, password = context.executor.run_next, secrets.token_hex(PASSWORD_BYTES)
    run()
    run(stdin=render_passfile(SUPERUSER, password))
    run(stdin=render_superuser(scram_verifier(password, secrets.token_bytes(SALT_BYTES))))
