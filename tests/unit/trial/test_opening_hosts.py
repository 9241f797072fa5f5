"""Several hosts are opened at once: one that is lost is left out, an error waits for the others, all are closed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pgstrata.errors import PgstrataError, PreflightError, RecordError
from pgstrata.host.protocol import HostLost
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.campaign import Campaign
from pgstrata.trial import opening
from pgstrata.trial.events import Event, Notice
from pgstrata.trial.interruption import Interrupted, Interruption

HOSTS = ("ssh://a", "ssh://b", "ssh://c")
PATIENCE_S = 60
STACKS = [{"name": name, "data": {"fs": {"kind": name}}} for name in ("ext4", "tmpfs")]


@dataclass
class MadeUp:
    """A host by its name; what waits on it is ended from outside."""

    name: str
    waits_ended: threading.Event = field(default_factory=threading.Event)

    def interruptible(self, waiting: Any) -> None:
        pass

    def end_waits(self) -> None:
        self.waits_ended.set()


@dataclass
class Opened:
    """What happened to the hosts of a campaign."""

    log: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    """Which were open in the end."""


Look = Callable[[str], str]
Open = Callable[[MadeUp, Interruption], tuple[str, ...]]


def same(name: str) -> str:
    return name


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Opens all hosts: `look` gives the machine id of each, `open_one` the stacks that it can build."""

    def run(seen: Opened, open_one: Open, look: Look = same, interruption: Interruption | None = None) -> None:
        @contextmanager
        def performance_runner(host: Any, *more: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
            _, _, tell, own = more
            stacks = open_one(host, own)
            seen.log.append(f"open {host.name}")
            tell(Notice("looked over"))
            try:
                yield host.name, stacks
            finally:
                seen.log.append(f"close {host.name}")

        def gather(host: Any) -> Any:
            return SimpleNamespace(checked={"machine id": look(host.name)})

        def tell(event: Event) -> None:
            assert isinstance(event, Notice)
            seen.told.append(event.text)

        monkeypatch.setattr(opening, "gather", gather)
        monkeypatch.setattr(opening, "performance_runner", performance_runner)
        asked = Campaign.model_validate({"name": "fleet", "stacks": STACKS, "hosts": HOSTS})
        hosts: Any = [MadeUp(name) for name in HOSTS]
        with (
            CampaignDirectory.create_or_open(tmp_path / "c", asked) as directory,
            opening.performance_runners(hosts, asked, directory, tell, interruption or Interruption()) as (
                runners,
                stacks,
            ),
        ):
            assert stacks == ("ext4", "tmpfs")
            seen.hosts += runners

    return run


def both(host: MadeUp, interruption: Interruption) -> tuple[str, ...]:
    return ("ext4", "tmpfs")


def test_all_are_looked_at_and_opened_at_once_and_closed_in_order(run: Callable[..., None]) -> None:
    looking, starting = (threading.Barrier(len(HOSTS), timeout=PATIENCE_S) for _ in range(2))
    seen = Opened()

    def look(name: str) -> str:
        looking.wait()
        return name

    def open_one(host: MadeUp, interruption: Interruption) -> tuple[str, ...]:
        starting.wait()
        return ("ext4", "tmpfs")

    run(seen, open_one, look)
    assert seen.hosts == list(HOSTS)
    assert sorted(seen.log[:3]) == [f"open {name}" for name in HOSTS]
    assert seen.log[3:] == [f"close {name}" for name in reversed(HOSTS)]
    assert sorted(seen.told) == [f"{name}: looked over" for name in HOSTS]


@pytest.mark.parametrize("while_looked_at", [False, True])
def test_one_that_is_lost_is_left_out(run: Callable[..., None], while_looked_at: bool) -> None:
    def lose(name: str, here: bool) -> None:
        if here and name == "ssh://b":
            raise HostLost("the connection to ssh://b was lost")

    def look(name: str) -> str:
        lose(name, while_looked_at)
        return name

    def open_one(host: MadeUp, interruption: Interruption) -> tuple[str, ...]:
        lose(host.name, not while_looked_at)
        return ("ext4", "tmpfs")

    seen = Opened()
    run(seen, open_one, look)
    assert seen.hosts == ["ssh://a", "ssh://c"]
    left_out = "ssh://b is left out until the campaign is resumed: the connection to ssh://b was lost"
    assert sorted(seen.told) == ["ssh://a: looked over", left_out, "ssh://c: looked over"]
    assert seen.log[2:] == ["close ssh://c", "close ssh://a"]


def test_where_all_are_lost_the_first_loss_is_told(run: Callable[..., None]) -> None:
    def open_one(host: MadeUp, interruption: Interruption) -> tuple[str, ...]:
        raise HostLost(f"{host.name} was lost")

    with pytest.raises(HostLost, match="ssh://a was lost"):
        run(Opened(), open_one)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PreflightError("no space", hint="make room"), "ssh://b: no space"),
        (RecordError("out/c cannot be written"), "out/c cannot be written"),
        (None, "ssh://b cannot build tmpfs"),
    ],
)
def test_an_error_is_raised_once_the_others_have_ended(
    run: Callable[..., None], error: PgstrataError | None, said: str
) -> None:
    refused, seen = threading.Event(), Opened()

    def open_one(host: MadeUp, interruption: Interruption) -> tuple[str, ...]:
        if host.name != "ssh://b":
            assert refused.wait(PATIENCE_S)
            if host.name == "ssh://c":
                raise PreflightError("PostgreSQL is missing")
            return ("ext4", "tmpfs")
        refused.set()
        if error is not None:
            raise error
        return ("ext4",)

    with pytest.raises(PreflightError) as raised:
        run(seen, open_one)
    assert (raised.value.message, seen.hosts) == (said, [])
    assert "ssh://c: PostgreSQL is missing" in seen.told
    assert seen.log[-1] == "close ssh://a"
    opened, closed = ({line[len(what) :] for line in seen.log if line.startswith(what)} for what in ("open ", "close "))
    assert opened == closed == ({"ssh://a"} if error else {"ssh://a", "ssh://b"})


def test_two_names_of_one_machine_are_refused_before_any_is_opened(run: Callable[..., None]) -> None:
    seen = Opened()
    with pytest.raises(PreflightError, match="ssh://a and ssh://c are one machine"):
        run(seen, both, lambda name: "b" if name == "ssh://b" else "a and c")
    assert seen.log == []


def test_a_signal_ends_what_is_waited_for_and_closes_what_is_open(run: Callable[..., None]) -> None:
    main, opened, seen = Interruption(), threading.Barrier(2, timeout=PATIENCE_S), Opened()

    def open_one(host: MadeUp, interruption: Interruption) -> tuple[str, ...]:
        if host.name == "ssh://c":
            return ("ext4", "tmpfs")
        with interruption.waiting():
            opened.wait()
            if host.name == "ssh://a":
                os.kill(os.getpid(), signal.SIGTERM)
            assert host.waits_ended.wait(PATIENCE_S)
        raise AssertionError("the wait was ended by a signal")

    with main.installed(), pytest.raises(Interrupted, match="SIGTERM"):
        run(seen, open_one, interruption=main)
    assert seen.log == ["open ssh://c", "close ssh://c"]
    assert seen.told == ["ssh://c: looked over"]
