"""What workers of other machines must have before they look at states; whoever lacks it is named."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fake_host import FakeHost, completed, opening, refused
from pgstrata.crash import remote_workers
from pgstrata.crash.job import plan_stages
from pgstrata.crash.remote_workers import (
    MachineAsked,
    MachineTold,
    RemoteWorkers,
    disks_problem,
    problem_of,
    refuse_lasting,
    refuse_problems,
)
from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Completed
from pgstrata.spec.crash import crash_campaign, named_stacks
from pgstrata.stack.plan import PlanContext, plan_stack
from pgstrata.trial.events import silent
from pgstrata.trial.scheduler import Inline

POSTGRES = "/usr/lib/postgresql/17/bin/postgres"


@pytest.fixture(autouse=True)
def _as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def host(strata_disk: str = "strata-disk 1.0", postgres: str = "postgres (PostgreSQL) 17.2") -> FakeHost:
    def said(argv: tuple[str, ...], line: str) -> Completed:
        return completed(argv, f"{line}\n") if line else completed(argv, exit_code=127, stderr="not found")

    disk, server = ("strata-disk", "--version"), (POSTGRES, "--version")
    return FakeHost({disk: said(disk, strata_disk), server: said(server, postgres), **nodes()})


def nodes(**other: str) -> dict[tuple[str, ...], Completed]:
    """Numbers of the devices that disks of a state need."""
    told = {"/dev/fuse": "a:e5", "/dev/loop-control": "a:ed"} | {f"/dev/{name}": text for name, text in other.items()}
    answers: dict[tuple[str, ...], Completed] = {}
    for node, numbers in told.items():
        asked, opened = ("stat", "--dereference", "--format=%t:%T", node), opening(node)
        answers |= {asked: completed(asked, f"{numbers}\n"), opened: completed(opened)}
    return answers


@pytest.mark.parametrize("name", ["fuse", "loop-control"])
def test_a_hidden_device_is_a_problem_before_anything_is_built(name: str) -> None:
    assert disks_problem(FakeHost(nodes())) == ""
    hidden = disks_problem(FakeHost(nodes(**{name: "1:3"})))
    assert hidden.startswith(f"/dev/{name} is not the kernel's device: its numbers are 1:3")


@pytest.mark.parametrize("name", ["/dev/fuse", "/dev/loop-control"])
def test_a_device_that_cannot_be_opened_is_a_problem(name: str) -> None:
    withheld = FakeHost({**nodes(), opening(name): refused(name, "Operation not permitted")})
    assert disks_problem(withheld) == f"{name}: Operation not permitted"


def asked(there: FakeHost, **other: str) -> MachineAsked:
    told = {
        "program": "strata-disk 1.0",
        "postgres": POSTGRES,
        "version": "postgres (PostgreSQL) 17.2",
        "user": "root",
        "mount_root": f"{there.state_directory()}/mount",
    }
    return MachineAsked.model_validate({**told, **other, "needs": ()})


def test_a_machine_that_has_everything() -> None:
    assert problem_of(host(), asked(host())) == ""


@pytest.mark.parametrize(
    ("there", "other", "problem"),
    [
        (host(strata_disk="strata-disk 0.9"), {}, "strata-disk is strata-disk 1.0 at the trial, and there: strata-d"),
        (host(strata_disk=""), {}, "strata-disk is strata-disk 1.0 at the trial, and there: not found"),
        (host(postgres="postgres (PostgreSQL) 16.1"), {}, r"PostgreSQL is postgres \(PostgreSQL\) 17.2 at the trial"),
        (host(), {"user": "nobody-of-this-name"}, "there is no user nobody-of-this-name"),
        (host(), {"mount_root": "/elsewhere/mount"}, "set PGSTRATA_STATE_DIRECTORY alike"),
    ],
)
def test_what_is_other_there_is_told(there: FakeHost, other: dict[str, str], problem: str) -> None:
    told = problem_of(there, asked(there, **other))
    with pytest.raises(PreflightError, match=rf"db1 \(tls://10\.0\.0\.1:1\): .*{problem}"):
        refuse_problems("ext4", {"db0": MachineTold(), "db1 (tls://10.0.0.1:1)": MachineTold(problem=told)})


def test_a_worker_without_root_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = pwd.getpwnam("nobody")
    monkeypatch.setattr(os, "geteuid", lambda: nobody.pw_uid)
    assert problem_of(host(), asked(host())).startswith("it runs as nobody: only root")


def test_what_a_machine_lacks_for_the_stack_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lacking:
        text = "xfs: mkfs.xfs is not installed"

    monkeypatch.setattr(remote_workers, "missing", lambda host, needs: (Lacking(),))
    assert problem_of(host(), asked(host())) == "xfs: mkfs.xfs is not installed"


@pytest.mark.parametrize(
    "text", ["lvm(2)/ext4", "md(raid1,2)/xfs", "nfs", "zfs", "ext4@wal=zfs", "luks/ext4", "zvol/xfs"]
)
def test_stacks_of_which_a_part_outlives_who_brought_it_up_are_refused(text: str) -> None:
    (stack,) = crash_campaign(named_stacks([text])).stacks
    stages = plan_stages(plan_stack(stack, PlanContext("t1", "/s", 1 << 30, "postgres")).volumes)
    with pytest.raises(PreflightError, match="concerns the whole machine") as refused:
        refuse_lasting(text, stages)
    assert "--workers" in refused.value.hint


@pytest.mark.parametrize("text", ["ext4", "xfs@wal=ext4", "btrfs(raid1)", "ext4@wal=btrfs"])
def test_others_are_not(text: str) -> None:
    (stack,) = crash_campaign(named_stacks([text])).stacks
    stages = plan_stages(plan_stack(stack, PlanContext("t1", "/s", 1 << 30, "postgres")).volumes)
    refuse_lasting(text, stages)
    lasting = replace(stages[-1], in_sight=True)
    with pytest.raises(PreflightError, match="concerns the whole machine"):
        refuse_lasting(text, (*stages[:-1], lasting))
    assert [stage.in_sight for stage in stages] == [False] * len(stages) != []


class OneWorker:
    """A cluster whose worker answers so."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    def ask_each(self, function: object, *data: str) -> dict[str, str]:
        return {"db1": self.answer}


@pytest.mark.parametrize("answer", ["", "[]", '{"problem": 7}', '{"kernel": "6.1", "more": 1}'])
def test_a_wrong_answer_is_an_error_that_names_its_worker(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = SimpleNamespace(
        stack=SimpleNamespace(name="ext4"),
        site=SimpleNamespace(host=SimpleNamespace(read_text=lambda path: "6.1")),
        plan=SimpleNamespace(volumes=()),
    )
    monkeypatch.setattr(remote_workers, "machine_asked", lambda setup: asked(host()))
    workers = RemoteWorkers(Inline(), 1, OneWorker(answer).ask_each)
    with pytest.raises(PreflightError, match="db1 gave a wrong answer"):
        remote_workers.require_machines(setup, workers, silent)  # type: ignore[arg-type]
