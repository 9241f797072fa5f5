"""Settings that a server refuses together are found before anything is built, with every major that is here."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigning import environment, reachable, run_in_fork
from pgstrata.errors import PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.postgres.binaries import Installation, discover
from pgstrata.postgres.settings import refuse_together
from pgstrata.postgres.user import run_user

HERE = {i.major: i for i in discover(LocalHost())}
MINIMAL = {"wal_level": "minimal", "max_wal_senders": "0"}

pytestmark = pytest.mark.root


@pytest.fixture(params=sorted(HERE), ids=str)
def installation(request: pytest.FixtureRequest) -> Installation:
    return HERE[request.param]


def refusal(installation: Installation, settings: dict[str, str]) -> str:
    """The message; empty if the server takes the settings."""
    try:
        refuse_together(LocalHost(), installation, "pgstrata", settings)
    except PreflightError as error:
        return error.message
    return ""


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"wal_level": "minimal"}, "max_wal_senders"),
        ({**MINIMAL, "archive_mode": "on"}, "archiv"),
        ({"superuser_reserved_connections": "120"}, "must be less than"),
        ({"log_destination": "syslog", "logging_collector": "on", "wal_level": "minimal"}, "max_wal_senders"),
    ],
)
def test_pairs_are_refused(installation: Installation, settings: dict[str, str], words: str) -> None:
    said = refusal(installation, settings)
    assert "refuses the settings together" in said
    assert words in said


@pytest.mark.parametrize(
    "settings", [{}, MINIMAL, {"log_destination": "csvlog", "logging_collector": "on", "lc_messages": "C"}]
)
def test_what_goes_together_is_taken(installation: Installation, settings: dict[str, str]) -> None:
    assert refusal(installation, settings) == ""


def test_a_run_leaves_out_that_stack_alone(tmp_path: Path) -> None:
    stacks = ("tmpfs@wal_level=minimal", "tmpfs@shared_buffers=900GB", "tmpfs")
    with reachable(tmp_path) as place:
        argv = ["quick", *stacks, "--blocks", "1", "--duration", "1s", "--scale", "1", "--no-crash"]
        run_in_fork([*argv, "--out", str(place / "out"), "--quiet"], environment(place), place / "log.txt")
        said = (place / "log.txt").read_text()
    assert "refuses the settings together" in said, said
    assert "shared_buffers = 900.0 GiB is more than local has" in said, said


def test_plan_says_it_beforehand(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("name: x\nstacks: ['tmpfs@wal_level=minimal', tmpfs]\nruns: {blocks: 1}\n")
    run_user(LocalHost())
    run_in_fork(["plan", str(file), "--out", str(tmp_path / "out")], environment(tmp_path), tmp_path / "log.txt")
    said = (tmp_path / "log.txt").read_text()
    assert "refuses the settings together" in said, said
    assert not (tmp_path / "out").exists()
