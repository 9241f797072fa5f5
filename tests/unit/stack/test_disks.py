"""The disks of a host: which are listed, by which name, and what is said of each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fake_host import FakeHost, completed
from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Command, Completed
from pgstrata.stack.disks import (
    COLUMNS,
    MOST_LISTED,
    Disk,
    State,
    allow_or_list,
    judged,
    list_disks,
    parse_disks,
    render_disks,
    render_own_id,
)
from pgstrata.stack.safety import DeviceState, Signature

LINKS = {
    "/dev/disk/by-id/ata-FAST_1": "/dev/sda",
    "/dev/disk/by-id/wwn-0x5000": "/dev/sda",
    "/dev/disk/by-id/wwn-0x6000": "/dev/sdb",
    "/dev/disk/by-path/pci-0000:00-ata-2": "/dev/sdb",
    "/dev/disk/by-partuuid/1-2": "/dev/sda1",
}


def entry(path: str, **more: Any) -> dict[str, Any]:
    return {"path": path, "type": "disk", "size": 1 << 30, "model": None, "ro": False, "maj:min": "8:0", **more}


def host_with(*entries: dict[str, Any]) -> FakeHost:
    listing = ("lsblk", "--json", "--bytes", "--list", "--output", COLUMNS)

    def answer(asked: Command) -> Completed | None:
        if asked.argv[:3] == ("readlink", "--canonicalize", "--zero"):
            return completed(asked.argv, "".join(f"{LINKS[link]}\0" for link in asked.argv[3:]))
        return None

    text = json.dumps({"blockdevices": list(entries)})
    return FakeHost(
        {listing: completed(listing, text)}, files=dict.fromkeys(LINKS, ""), answer=answer, missing_programs=True
    )


def test_what_cannot_be_written_to_is_not_listed() -> None:
    entries = [entry("/dev/sda"), entry("/dev/sda"), entry("/dev/loop0", type="loop", size=0), entry("/dev/zram0")]
    entries += [entry("/dev/sr0", type="rom"), entry("/dev/sdc", size=0), entry("/dev/sda1", type="part")]
    assert [e["path"] for e in parse_disks(json.dumps({"blockdevices": entries}))] == ["/dev/sda", "/dev/sda1"]


def test_each_has_the_name_that_says_most_of_those_that_stay() -> None:
    parts = [entry("/dev/sda1", type="part"), entry("/dev/vda", **{"maj:min": "254:0"})]
    found = list_disks(host_with(entry("/dev/sda", model="FAST 1 "), entry("/dev/sdb"), *parts))
    assert {disk.node: disk.id for disk in found} == {
        "/dev/sda": "/dev/disk/by-id/ata-FAST_1",
        "/dev/sdb": "/dev/disk/by-id/wwn-0x6000",
        "/dev/sda1": "/dev/disk/by-partuuid/1-2",
        "/dev/vda": "/dev/vda+1073741824+254:0",
    }
    assert found[0].model == "FAST 1"
    assert {disk.state for disk in found} == {"not known"}, "nothing could be opened there"


def disk(number: int, state: State, what: str = "") -> Disk:
    return Disk(f"/dev/sd{number}", f"/dev/disk/by-id/d{number}", "disk", 1 << 30, "FAST", state, what)


def test_a_refusal_lists_the_disks_that_may_be_taken_first() -> None:
    lines = render_disks(
        "db1", [disk(1, "in use", "it is mounted at /"), disk(2, "carries data", "xfs"), disk(3, "blank")]
    )
    assert lines == (
        "disks of db1 (in a stack: disk(ID)/ext4, for quick: --device ID):",
        "  /dev/disk/by-id/d3  1.0 GiB  FAST  blank",
        "  /dev/disk/by-id/d2  1.0 GiB  FAST  carries data: xfs",
        "  /dev/disk/by-id/d1  1.0 GiB  FAST  in use: it is mounted at /",
    )
    assert render_disks("db1", []) == ()


def test_a_refusal_lists_few_disks() -> None:
    lines = render_disks("db1", [disk(n, "blank") for n in range(40)])
    assert len(lines) == MOST_LISTED + 2
    assert lines[-1] == "  and 34 more: pgstrata doctor --host db1"


def test_a_disk_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(PreflightError, match="leads to no block device") as refused:
        allow_or_list(host_with(entry("/dev/sda", model="FAST 1")), "/dev/disk/by-id/none", ())
    first, head, listed = refused.value.hint.split("\n")
    assert "pgstrata doctor" in first
    assert head.startswith("disks of ")
    assert listed.startswith("  /dev/disk/by-id/ata-FAST_1  1.0 GiB  FAST 1  not known")


def test_a_host_without_lsblk_has_no_list() -> None:
    assert list_disks(FakeHost(missing_programs=True)) == ()


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (DeviceState("x", "/dev/x", 1, (), ()), ("blank", "")),
        (DeviceState("x", "/dev/x", 1, (), (Signature("ext4", label="home"),)), ("carries data", "ext4 'home'")),
        (DeviceState("x", "/dev/x", 1, ("mounted at /", "swap"), ()), ("in use", "mounted at /; swap")),
    ],
)
def test_what_is_said_of_a_device(state: DeviceState, said: tuple[str, str]) -> None:
    assert judged(state) == said


def test_raw_data_is_data() -> None:
    state, what = judged(DeviceState("x", "/dev/x", 1, (), (), content_at=4096))
    assert state == "carries data"
    assert "from byte 4096 on" in what


def loops(*backing: str, leads: bool = True) -> FakeHost:
    """A host with loop devices over these files."""
    numbers = range(len(backing))
    entries = [entry(f"/dev/loop{n}", type="loop", **{"maj:min": f"7:{n}"}) for n in numbers]
    listing = ("lsblk", "--json", "--bytes", "--list", "--output", COLUMNS)
    answers: dict[tuple[str, ...], Completed] = {listing: completed(listing, json.dumps({"blockdevices": entries}))}
    for number, file in enumerate(backing):
        argv = ("losetup", "--associated", file, "--noheadings", "--output", "NAME")
        answers[argv] = completed(argv, f"/dev/loop{number}\n" if leads else "")
    typed = ("readlink", "--canonicalize", "/dev/loop0")
    answers[typed] = completed(typed, typed[-1])
    return FakeHost(
        answers,
        files={f"/sys/block/loop{n}/loop/backing_file": f"{file}\n" for n, file in enumerate(backing)},
        missing_programs=True,
    )


def test_a_loop_device_has_its_backing_file_as_id_and_those_of_running_trials_are_left_out() -> None:
    found = list_disks(
        loops("/srv/disk.img", "/tmp/scratch/pgstrata-b000-00-ext4/data.disks/0.img", "/srv/b (deleted)")
    )
    assert [(disk.node, disk.id) for disk in found] == [
        ("/dev/loop0", "/srv/disk.img"),
        ("/dev/loop2", "/srv/b (deleted)"),
    ]
    (elsewhere,) = list_disks(loops("/srv/disk.img", leads=False))
    assert elsewhere.id == "/dev/loop0+1073741824+7:0"


def test_a_device_that_was_named_otherwise_is_answered_with_its_id() -> None:
    assert render_own_id(loops("/srv/disk.img"), "/dev/loop0") == (
        "the id of /dev/loop0 is /srv/disk.img: --device /srv/disk.img",
    )
    assert render_own_id(FakeHost(missing_programs=True), "/dev/sdb") == ()
