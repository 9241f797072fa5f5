"""The undo journal as a file."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from pgstrata.errors import PgstrataError
from pgstrata.host.local import LocalHost
from pgstrata.stack.block.loop import DetachLoops
from pgstrata.stack.block.lvm import RemoveVg
from pgstrata.stack.block.md import StopMd
from pgstrata.stack.fs.nfs import Unexport
from pgstrata.stack.fs.zfs_status import DestroyPool
from pgstrata.stack.journal import Journal, in_order_of_undoing, parse_journal
from pgstrata.stack.undo import GiveBackSetting, RemovePath, StopProcesses, Undo, Unmount, WipeDevice, is_ours

UNDOS: tuple[Undo, ...] = (
    RemovePath(path="/s/pgstrata-t1"),
    StopProcesses(marker="t1"),
    DetachLoops(backing_files=("/s/pgstrata-t1/data.0.img",)),
    StopMd(array="/dev/md/pgstrata-t1-data", devices=("/s/a", "/s/b")),
    RemoveVg(vg="pgstrata-t1-data"),
    DestroyPool(pool="pgstrata-t1-data"),
    Unmount(target="/run/pgstrata-t1/data"),
    Unexport(client="127.0.0.1", path="/run/pgstrata-t1/data"),
    WipeDevice(id="/dev/disk/by-id/a"),
    GiveBackSetting(trial="t1", group="/proc/sys/vm/swappiness"),
)


def _file(*undos: Undo, boot: str = "b1") -> str:
    return "".join(f"{line}\n" for line in (json.dumps({"boot": boot}), *(u.model_dump_json() for u in undos)))


def test_every_undo_comes_back_from_the_file() -> None:
    entries = parse_journal(_file(*UNDOS))
    assert (entries.boot, entries.undos) == ("b1", UNDOS)


def test_a_torn_last_line_is_left_out() -> None:
    text = _file(*UNDOS)
    assert parse_journal(text + '{"kind":"unmo').undos == UNDOS


@pytest.mark.parametrize("text", ["", '{"boot":'])
def test_a_journal_without_its_first_line_is_not_taken_for_one_with_nothing_to_undo(text: str) -> None:
    with pytest.raises(PgstrataError, match="has lost its first line") as caught:
        parse_journal(text)
    assert "by hand" in caught.value.hint


def test_a_line_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(PgstrataError, match="the undo journal cannot be read"):
        parse_journal(_file(*UNDOS) + '{"kind":"format_everything"}\n')


def test_undone_backwards_once_and_processes_first() -> None:
    order = in_order_of_undoing((*UNDOS, UNDOS[0]))
    assert order[0] == UNDOS[1]
    assert order[1] == UNDOS[0]
    assert order[2:] == tuple(reversed(UNDOS[2:]))


@pytest.mark.parametrize("path", ["/s/pgstrata-t1", "/s/pgstrata-t1/mount/data", "/run/pgstrata-t1"])
def test_what_is_ours(path: str) -> None:
    assert is_ours(path)


@pytest.mark.parametrize("path", ["/", "/home", "/srv/pgstrata", "pgstrata-t1", "/s/pgstrata-t1/../../home", ""])
def test_what_is_not_ours(path: str) -> None:
    assert not is_ours(path)


def test_what_undo_would_leave_alone_is_not_journaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSTRATA_STATE_DIRECTORY", str(tmp_path))
    with closing(LocalHost()) as host:
        journal = Journal.create(host, "t1")
        before = Path(journal.path).read_text()
        with pytest.raises(ValueError, match="/s/states-1 would not be removed"):
            journal.register(RemovePath(path="/s/pgstrata-t1"), RemovePath(path="/s/states-1"))
        assert Path(journal.path).read_text() == before
        assert journal.undo_all() == ()
