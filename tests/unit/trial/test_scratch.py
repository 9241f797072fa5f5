"""Whose scratch folder it is: safe to write to as root, and removed only where it was made for the campaign."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pgstrata.errors import PreflightError
from pgstrata.host.fake import FakeHost
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import FileStatus
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.stack import Existing, Stack, Volume
from pgstrata.trial.opening import is_campaigns_own
from pgstrata.trial.scratch import Trusted, check_scratch, folder_problem, trusted
from pgstrata.trial.site import Site
from pgstrata.trial.survey import survey


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


def site(tmp_path: Path, scratch: Path | None = None) -> Site:
    stack = Stack(name="here", data=Volume(fs=Existing(path=str(tmp_path))))
    host = LocalHost(state_directory=str(tmp_path / "state"))
    asked = Campaign(name="x", stacks=(stack,), scratch=str(scratch) if scratch else None)
    return replace(survey(host, asked, tmp_path / "out"), as_root=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="the folders must be root's")
def test_a_folder_on_the_way_that_others_may_change_is_refused(tmp_path: Path) -> None:
    check_scratch(site(tmp_path))
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "inner").mkdir()
    (tmp_path / "open").chmod(0o777)
    for scratch in (tmp_path / "open", tmp_path / "open" / "inner", tmp_path / "open" / "not" / "yet"):
        with pytest.raises(PreflightError, match="open can be written to by everybody") as refused:
            check_scratch(site(tmp_path, scratch))
        assert "chmod go-w" in refused.value.hint
    (tmp_path / "open").chmod(0o1777)
    check_scratch(site(tmp_path, tmp_path / "open"))


def test_a_scratch_folder_that_was_there_is_not_the_campaigns_own(tmp_path: Path) -> None:
    assert is_campaigns_own(site(tmp_path))
    (tmp_path / "out" / "scratch").mkdir(parents=True)
    assert is_campaigns_own(site(tmp_path)), "left there by a run that was killed"
    assert is_campaigns_own(site(tmp_path, tmp_path / "new"))
    (tmp_path / "there").mkdir()
    assert not is_campaigns_own(site(tmp_path, tmp_path / "there"))
    far = replace(site(tmp_path), host=FakeHost(name="ssh://db1", files={"/var/tmp/other": ""}), scratch="/var/tmp")
    assert not is_campaigns_own(far)
