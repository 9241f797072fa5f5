"""Hosts of a campaign are connected at once, and closed whatever happens."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from threading import Barrier

import pytest

from pgstrata.cli import hosts
from pgstrata.errors import PgstrataError, PreflightError, UsageError
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.trial.events import Event, Notice

NAMES = ("ssh://a", "ssh://b", "ssh://c")


class Connected:
    def __init__(self, name: str) -> None:
        self.name, self.closed = name, False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    file = tmp_path / "fleet.yaml"
    file.write_text(f"name: fleet\nhosts: {list(NAMES)}\nstacks: [ext4]\nworkload: {{scale: 1}}\nruns: {{blocks: 1}}\n")
    return load_campaign(file)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Connected | PgstrataError]:
    """What each name gives, once all of them are being connected."""
    made: dict[str, Connected | PgstrataError] = {name: Connected(name) for name in NAMES}
    together = Barrier(len(NAMES))

    def connect_any(name: str) -> Connected:
        together.wait(timeout=30)
        found = made[name]
        if isinstance(found, PgstrataError):
            raise found
        return found

    monkeypatch.setattr(hosts, "connect_any", connect_any)
    return made


def closed(made: dict[str, Connected | PgstrataError]) -> list[bool]:
    return [found.closed for found in made.values() if isinstance(found, Connected)]


def test_hosts_come_in_the_order_of_the_campaign_and_are_closed_after_it(
    made: dict[str, Connected | PgstrataError], campaign: Campaign
) -> None:
    with hosts.campaign_hosts(campaign, lambda event: None, nullcontext) as found:
        assert [host.name for host in found] == list(NAMES)
        assert not any(closed(made))
    assert closed(made) == [True, True, True]


def test_a_host_that_cannot_be_reached_is_told_and_left_out(
    made: dict[str, Connected | PgstrataError], campaign: Campaign
) -> None:
    made["ssh://b"] = PreflightError("b is away", hint="plug it in")
    told: list[Event] = []
    with hosts.campaign_hosts(campaign, told.append, nullcontext) as found:
        assert [host.name for host in found] == ["ssh://a", "ssh://c"]
    assert told == [Notice("left out: b is away")]


def test_where_none_can_be_reached_the_first_says_why(
    made: dict[str, Connected | PgstrataError], campaign: Campaign
) -> None:
    made.update({name: PreflightError(f"{name} is away", hint="plug it in") for name in NAMES})
    with (
        pytest.raises(PreflightError, match="ssh://a is away"),
        hosts.campaign_hosts(campaign, lambda event: None, nullcontext),
    ):
        pass


def test_an_error_of_one_closes_the_others(made: dict[str, Connected | PgstrataError], campaign: Campaign) -> None:
    made["ssh://c"] = UsageError("no host", hint="")
    with (
        pytest.raises(UsageError, match="no host"),
        hosts.campaign_hosts(campaign, lambda event: None, nullcontext),
    ):
        pass
    assert closed(made) == [True, True]
