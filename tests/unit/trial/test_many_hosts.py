"""Campaigns on several hosts: a block of each in a round, resumed without a trial twice, a lost host left out."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pgstrata.analyze.campaign.hosts_policy import HostsPolicy
from pgstrata.analyze.campaign.metrics import Observer
from pgstrata.cli import campaign_run
from pgstrata.errors import RecordError, UsageError, writing
from pgstrata.host.protocol import HostLost
from pgstrata.record import recorder
from pgstrata.record.decision import Decision, Observation
from pgstrata.record.reader import TrialData, read, read_trial
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import MediumRecord, TrialVerdict
from pgstrata.record.source import FolderSource
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.trial.events import Event, Notice, Tell, silent
from pgstrata.trial.interruption import Interrupted, Interruption
from pgstrata.trial.scheduler import Outcome, Runners, ended, run_campaign
from pgstrata.trial.scheduling import OneByOne
from pgstrata_fake.runner import FakeRunner

pytestmark = pytest.mark.slow

HOSTS = ("ssh://a", "ssh://b", "ssh://c")


def campaign(hosts: tuple[str, ...] = HOSTS, **more: object) -> Campaign:
    stacks = [{"name": name, "data": {"fs": {"kind": name}}} for name in ("ext4", "tmpfs")]
    workload = {"scale": 1, "clients": 2, "duration": 5}
    asked = {"name": "fleet", "stacks": stacks, "hosts": hosts, "workload": workload, "runs": {"blocks": 2}, **more}
    return Campaign.model_validate(asked)


@dataclass
class Watched(OneByOne):
    """Counts the trials of a host at once; stops or loses the host after so many."""

    campaign: Campaign
    lost_after: int = 99
    error_after: int = 99
    full_after: int = 99
    ran: list[str] = field(default_factory=list)
    most: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin_block(self, block: int, directory: CampaignDirectory) -> None:
        pass

    def run(self, trial: Trial, directory: CampaignDirectory, tell: Tell) -> TrialVerdict:
        assert self._lock.acquire(blocking=False), "two trials at once on one host"
        try:
            if len(self.ran) >= self.lost_after:
                raise HostLost("it did not come back")
            if len(self.ran) >= self.error_after:
                raise Interrupted("SIGTERM")
            if len(self.ran) >= self.full_after:
                with writing(Path("/dev/full")):
                    Path("/dev/full").write_text("a log", encoding="utf-8")
            self.ran.append(trial.id)
            return FakeRunner(self.campaign).run(trial, directory, tell)
        finally:
            self._lock.release()


def run(out: Path, asked: Campaign, runners: dict[str, Watched], tell: Tell = silent) -> Outcome:
    with CampaignDirectory.create_or_open(out, asked) as directory, ThreadPoolExecutor(len(runners)) as executor:
        named: Runners = dict(runners)
        return run_campaign(
            asked,
            directory,
            named,
            HostsPolicy.of(asked, ("ext4", "tmpfs")),
            tell,
            observe=Observer("tps"),
            interruption=Interruption(),
            executor=executor,
        )


def watched(asked: Campaign) -> dict[str, Watched]:
    return {name: Watched(asked) for name in asked.hosts}


def test_every_host_runs_complete_blocks_of_its_own(tmp_path: Path) -> None:
    asked = campaign()
    outcome = run(tmp_path / "c", asked, watched(asked))
    assert outcome.reason == "blocks done: 2 on each host, as planned"
    trials = [t.trial for t in read(tmp_path / "c").trials]
    assert Counter((t.host, t.stack) for t in trials) == {(h, s): 2 for h in HOSTS for s in ("ext4", "tmpfs")}
    assert all(len({t.host for t in trials if t.block == block}) == 1 for block in range(6))
    assert len({t.block for t in trials}) == 6
    fresh = campaign(runs={"blocks": 2, "fresh_blocks": 1})
    run(tmp_path / "fresh", fresh, watched(fresh))
    loads = {(t.trial.host, t.trial.block >= 3): t.trial.load for t in read(tmp_path / "fresh").trials}
    assert loads == {(host, later): "copy" if later else "fresh" for host in HOSTS for later in (False, True)}


@dataclass
class Memory:
    """Looks before each decision how many of the trials that were taken up, or read since, are still in memory."""

    observer: Observer = field(default_factory=lambda: Observer("tps"))
    taken_up: list[weakref.ref[TrialData]] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)

    def observe(self, trials: Sequence[TrialData]) -> Sequence[Observation]:
        self.taken_up.extend(weakref.ref(trial) for trial in trials)
        return self.observer(trials)

    def read(self, source: FolderSource, name: str) -> TrialData:
        trial = read_trial(source, name)
        self.taken_up.append(weakref.ref(trial))
        return trial

    def policy(self, before: Callable[[], None] = lambda: None) -> type[HostsPolicy]:
        memory = self

        class Counting(HostsPolicy):
            def decide(self, observations: Sequence[Observation], rounds_done: int, elapsed_s: float) -> Decision:
                before()
                gc.collect()
                memory.kept.append(sum(one() is not None for one in memory.taken_up))
                return super().decide(observations, rounds_done, elapsed_s)

        return Counting


def test_of_a_round_that_was_taken_up_no_trial_stays_in_memory(tmp_path: Path) -> None:
    """A fleet has hundreds of thousands of them."""
    memory = Memory()
    asked = campaign(runs={"blocks": 3})
    policy = memory.policy().of(asked, ("ext4", "tmpfs"))
    with CampaignDirectory.create_or_open(tmp_path / "c", asked) as directory, ThreadPoolExecutor(3) as executor:
        outcome = run_campaign(
            asked, directory, dict(watched(asked)), policy, silent,
            observe=memory.observe, interruption=Interruption(), executor=executor,
        )  # fmt: skip
    assert (len(memory.taken_up), outcome.counts) == (18, {"ok": 18})
    assert max(memory.kept) <= 1, "the last one that was taken up may still be at hand"


def test_nor_does_one_when_the_command_goes_on_and_a_worker_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'pgstrata[dask]'")
    from pgstrata.fleet.messages import SessionAnswer, render_answer
    from pgstrata.fleet.opening import take_up

    asked, out = campaign(runs={"blocks": 3}), tmp_path / "c"
    assert run(out, asked, watched(asked) | {"ssh://b": Watched(asked, error_after=3)}).interrupted
    memory, baseline = Memory(), MediumRecord(at="now", before_block=0, medium="m", seconds=1.0, host="ssh://b")

    def reopen() -> None:
        """As after a loss: the session of the next worker tells its baseline."""
        answer = render_answer(SessionAnswer(media=(baseline.model_dump_json(),)))
        take_up("ssh://b", answer, opened[0], silent)

    opened: list[CampaignDirectory] = []
    honest = run_campaign

    def spied(asked_: Campaign, directory: CampaignDirectory, *args: Any, **named: Any) -> Outcome:
        opened.append(directory)
        monkeypatch.setattr(recorder, "read_trial", memory.read)
        return honest(asked_, directory, *args, **{**named, "observe": memory.observe})

    monkeypatch.setenv("PGSTRATA_FAKE", "1")
    monkeypatch.setattr(campaign_run, "run_campaign", spied)
    monkeypatch.setattr(campaign_run, "HostsPolicy", memory.policy(lambda: reopen() if opened else None))
    campaign_run.run_to_report(asked, out, "run", campaign_run.Shown(quiet=True))
    assert len(memory.kept) == 2
    assert max(memory.kept) <= 1
    assert [m.before_block for m in read(out).media] == [6, 9]


@pytest.mark.parametrize("after", [0, 1, 3])
def test_resumed_it_runs_no_trial_twice_and_ends_the_same(tmp_path: Path, after: int) -> None:
    asked = campaign()
    run(tmp_path / "whole", asked, watched(asked))
    first = watched(asked) | {"ssh://b": Watched(asked, error_after=after)}
    assert run(tmp_path / "c", asked, first).interrupted
    second = watched(asked)
    run(tmp_path / "c", asked, second)
    ran = [id_ for runners in (first, second) for one in runners.values() for id_ in one.ran]
    assert sorted(ran) == sorted(set(ran)) == sorted(t.id for t in read(tmp_path / "whole").trials)
    ours, theirs = read(tmp_path / "c"), read(tmp_path / "whole")
    assert [(t.trial, [c.result for c in t.cells]) for t in ours.trials] == [
        (t.trial, [c.result for c in t.cells]) for t in theirs.trials
    ]
    with CampaignDirectory.create_or_open(tmp_path / "c", asked) as directory:
        done = ended(asked, directory, HostsPolicy.of(asked, ("ext4", "tmpfs")), observe=Observer("tps"))
    assert done is not None


def test_a_full_disk_of_the_coordinator_ends_the_run_and_the_others_finish_their_trials(tmp_path: Path) -> None:
    asked = campaign()
    first = watched(asked) | {"ssh://b": Watched(asked, full_after=1)}
    with pytest.raises(RecordError, match="no space left"):
        run(tmp_path / "c", asked, first)
    kept = {t.id for t in read(tmp_path / "c").trials}
    assert kept == {id_ for one in first.values() for id_ in one.ran}
    second = watched(asked)
    run(tmp_path / "c", asked, second)
    ran = [id_ for runners in (first, second) for one in runners.values() for id_ in one.ran]
    assert sorted(ran) == sorted(set(ran)) == sorted(t.id for t in read(tmp_path / "c").trials)
    assert len(ran) == 12


def test_a_lost_host_is_left_out_and_its_trials_run_when_it_is_back(tmp_path: Path) -> None:
    asked, told = campaign(), list[Event]()
    runners = watched(asked) | {"ssh://c": Watched(asked, lost_after=1)}
    outcome = run(tmp_path / "c", asked, runners, told.append)
    assert (outcome.interrupted, len(runners["ssh://a"].ran)) == (False, 4)
    assert [e.text for e in told if isinstance(e, Notice)] == [
        "ssh://c is left out until the campaign is resumed: it did not come back"
    ]
    again = watched(asked)
    run(tmp_path / "c", asked, again)
    assert [len(again[host].ran) for host in HOSTS] == [0, 0, 1]


def test_hosts_may_join_and_leave_but_one_host_does_not_become_several(tmp_path: Path) -> None:
    asked = campaign(("ssh://a", "ssh://b"))
    run(tmp_path / "c", asked, watched(asked))
    more = campaign(("ssh://b", "ssh://d"), runs={"blocks": 3})
    run(tmp_path / "c", more, watched(more))
    hosts = Counter(t.trial.host for t in read(tmp_path / "c").trials)
    assert hosts == {"ssh://a": 4, "ssh://b": 6, "ssh://d": 2}
    with pytest.raises(UsageError, match="hosts differ"):
        CampaignDirectory.create_or_open(tmp_path / "c", campaign(()))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"hosts": ["ssh://a", "ssh://a"]}, "ssh://a twice"),
        ({"hosts": ["ssh://a", "lab"]}, "lab"),
        ({"host": "ssh://x"}, "exclude each other"),
        ({"crash": {}}, "not with latency, soak or crash"),
        ({"soak": {}}, "not with latency, soak or crash"),
    ],
)
def test_what_does_not_go_together_is_refused(more: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        campaign(**more)  # type: ignore[arg-type]


def test_a_wait_in_the_thread_of_a_host_is_ended_and_what_undoes_is_not() -> None:
    main, ended_wait, in_wait, raised = Interruption(), threading.Event(), threading.Event(), list[str]()
    host = main.of_host(ended_wait.set)

    def work() -> None:
        try:
            with host.waiting():
                in_wait.set()
                ended_wait.wait(60)
        except Interrupted as error:
            raised.append(str(error))
        with host.waiting():
            pass  # undoing waits, too, and is not interrupted again

    thread = threading.Thread(target=work)
    thread.start()
    assert in_wait.wait(60)
    host.received = "SIGTERM"
    main.end_waits()
    thread.join(60)
    assert raised == ["interrupted by SIGTERM"]
    ended_wait.clear()
    main.end_waits()
    assert not ended_wait.is_set(), "it waits for nothing any more"


def test_a_host_that_is_lost_keeps_no_other_from_being_ended() -> None:
    main, ended_wait = Interruption(), threading.Event()

    def lose() -> None:
        raise HostLost("no answer from ssh://a to cancel")

    lost, other = main.of_host(lose), main.of_host(ended_wait.set)
    with lost.waiting(), other.waiting():
        main.end_waits()
        assert ended_wait.is_set()
