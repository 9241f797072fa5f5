"""Campaigns over this machine and two more behind ssh: the coordinator is killed, a host is lost and comes back."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from awaiting import wait_until
from campaigning import SMALL, environment, reachable, run, run_in_fork, servers_of
from leavings import leftovers
from loopback_sshd import LoopbackSshd
from pgstrata.cli import hosts as connecting
from pgstrata.errors import ExitCode
from pgstrata.host.facts.gather import gather
from pgstrata.host.ssh import SshHost
from pgstrata.record.reader import TrialData, read
from pgstrata.trial import opening, scheduler
from pgstrata.trial.events import StepBegun
from pgstrata.trial.executor import KILL_HOOK

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]

HOSTS = 3
IN_THE_SECOND_ROUND = 75
"""Steps of all hosts together, after which the process kills itself; a trial on tmpfs has some twenty."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with reachable(tmp_path) as folder:
        yield folder


@pytest.fixture
def far(tmp_path: Path) -> Iterator[list[LoopbackSshd]]:
    servers = [LoopbackSshd(tmp_path / f"sshd{number}") for number in range(HOSTS - 1)]
    yield servers
    for server in servers:
        server.stop()


def write_fleet(place: Path, far: list[LoopbackSshd], stack: str, blocks: int) -> Path:
    file = place / "fleet.yaml"
    names = ["local", *(server.target.text for server in far)]
    text = SMALL.format(stacks=stack, blocks=blocks, load="copy")
    file.write_text(f"{text}hosts: {names}\nscratch: {place / 'out' / 'scratch'}\n")
    return file


def states(place: Path) -> list[Path]:
    """Of each host."""
    return [place / "state", *(place / f"far{number}" for number in range(HOSTS - 1))]


@contextmanager
def told_apart(place: Path, far: list[LoopbackSshd]) -> Iterator[None]:
    """One machine as three: each has a machine id and a state directory of its own."""
    behind = {server.target.text: (server, state) for server, state in zip(far, states(place)[1:], strict=True)}
    honest_connect, honest_gather = connecting.connect_any, gather

    def connect(text: str) -> Any:
        if text not in behind:
            return honest_connect(text)
        server, state = behind[text]
        return SshHost(server.target, options=server.options, state_directory=str(state))

    def gather_apart(host: Any) -> Any:
        found = honest_gather(host)
        return found.__class__({**found.checked, "machine id": host.name}, found.told)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(connecting, "connect_any", connect)
        patched.setattr(opening, "gather", gather_apart)
        yield


def finished(place: Path) -> dict[str, TrialData]:
    return {t.id: t for t in read(place / "out").trials} if (place / "out" / "campaign.json").exists() else {}


def remains(place: Path) -> list[str]:
    """On any of the hosts."""
    folders = [place / "out" / "scratch", *(s / part for s in states(place) for part in ("journal", "mount", "locks"))]
    inside = [str(path) for folder in folders if folder.exists() for path in folder.iterdir()]
    return [*leftovers(place), *servers_of(place), *inside]


@contextmanager
def cut_off(place: Path, far: list[LoopbackSshd], *, for_good: bool) -> Iterator[None]:
    """The connections of the first host behind ssh are cut when its trial begins to measure; its sshd ends with them
    where that is for good; nobody says goodbye, and nobody waits for minutes."""
    lost, cut = far[0], list[str]()

    def run_and_cut(campaign: Any, directory: Any, runners: Any, policy: Any, tell: Any, **named: Any) -> Any:
        def listen(event: Any) -> None:
            tell(event)
            measures = isinstance(event, StepBegun) and event.step.endswith(": measure")
            if measures and event.host == lost.target.text and not cut:
                cut.append(event.trial)
                for pid in [*([lost.process.pid] if for_good else []), *lost.sessions()]:
                    os.kill(pid, signal.SIGKILL)

        return scheduler.run_campaign(campaign, directory, runners, policy, listen, **named)

    honest = SshHost.reconnect
    with pytest.MonkeyPatch.context() as patched, told_apart(place, far):
        patched.setattr("pgstrata.cli.campaign_run.run_campaign", run_and_cut)
        patched.setattr(SshHost, "reconnect", lambda host: honest(host, timeout_s=0.1 if for_good else 100))
        yield


def run_aloud(file: Path, place: Path, around: AbstractContextManager[object]) -> int:
    return run_in_fork(["run", str(file), "--out", str(place / "out")], environment(place), place / "log.txt", around)


def test_the_coordinator_is_killed_and_the_same_command_ends_the_campaign(place: Path, far: list[LoopbackSshd]) -> None:
    file = write_fleet(place, far, "tmpfs", blocks=2)
    code = run(file, place, around=told_apart(place, far), **{KILL_HOOK: str(IN_THE_SECOND_ROUND)})
    assert code == -signal.SIGKILL, (place / "log.txt").read_text()
    before = finished(place)
    assert before
    assert remains(place) != [], "it was killed in the middle of a trial"
    assert run(file, place, around=told_apart(place, far)) == 0, (place / "log.txt").read_text()
    now = finished(place)
    assert {id_: now[id_].verdict for id_ in before} == {id_: t.verdict for id_, t in before.items()}
    assert {t.verdict.status for t in now.values()} == {"ok"}
    hosts = Counter(t.trial.host for t in now.values())
    assert set(hosts.values()) == {2}
    assert len(hosts) == HOSTS
    wait_until(lambda: remains(place) == [], "the sessions of killed coordinators to end")


def test_a_host_that_is_lost_is_undone_from_its_own_journal_when_it_is_back_and_goes_on_when_it_is_back_at_once(
    place: Path, far: list[LoopbackSshd]
) -> None:
    file, lost = write_fleet(place, far, "ext4", blocks=1), far[0]
    assert run_aloud(file, place, cut_off(place, far, for_good=True)) == ExitCode.TRIALS_FAILED
    said = (place / "log.txt").read_text()
    assert f"{lost.target.text} is left out until the campaign is resumed" in said
    before = finished(place)
    assert {t.trial.host for t in before.values()} == {"local", far[1].target.text}
    journals = [list((state / "journal").glob("*.jsonl")) for state in states(place)]
    assert [bool(found) for found in journals] == [False, True, False], "what it has is in its own journal alone"
    lost.process.wait(60)
    lost.start()
    assert run_aloud(file, place, cut_off(place, far, for_good=False)) == ExitCode.DONE, (place / "log.txt").read_text()
    assert (place / "log.txt").read_text().count("ext4 is set aside: connection to") == 2
    assert len(list((place / "out" / "interrupted").iterdir())) == 2
    now = finished(place)
    assert {id_: now[id_].verdict for id_ in before} == {id_: t.verdict for id_, t in before.items()}
    assert Counter((t.trial.host, t.verdict.status) for t in now.values()) == {
        (name, "ok"): 1 for name in ["local", *(server.target.text for server in far)]
    }
    wait_until(lambda: remains(place) == [], "the sessions that were cut to end")


def test_the_trial_of_the_only_host_begins_anew_when_its_connection_was_cut(
    place: Path, far: list[LoopbackSshd]
) -> None:
    file = write_fleet(place, far, "tmpfs", blocks=1)
    text = file.read_text().replace(next(line for line in file.read_text().splitlines() if "hosts:" in line), "")
    file.write_text(f"{text}host: {far[0].target.text}\n")
    assert run_aloud(file, place, cut_off(place, far, for_good=False)) == ExitCode.DONE, (place / "log.txt").read_text()
    assert (place / "log.txt").read_text().count("tmpfs is set aside: connection to") == 1
    assert len(list((place / "out" / "interrupted").iterdir())) == 1
    assert [t.verdict.status for t in finished(place).values()] == ["ok"]
    wait_until(lambda: remains(place) == [], "the sessions that were cut to end")
