"""A pgbench that is stopped for ever is given up soon after its own limit, and is not left behind."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pgstrata.errors import TrialError
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import command
from pgstrata.trial.steps.cluster import wait_for_run
from pgstrata.workload.driver import run_timeout_s
from pgstrata.workload.pgbench import PgbenchDriver


def test_a_stopped_program_is_a_trial_error_with_its_reason(tmp_path: Path) -> None:
    host = LocalHost()
    process = host.start(command("sleep", "1000"), stdout=str(tmp_path / "out"), stderr=str(tmp_path / "err"))
    os.kill(process.pid, signal.SIGSTOP)
    context = cast(
        Any,
        SimpleNamespace(
            plan=SimpleNamespace(stack=SimpleNamespace(topology=None)), setup=SimpleNamespace(driver=PgbenchDriver())
        ),
    )
    try:
        with pytest.raises(TrialError, match="pgbench did not end within 0 s"):
            wait_for_run(context, process, 0.2)
    finally:
        process.stop(1.0)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


@pytest.mark.parametrize(("limit_s", "allowed_s"), [(5.0, 35.6), (600.0, 690.1), (3600.0, 3720.1)])
def test_the_limit_of_a_run_is_its_duration_and_a_bounded_grace(limit_s: float, allowed_s: float) -> None:
    assert run_timeout_s(limit_s, 1) == pytest.approx(allowed_s)
