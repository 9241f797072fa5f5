"""Devices of a server this machine is not: partitions, holders, several namespaces; and undoing after a reboot."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fake_host import FakeHost, completed
from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Command, Completed, FileStatus, OpenDevice
from pgstrata.stack.block.md import StopMd
from pgstrata.stack.build import StepRunner
from pgstrata.stack.journal import Journal, clean
from pgstrata.stack.safety import inspect_device, refuse_or_allow
from pgstrata.stack.step import Setting, Step
from pgstrata.stack.tuning.setting import take_settings
from pgstrata.stack.undo import GiveBackSetting, RemovePath, StopProcesses, WipeDevice

ID = "/dev/disk/by-id/ata-DISK_1"
SWAPPINESS = "/proc/sys/vm/swappiness"
NOTHING = '{"signatures": []}'


class Server(FakeHost):
    """A server with the disk /dev/sda (8:0), which has the partition sda1 (8:1)."""

    def __init__(self, *, uses: tuple[str, ...] = (), signatures: str = NOTHING, content_at: int | None = None) -> None:
        self._signatures = signatures
        block = "/sys/class/block"
        files = {
            f"{block}/sda/size": "2097152",
            f"{block}/sda/dev": "8:0\n",
            f"{block}/sda/sda1/partition": "1",
            "/proc/self/mountinfo": "22 1 8:17 / / rw,relatime shared:1 - ext4 /dev/sdb1 rw\n",
            "/proc/sys/kernel/random/boot_id": "boot-2\n",
            "/proc/sys/vm/swappiness": "60\n",
        }
        contents = {} if content_at is None else {"/dev/sda": content_at}
        super().__init__(files=files, answer=self._end, uses={"/dev/sda": uses}, contents=contents)

    def _end(self, command: Command) -> Completed | None:
        argv = command.argv
        if argv[0] == "mdadm":
            return completed(argv, "MD_NAME=theirs:home\n")
        answers = {"readlink": "/dev/sda\n", "wipefs": self._signatures, "blkid": ""}
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


def test_a_device_in_use_is_refused_even_with_erase() -> None:
    server = Server(uses=("loop device loop7 sits on sda1",))
    with pytest.raises(PreflightError, match="is in use: loop device loop7 sits on sda1"):
        refuse_or_allow(server, ID, (ID,))


def test_who_only_looks_at_a_device_does_not_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgstrata.stack.safety.PASSING_PAUSE_S", 0)
    server = Server()
    looks = [("sda is open in udevd (pid 7)",), ("sda is open in udevd (pid 7)",)]
    real = server.open_device

    def open_device(path: str, *, write: bool = False, exclusive: bool = True) -> OpenDevice:
        device = real(path, write=write, exclusive=exclusive)
        return replace(device, passing=looks.pop()) if looks else device

    monkeypatch.setattr(server, "open_device", open_device)
    assert inspect_device(server, ID).in_use == ()
    looks += [("sda is open in qemu (pid 8)",)] * 100
    with pytest.raises(PreflightError, match="is in use: sda is open in qemu"):
        refuse_or_allow(server, ID, (ID,))


def test_a_name_that_is_another_device_to_the_kernel_is_refused() -> None:
    server = Server()
    server.write_text("/sys/class/block/sda/dev", "8:16\n")
    with pytest.raises(PreflightError, match="is device 8:0, but to the kernel that name is 8:16"):
        inspect_device(server, ID)


def test_after_a_reboot_settings_and_processes_are_left_alone() -> None:
    server = Server()
    server.make_directory("/s/pgstrata-t1")
    journal = Journal(server, "t1")
    server.make_directory("/var/lib/pgstrata/journal")
    server.append_text(journal.path, '{"boot": "boot-1"}\n')
    restore = GiveBackSetting(trial="t1", group=SWAPPINESS)
    take_settings(server, "t1", [(SWAPPINESS, "1")])
    server.write_text(SWAPPINESS, "77\n")
    journal.register(RemovePath(path="/s/pgstrata-t1"), StopProcesses(marker="t1"), restore)
    undone = journal.undo_all()
    assert [u.line for u in undone if u.line] == ["removed /s/pgstrata-t1"]
    assert server.read_text(SWAPPINESS) == "77\n"
    assert server.stopped_markers == []
    assert server.status(journal.path) is None


def test_before_a_reboot_they_are_put_back() -> None:
    server = Server()
    journal = Journal.create(server, "t1")
    StepRunner(server, journal).run(Step("settings", (), settings=(Setting(SWAPPINESS, "1"),)))
    journal.register(StopProcesses(marker="t1"))
    assert server.read_text(SWAPPINESS) == "1"
    journal.undo_all()
    assert server.read_text(SWAPPINESS) == "60"
    assert server.stopped_markers == ["t1"]


def _content(server: Server) -> int | None:
    return server.first_content(server.open_device("/dev/sda").handle)


@pytest.mark.parametrize(
    ("uuid", "label", "outcome"),
    [
        ("1", "theirs", f"left {ID} alone: it carries ext4 'theirs' as before the trial"),
        ("1", "pgstrata", f"left {ID} alone: it carries ext4 'pgstrata' as before the trial"),
        ("2", "theirs", f"error: wipe_device: {ID} was not wiped: it carries ext4 'theirs'"),
        ("2", "my pgstrata", f"error: wipe_device: {ID} was not wiped: it carries ext4 'my pgstrata'"),
        ("2", "pgstrata", f"wiped {ID}"),
    ],
)
def test_a_device_is_told_by_what_it_carried_before(uuid: str, label: str, outcome: str) -> None:
    found = {"offset": "0x438", "type": "ext4", "uuid": uuid, "label": label}
    server = Server(signatures=json.dumps({"signatures": [found]}), content_at=1080)
    journal = Journal.create(server, "t1")
    journal.register(WipeDevice(id=ID, before=(f"ext4 {label!r} 1",)))
    (line,) = clean(server).lines
    assert outcome in line
    assert (_content(server) is None) is outcome.startswith("wiped")
    assert (server.status(journal.path) is None) is ("error" not in outcome)


def test_a_journal_that_cannot_be_read_does_not_keep_the_others_from_being_cleaned() -> None:
    server = Server()
    for trial in ("t1", "t2", "t3"):
        server.make_directory(f"/s/pgstrata-{trial}")
        Journal.create(server, trial).register(RemovePath(path=f"/s/pgstrata-{trial}"))
    server.append_text("/var/lib/pgstrata/journal/t2.jsonl", "nonsense\n")
    cleaned = clean(server)
    lines = cleaned.lines
    assert cleaned.failed
    assert lines[0] == "t1: removed /s/pgstrata-t1"
    assert "t2: error: the undo journal" in lines[1]
    assert lines[2] == "t3: removed /s/pgstrata-t3"
    assert server.list_directory("/var/lib/pgstrata/journal") == ("t2.jsonl",)


def test_output_that_no_parser_understands_does_not_keep_the_others_from_being_undone() -> None:
    server = Server(signatures="[]")
    journal = Journal.create(server, "t1")
    server.make_directory("/s/pgstrata-t1")
    journal.register(RemovePath(path="/s/pgstrata-t1"), WipeDevice(id=ID))
    cleaned = clean(server)
    assert cleaned.failed
    assert cleaned.lines[0] == "t1: removed /s/pgstrata-t1"
    assert "is not understood" in cleaned.lines[1]
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
        signatures='{"signatures": [{"offset": "0x0", "type": "ext4", "uuid": "", "label": "pgstrata"}]}',
        content_at=1080,
    )
    Journal.create(server, "t1").register(WipeDevice(id=now))
    cleaned = clean(server)
    assert cleaned.failed
    assert "is another device now" in cleaned.lines[0]
    assert "HINT" in cleaned.lines[0]
    assert _content(server) == 1080


@pytest.mark.parametrize("held", [False, True])
def test_data_without_a_signature_is_wiped_only_by_who_held_the_device_since_it_was_blank(held: bool) -> None:
    server = Server(content_at=7)
    Journal.create(server, "t1").register(WipeDevice(id=ID))
    if held:
        server.open_device("/dev/sda", exclusive=False)
    (line,) = clean(server).lines
    assert (_content(server) is None) is held
    assert line == (
        f"t1: wiped {ID}"
        if held
        else f"t1: left {ID} alone: it carries data in no format that is recognised, which may be somebody else's"
    )


def test_a_device_in_use_is_not_wiped_by_an_undo() -> None:
    found = {"offset": "0x438", "type": "ext4", "uuid": "2", "label": "pgstrata"}
    server = Server(signatures=json.dumps({"signatures": [found]}), uses=("it is mounted at /x",), content_at=1080)
    Journal.create(server, "t1").register(WipeDevice(id=ID))
    cleaned = clean(server)
    assert cleaned.failed
    assert "/dev/sda was not wiped: it is mounted at /x" in cleaned.lines[0]
    assert _content(server) == 1080


@pytest.mark.parametrize("erase", [(), (ID,)])
def test_content_without_a_signature_needs_erase(erase: tuple[str, ...]) -> None:
    server = Server(content_at=70_000_000)
    server.remove("/sys/class/block/sda/sda1")
    if erase:
        assert refuse_or_allow(server, ID, erase).content_at == 70_000_000
        return
    with pytest.raises(PreflightError, match=r"recognised \(from byte 70000000 on\): it may hold data") as refusal:
        refuse_or_allow(server, ID, erase)
    assert "erase" in refusal.value.hint


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
