"""Trials that are made up (PGSTRATA_FAKE=1), for tests of everything around them."""

from __future__ import annotations

import os

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign
from pgstrata.trial.scheduling import TrialRunner

FAKE_MODE = "PGSTRATA_FAKE"


def are_made_up() -> bool:
    """True if this process was configured for fake trials."""
    return os.environ.get(FAKE_MODE, "") not in ("", "0")


def made_up_runner(campaign: Campaign) -> TrialRunner:
    """The one way from pgstrata to its made-up trials."""
    try:
        from pgstrata_fake.runner import FakeRunner
    except ModuleNotFoundError:
        raise UsageError(
            f"{FAKE_MODE} is set, and only a checkout of pgstrata has made-up trials",
            hint=f"unset {FAKE_MODE} to measure, or use .venv/bin/pgstrata of a checkout (make setup)",
        ) from None
    return FakeRunner(campaign)
