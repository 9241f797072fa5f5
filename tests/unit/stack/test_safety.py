"""Devices of a server this machine is not: partitions, holders, several namespaces; and undoing after a reboot."""

from __future__ import annotations

import json

import pytest

from pgstrata.errors import PreflightError
from pgstrata.host.fake import FakeHost, completed
from pgstrata.host.protocol import Command, Completed, FileStatus
from pgstrata.stack.clean import clean
from pgstrata.stack.journal import Journal
from pgstrata.stack.safety import inspect_device, refuse_or_allow
from pgstrata.stack.undo import RemovePath, StopMd, StopProcesses, WipeDevice, WriteFile

ID = "/dev/disk/by-id/ata-DISK_1"
ROOT = "22 1 8:17 / / rw,relatime shared:1 - ext4 /dev/sdb1 rw\n"
NOTHING = '{"signatures": []}'


class Server(FakeHost):
    """A server with the disk /dev/sda (8:0), which has the partition sda1 (8:1)."""

    def __init__(
        self,
        *,
        mountinfo: str = ROOT,
        other_mountinfo: str = ROOT,
        swaps: str = "",
        held: bool = False,
        signatures: str = NOTHING,
    ) -> None:
        self._signatures = signatures
        block = "/sys/class/block"
        files = {
            f"{block}/sda/size": "2097152",
            f"{block}/sda/sda1/partition": "1",
            f"{block}/sda/sda1/dev": "8:1\n",
            f"{block}/sda1/dev": "8:1\n",
            "/proc/self/mountinfo": mountinfo,
            "/proc/1/mountinfo": mountinfo,
            "/proc/77/mountinfo": other_mountinfo,
            "/proc/swaps": f"Filename\tType\tSize\tUsed\tPriority\n{swaps}",
            "/proc/sys/kernel/random/boot_id": "boot-2\n",
            "/proc/sys/vm/swappiness": "60\n",
        }
        super().__init__(files=files, answer=self._end)
        for name in ("sda", "sda1"):
            self.make_directory(f"{block}/{name}/holders")
        if held:
            self.make_directory(f"{block}/sda1/holders/dm-3")

    def _end(self, command: Command) -> Completed | None:
        argv = command.argv
        if argv[0] == "mdadm":
            return completed(argv, "MD_NAME=theirs:home\n")
        answers = {"readlink": "/dev/sda\n", "wipefs": self._signatures, "blkid": ""}
        if argv[0] == "stat":
            return completed(argv, "4026531840 /proc/1/ns/mnt\n4026532999 /proc/77/ns/mnt\n")
        return completed(argv, answers[argv[0]]) if argv[0] in answers else None

    def status(self, path: str, *, follow: bool = True) -> FileStatus | None:
        if path == "/dev/sda":
            return FileStatus("block", 0, 0, 0o660, 0, 6, (8, 0))
        return super().status(path, follow=follow)


def test_a_partition_alone_counts_as_content() -> None:
    state = inspect_device(Server(), ID)
    assert (state.node, state.size_bytes, state.in_use) == ("/dev/sda", 2**30, ())
    with pytest.raises(PreflightError, match="carries partition sda1"):
        refuse_or_allow(Server(), ID, ())
    assert refuse_or_allow(Server(), ID, (ID,)) == state


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (Server(mountinfo=f"{ROOT}40 22 8:1 / /home rw - ext4 /dev/sda1 rw\n"), "it is mounted at /home"),
        (Server(mountinfo=f"{ROOT}40 22 0:50 / /pool rw - btrfs /dev/sda1 rw\n"), "it is mounted at /pool"),
        (Server(other_mountinfo="40 22 8:1 / /inside rw - ext4 /dev/sda1 rw\n"), "it is mounted at /inside"),
        (Server(swaps="/dev/sda1 partition 1 0 -2\n"), "sda1 is swap in use"),
        (Server(held=True), "dm-3 is built on sda1"),
    ],
    ids=["mounted", "mounted with a device number of its own", "mounted in a container", "swap", "held"],
)
def test_a_partition_in_use_forbids_its_disk_even_with_erase(server: Server, why: str) -> None:
    with pytest.raises(PreflightError, match=f"is in use: {why}"):
        refuse_or_allow(server, ID, (ID,))


def test_after_a_reboot_settings_and_processes_are_left_alone() -> None:
    server = Server()
    server.make_directory("/s/pgstrata-t1")
    journal = Journal(server, "t1")
    server.make_directory("/var/lib/pgstrata/journal")
    server.append_text(journal.path, '{"boot": "boot-1"}\n')
    restore = WriteFile(path="/proc/sys/vm/swappiness", text="1")
    journal.register(RemovePath(path="/s/pgstrata-t1"), StopProcesses(marker="t1"), restore)
    undone = journal.undo_all()
    assert [u.line for u in undone if u.line] == ["removed /s/pgstrata-t1"]
    assert server.read_text("/proc/sys/vm/swappiness") == "60\n"
    assert server.stopped_markers == []
    assert server.status(journal.path) is None


def test_before_a_reboot_they_are_put_back() -> None:
    server = Server()
    journal = Journal.create(server, "t1")
    journal.register(WriteFile(path="/proc/sys/vm/swappiness", text="1"), StopProcesses(marker="t1"))
    journal.undo_all()
    assert server.read_text("/proc/sys/vm/swappiness") == "1"
    assert server.stopped_markers == ["t1"]


@pytest.mark.parametrize(
    ("uuid", "label", "outcome"),
    [
        ("1", "theirs", f"left {ID} alone: it carries ext4 'theirs' as before the trial"),
        ("1", "pgstrata-b0", f"left {ID} alone: it carries ext4 'pgstrata-b0' as before the trial"),
        ("2", "theirs", f"error: wipe_device: {ID} was not wiped: it carries ext4 'theirs'"),
        ("2", "pgstrata-b0", f"wiped the signatures of {ID}"),
    ],
)
def test_a_device_is_told_by_what_it_carried_before(uuid: str, label: str, outcome: str) -> None:
    found = {"offset": "0x438", "type": "ext4", "uuid": uuid, "label": label}
    server = Server(signatures=json.dumps({"signatures": [found]}))
    journal = Journal.create(server, "t1")
    journal.register(WipeDevice(id=ID, before=(f"ext4 {label!r} 1",)))
    (line,) = clean(server).lines
    assert outcome in line
    assert (("wipefs", "--all", "/dev/sda") in [c.argv for c in server.asked]) is outcome.startswith("wiped")
    assert (server.status(journal.path) is None) is ("error" not in outcome)


def test_a_journal_that_cannot_be_read_does_not_keep_the_others_from_being_cleaned() -> None:
    server = Server()
    for trial in ("t1", "t2", "t3"):
        Journal.create(server, trial).register(WriteFile(path="/proc/sys/vm/swappiness", text="1"))
    server.append_text("/var/lib/pgstrata/journal/t2.jsonl", "nonsense\n")
    cleaned = clean(server)
    lines = cleaned.lines
    assert cleaned.failed
    assert lines[0] == "t1: set /proc/sys/vm/swappiness back to 1"
    assert "t2: error: the undo journal" in lines[1]
    assert lines[2] == "t3: set /proc/sys/vm/swappiness back to 1"
    assert server.list_directory("/var/lib/pgstrata/journal") == ("t2.jsonl",)


def test_output_that_no_parser_understands_does_not_keep_the_others_from_being_undone() -> None:
    server = Server(signatures="[]")
    journal = Journal.create(server, "t1")
    journal.register(WriteFile(path="/proc/sys/vm/swappiness", text="1"), WipeDevice(id=ID))
    cleaned = clean(server)
    assert cleaned.failed
    assert cleaned.lines[0] == "t1: set /proc/sys/vm/swappiness back to 1"
    assert "internal error" in cleaned.lines[1]
    assert server.status(journal.path) is not None


def test_a_disk_that_has_become_a_member_of_another_array_is_left_alone() -> None:
    member = {"offset": "0x1000", "type": "linux_raid_member", "uuid": "5", "label": "theirs:home"}
    server = Server(signatures=json.dumps({"signatures": [member]}))
    Journal.create(server, "t1").register(StopMd(array="/dev/md/pgstrata-1", devices=(ID,)))
    (line,) = clean(server).lines
    assert "left /dev/sda alone: it has become a member of array home" in line
    assert not [c.argv for c in server.asked if "--zero-superblock" in c.argv]


@pytest.mark.parametrize("now", ["/dev/sda+1073741824+8:16", "/dev/sda+999+8:0"])
def test_a_device_that_has_another_size_or_number_now_is_not_wiped(now: str) -> None:
    server = Server(
        signatures='{"signatures": [{"offset": "0x0", "type": "ext4", "uuid": "", "label": "pgstrata-b0"}]}'
    )
    Journal.create(server, "t1").register(WipeDevice(id=now))
    cleaned = clean(server)
    assert cleaned.failed
    assert "is another device now" in cleaned.lines[0]
    assert "HINT" in cleaned.lines[0]
    assert ("wipefs", "--all", "/dev/sda") not in [c.argv for c in server.asked]


def test_what_lies_in_an_export_is_not_forgotten_after_a_reboot() -> None:
    server = Server()
    server.make_directory("/var/lib/pgstrata/journal")
    journal = Journal(server, "t1")
    server.append_text(journal.path, '{"boot": "boot-1"}\n')
    journal.register(RemovePath(path="/m/pgstrata-t1/data/pgstrata-t1-data", mount_source="nas:/bench"))
    cleaned = clean(server)
    assert cleaned.failed
    assert "pgstrata-t1-data may still lie in nas:/bench" in cleaned.lines[0]
    assert server.status(journal.path) is not None
