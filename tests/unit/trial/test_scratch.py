"""Whose scratch folder it is: safe to write to as root, and removed only where it was made for the campaign."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fake_host import FakeHost
from pgstrata.errors import PreflightError
from pgstrata.host.delivery import Trusted, folder_problem, trusted
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import FileStatus, Host
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.layers.not_built import Existing
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack.journal import Journal, clean
from pgstrata.trial.survey.host_survey import Site, check_scratch, make_scratch
from pgstrata.trial.survey.survey import survey


def folder(mode: int, uid: int = 0, gid: int = 0) -> FileStatus:
    return FileStatus("directory", 4096, 4096, mode, uid, gid)


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (folder(0o755), ""),
        (folder(0o1777), ""),
        (folder(0o775), ""),
        (folder(0o775, gid=1000), "can be written to by group 1000"),
        (folder(0o777), "can be written to by everybody"),
        (folder(0o700, uid=1000), "belongs to user 1000"),
        (folder(0o1777, uid=1000), "belongs to user 1000"),
        (replace(folder(0o755), kind="file"), "is no folder"),
    ],
)
def test_who_may_change_a_folder(status: FileStatus, problem: str) -> None:
    assert folder_problem(status, Trusted()) == problem


def test_who_became_root_by_sudo_is_trusted_on_this_machine_alone() -> None:
    by_sudo = {"SUDO_UID": "1000", "SUDO_GID": "1001"}
    assert folder_problem(folder(0o775, 1000, 1001), trusted(FakeHost(name="local"), by_sudo)) == ""
    assert folder_problem(folder(0o775, 1000, 1001), trusted(FakeHost(name="ssh://db1"), by_sudo)) != ""
    assert trusted(FakeHost(name="local"), {"SUDO_UID": "x"}) == Trusted()


def site(tmp_path: Path) -> Site:
    stack = Stack(name="here", data=Volume(fs=Existing(path=str(tmp_path))))
    host = LocalHost(state_directory=str(tmp_path / "state"))
    return replace(survey(host, Campaign(name="x", stacks=(stack,)), tmp_path / "out"), uid=0)


@pytest.mark.skipif(os.geteuid() != 0, reason="the folders must be root's")
def test_a_folder_on_the_way_that_others_may_change_is_refused(tmp_path: Path) -> None:
    here = site(tmp_path)
    check_scratch(here)
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "inner").mkdir()
    (tmp_path / "open").chmod(0o777)
    for scratch in (tmp_path / "open", tmp_path / "open" / "inner", tmp_path / "open" / "not" / "yet"):
        with pytest.raises(PreflightError, match="open can be written to by everybody") as refused:
            check_scratch(replace(here, scratch=str(scratch)))
        assert "chmod go-w" in refused.value.hint
    (tmp_path / "open").chmod(0o1777)
    check_scratch(replace(here, scratch=str(tmp_path / "open")))


def _journal(host: Host) -> Journal:
    return Journal.create(host, "golden-x")


def test_only_folders_that_were_made_are_removed_again(tmp_path: Path) -> None:
    host = LocalHost(state_directory=str(tmp_path / "state"))
    (tmp_path / "there").mkdir()
    for scratch in (tmp_path / "there", tmp_path / "there" / "new" / "below"):
        journal = _journal(host)
        make_scratch(host, str(scratch), journal)
        assert scratch.is_dir()
        assert not [u.error for u in journal.undo_all() if u.error]
        assert list((tmp_path / "there").iterdir()) == []


def test_a_scratch_folder_of_a_killed_run_is_removed_by_clean_unless_it_is_another_one_now(tmp_path: Path) -> None:
    host = LocalHost(state_directory=str(tmp_path / "state"))
    for replaced in (False, True):
        make_scratch(host, str(tmp_path / "scratch"), _journal(host))
        host.unlock("trial-golden-x")
        if replaced:
            (tmp_path / "scratch").rename(tmp_path / "kept")  # so that its inode is not given to another
            (tmp_path / "scratch").mkdir()
        assert not clean(host).failed
        assert (tmp_path / "scratch").exists() is replaced


def test_a_scratch_folder_that_others_use_stays(tmp_path: Path) -> None:
    host = LocalHost(state_directory=str(tmp_path / "state"))
    journal = _journal(host)
    make_scratch(host, str(tmp_path / "scratch"), journal)
    (tmp_path / "scratch" / "theirs").write_text("x")
    assert [(u.line, u.error) for u in journal.undo_all()] == [("", "")]
    assert (tmp_path / "scratch" / "theirs").exists()


def test_the_scratch_folder_of_a_host_over_ssh_stays(tmp_path: Path) -> None:
    far = FakeHost(name="ssh://db1", files={"/var/tmp/other": "", "/proc/sys/kernel/random/boot_id": "b\n"})
    journal = _journal(far)
    make_scratch(far, "/var/tmp", journal)
    far.remove("/var/tmp/other")
    assert journal.undo_all() == ()
    assert far.status("/var/tmp") is not None
