"""lvm, md, zfs and nfs: parsers against recorded output of the real tools, and asked set beside found."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from fake_host import FakeHost, completed
from pgstrata.errors import TrialError
from pgstrata.host.protocol import Command, Completed
from pgstrata.spec.layers.devices import LoopDevice
from pgstrata.spec.layers.luks import Luks
from pgstrata.spec.layers.lvm import Lvm
from pgstrata.spec.layers.md import Md
from pgstrata.spec.layers.nfs import Nfs
from pgstrata.spec.layers.zfs import Zfs
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack.block.dm import parse_target
from pgstrata.stack.block.luks import CloseLuks, LuksCheck, header_uuid, parse_status
from pgstrata.stack.block.lvm import LogicalVolume, LvmCheck, RemoveVg, parse_lvs, parse_pvs, pv_uuid
from pgstrata.stack.block.md import ArrayState, MdCheck, Settled, StopMd, array_name, parse_array, parse_array_name
from pgstrata.stack.build import StepRunner
from pgstrata.stack.fs.nfs import COMPANIONS, GRACES, UNIT, Export, ExportCheck, StopUnit, mount_options, parse_exports
from pgstrata.stack.fs.zfs import DatasetCheck, PoolCheck, normalised, properties
from pgstrata.stack.fs.zfs_status import (
    DestroyPool,
    Vdev,
    parse_iostat,
    parse_kstat,
    parse_properties,
    parse_zpool_status,
    render_layout,
)
from pgstrata.stack.journal import Journal
from pgstrata.stack.mounts import parse_mountinfo
from pgstrata.stack.place import Place
from pgstrata.stack.plan import PlanContext, plan_stack
from pgstrata.stack.step import Attested, Ref
from pgstrata.stack.undoing import run_undo

FIXTURES = Path(__file__).parents[2] / "fixtures" / "stack"
NODES = ("/dev/vdb", "/dev/vdc", "/dev/vdd")


def _text(name: str) -> str:
    return (FIXTURES / name).read_text()


def _differences(rows: tuple[Attested, ...]) -> dict[str, tuple[str, str]]:
    return {row.what: (row.expected, row.actual) for row in rows if not row.holds}


class TestLvm:
    def test_lvs(self) -> None:
        (volume,) = parse_lvs(_text("lvs-2.03.16-striped.json"))
        assert (volume.name, volume.segment_type, volume.stripes, volume.stripe_bytes) == (
            "volume",
            "striped",
            3,
            65536,
        )
        assert volume.usable

    def test_pvs(self) -> None:
        assert parse_pvs(_text("pvs-2.03.16.json")) == NODES

    def test_striped_as_asked(self) -> None:
        check = LvmCheck("data", "vg", Lvm(layout="striped"), 65536, NODES)
        assert _differences(check.compare(parse_lvs(_text("lvs-2.03.16-striped.json")))) == {}

    def test_striped_otherwise(self) -> None:
        check = LvmCheck("data", "vg", Lvm(layout="striped", stripe_size="128k"), 131072, NODES[:2])
        assert _differences(check.compare(parse_lvs(_text("lvs-2.03.16-striped.json")))) == {
            "data lvm stripes": ("2", "3"),
            "data lvm stripe_bytes": ("131072", "65536"),
        }

    def test_linear_over_several_segments(self) -> None:
        segment = LogicalVolume("volume", "linear", 1, 0, 100, "", "", "-wi-ao----")
        check = LvmCheck("data", "vg", Lvm(), 65536, NODES)
        assert _differences(check.compare((segment, segment))) == {}

    def test_an_invalid_snapshot_does_not_count(self) -> None:
        volume = LogicalVolume("volume", "linear", 1, 0, 100, "", "", "owi-aos---")
        kept = LogicalVolume("kept1", "linear", 1, 0, 40, "volume", "", "swi-I-s---")
        check = LvmCheck("data", "vg", Lvm(snapshots=1), 65536, NODES)
        assert _differences(check.compare((volume, kept))) == {"data lvm snapshots": ("1", "0")}


class TestCaches:
    """Lines of dmsetup from the lab: Linux 6.1, LVM 2.03.16."""

    cache = "0 1253376 cache 253:2 253:1 253:3 {} 2 metadata2 writeback smq 2 migration_threshold 8192"
    status = (
        "0 1253376 cache 8 27/1024 {} 1/2035 0 55 0 40 0 1 0 3 metadata2 {} no_discard_passdown "
        "2 migration_threshold 8192 smq 0 {}"
    )
    asked = Lvm(
        cache=LoopDevice(), cache_mode="writeback", cache_chunk="128k", cache_settings={"migration_threshold": 8192}
    )

    def differing(self, chunk: int, mode: str, state: str) -> dict[str, tuple[str, str]]:
        check = LvmCheck("data", "vg", self.asked, 65536, NODES)
        table, status = self.cache.format(chunk), self.status.format(chunk, mode, state)
        return _differences(check.compare_cache(parse_target(table), parse_target(status)))

    def test_a_dm_cache_as_asked(self) -> None:
        assert self.differing(256, "writeback", "rw -") == {}

    def test_a_dm_cache_otherwise(self) -> None:
        assert self.differing(128, "writethrough", "ro needs_check") == {
            "data lvm cache mode": ("writeback", "writethrough"),
            "data lvm cache chunk_bytes": ("131072", "65536"),
            "data lvm cache state": ("rw -", "ro needs_check"),
        }

    def test_a_writecache(self) -> None:
        asked = Lvm(writecache=LoopDevice(), cache_settings={"high_watermark": 60, "low_watermark": 40})
        check = LvmCheck("data", "vg", asked, 65536, NODES)
        table = "0 1253376 writecache s 253:2 253:1 {} 4 high_watermark 60 low_watermark {}"
        status = "0 1253376 writecache {} 125000 124000 0"
        found = check.compare_cache(parse_target(table.format(4096, 40)), parse_target(status.format(0)))
        assert _differences(found) == {}
        found = check.compare_cache(parse_target(table.format(512, 45)), parse_target(status.format(-5)))
        assert _differences(found) == {
            "data lvm writecache low_watermark": ("40", "45"),
            "data lvm writecache block_bytes": ("4096", "512"),
            "data lvm writecache errors": ("0", "-5"),
        }

    def test_a_volume_without_its_cache(self) -> None:
        check = LvmCheck("data", "vg", self.asked, 65536, NODES)
        linear = parse_target("0 1253376 linear 7:0 2048")
        assert _differences(check.compare_cache(linear, linear)) == {"data lvm cached by": ("cache", "linear")}


class TestLuks:
    """Lines of dmsetup and cryptsetup 2.6.1 from the lab."""

    status = parse_status("/dev/mapper/m is active and is in use.\n  type:    LUKS2\n  cipher:  aes-xts-plain64\n")

    def differing(self, layer: Luks, table: str) -> dict[str, tuple[str, str]]:
        check = LuksCheck("data", "m", Ref("data.luks.0"), "/dev/vdb", layer)
        return _differences(check.compare(self.status, parse_target(f"0 622592 crypt {table}")))

    def test_as_asked(self) -> None:
        key = ":64:logon:cryptsetup:90c3adf6-d2dd-a5ff-8a1d-b4ab556dedba-d0"
        options = "2 allow_discards sector_size:4096"
        asked = Luks(discards=True, sector_size=4096)
        assert self.differing(asked, f"aes-xts-plain64 {key} 0 254:16 32768 {options}") == {}

    def test_otherwise(self) -> None:
        table = f"aes-cbc-essiv:sha256 {'0' * 64} 0 254:16 4096 1 no_read_workqueue"
        assert self.differing(Luks(format="luks1", discards=True), table) == {
            "data luks format": ("LUKS1", "LUKS2"),
            "data luks cipher": ("aes-xts-plain64", "aes-cbc-essiv:sha256"),
            "data luks key_size": ("512", "256"),
            "data luks discards": ("on", "off"),
            "data luks no_read_workqueue": ("off", "on"),
        }

    def test_the_key_is_in_no_command(self) -> None:
        plan = plan_stack(parse_stack("luks/ext4"), PlanContext("t1", "/s", 1 << 30))
        (step,) = (step for step in plan.steps if step.name == "key of data.luks")
        assert [command.stdin for command in step.commands] == [""] * 4
        assert step.commands[-1].argv[:3] == ("dd", "if=/dev/urandom", "of=/s/pgstrata-t1/data.luks.key/key")


def _array(**changes: object) -> ArrayState:
    files = {
        "level": "raid5\n",
        "chunk_size": "65536\n",
        "raid_disks": "3\n",
        "degraded": "0\n",
        "sync_action": "idle\n",
        "array_state": "clean\n",
        "bitmap/location": "none\n",
    }
    return parse_array({**files, **{k: str(v) for k, v in changes.items()}}, NODES)


class TestMd:
    check = MdCheck("data", Ref("data.md"), Md(level="raid5", chunk="64k"), 65536, NODES)

    def test_as_asked(self) -> None:
        assert _differences(self.check.compare(_array(), NODES)) == {}

    @pytest.mark.parametrize(
        ("changes", "difference"),
        [
            ({"level": "raid1"}, {"data md level": ("raid5", "raid1")}),
            ({"chunk_size": 524288}, {"data md chunk_bytes": ("65536", "524288")}),
            ({"sync_action": "resync"}, {"data md sync_action": ("idle", "resync")}),
            ({"degraded": 1}, {"data md degraded": ("0", "1")}),
            ({"bitmap/location": "+8"}, {"data md bitmap": ("none", "internal")}),
            # the kernel shows both numbers while an array is being reshaped
            ({"raid_disks": "4 (3)"}, {"data md raid_disks": ("3", "4")}),
        ],
    )
    def test_otherwise(self, changes: dict[str, object], difference: dict[str, tuple[str, str]]) -> None:
        assert _differences(self.check.compare(_array(**changes), NODES)) == difference

    def test_raid0_has_no_sync(self) -> None:
        state = parse_array(
            {
                "level": "raid0\n",
                "chunk_size": "65536\n",
                "raid_disks": "3\n",
                "degraded": "",
                "sync_action": "",
                "array_state": "clean\n",
                "bitmap/location": "none\n",
            },
            NODES,
        )
        assert (state.degraded, state.sync_action) == (0, "idle")

    def test_declared_states(self) -> None:
        degraded = MdCheck("data", Ref("data.md"), Md(level="raid5", state="degraded"), 65536, NODES)
        without_last = parse_array(
            {
                "level": "raid5",
                "chunk_size": "65536",
                "raid_disks": "3",
                "degraded": "1",
                "sync_action": "idle",
                "array_state": "clean",
                "bitmap/location": "none",
            },
            NODES[:2],
        )
        assert _differences(degraded.compare(without_last, NODES)) == {}
        rebuilding = MdCheck("data", Ref("data.md"), Md(level="raid5", state="rebuilding"), 65536, NODES)
        assert _differences(rebuilding.compare(_array(degraded=1, sync_action="recover"), NODES)) == {}
        assert _differences(rebuilding.compare(_array(), NODES)) == {
            "data md degraded": ("1", "0"),
            "data md sync_action": ("recover", "idle"),
        }

    def test_name_in_the_superblock(self) -> None:
        assert parse_array_name(_text("mdadm-4.2-detail-export.txt")) == "pgstrata-0123456789abcdef"
        place = Place("a-long-name-of-a-trial-b12-t7-0a1b2c", "tablespace.history", "/w", "/m", 1)
        assert len(array_name(place)) <= 32


class TestZfs:
    def test_status(self) -> None:
        vdevs = parse_zpool_status(_text("zpool-2.1.11-status.txt"))
        assert [render_layout(vdevs, s) for s in ("data", "logs", "cache", "special", "spares")] == [
            "mirror(2)+mirror(2)",
            "mirror(2)",
            "disk",
            "disk",
            "none",
        ]
        assert vdevs[0].devices == ("/dev/disk/by-id/virtio-d0-part1", "/dev/disk/by-id/virtio-d1-part1")

    def test_status_over_loop_devices(self) -> None:
        vdevs = parse_zpool_status(_text("zpool-2.1.11-status-loop.txt"))
        assert vdevs == (
            Vdev("data", "mirror", ("/dev/loop0", "/dev/loop1"), ("ONLINE", "ONLINE")),
            Vdev("logs", "disk", ("/dev/loop2",), ("ONLINE",)),
        )

    def test_a_status_without_vdevs_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="no config"):
            parse_zpool_status("no pools available\n")

    def test_arcstats(self) -> None:
        found = parse_kstat(_text("arcstats-2.1.11.txt"))
        assert found["c_max"] > found["c_min"] > 0

    def test_iostat(self) -> None:
        found = parse_iostat("pgstrata-t1-data\t847872\t6038949888\t3\t86\t29135\t2101233\n")
        assert found == {
            "reads_per_s": 3,
            "writes_per_s": 86,
            "read_bytes_per_s": 29135,
            "written_bytes_per_s": 2101233,
        }
        with pytest.raises(ValueError, match="zpool iostat"):
            parse_iostat("")

    def test_properties_as_zfs_prints_them(self) -> None:
        fs = Zfs(recordsize="16k", compression="lz4", atime=False, relatime=True)
        assert properties(fs) == {"recordsize": "16384", "compression": "lz4", "atime": "off", "relatime": "on"}
        assert properties(Zfs(compression="gzip-6")) == {"compression": "gzip"}
        assert properties(Zfs(compression="gzip-7")) == {"compression": "gzip-7"}
        assert normalised({"recordsize": "128k", "logbias": "throughput"}) == {
            "recordsize": "131072",
            "logbias": "throughput",
        }

    def test_dataset_otherwise(self) -> None:
        check = DatasetCheck("data", "pool/data", {"recordsize": "16384", "atime": "off"})
        found = parse_properties("recordsize\t131072\natime\toff\ncompression\toff\n")
        assert _differences(check.compare(found)) == {"data zfs data recordsize": ("16384", "131072")}

    def test_pool_otherwise(self) -> None:
        wanted = {"data": "raidz1(4)", "logs": "none"}
        check = PoolCheck("data", "pool", wanted, 13)
        found = {"health": "DEGRADED", "ashift": "12", "size": "1", "allocated": "1", "fragmentation": "0"}
        assert _differences(check.compare(found, _text("zpool-2.1.11-status.txt"))) == {
            "data zfs health": ("ONLINE", "DEGRADED"),
            "data zfs ashift": ("13", "12"),
            "data zfs data vdevs": ("raidz1(4)", "mirror(2)+mirror(2)"),
            "data zfs logs vdevs": ("none", "mirror(2)"),
        }


class TestNfs:
    def test_exports(self) -> None:
        (export,) = parse_exports(_text("exportfs-2.6.2-s.txt"))
        assert (export.path, export.client) == ("/srv/x", "127.0.0.1")
        assert {"sync", "rw", "no_root_squash"} <= set(export.options)

    def test_a_line_that_is_no_export_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="exportfs"):
            parse_exports("exportfs: something\n")

    def test_export_otherwise(self) -> None:
        check = ExportCheck("data", "/srv/x", True)
        turned = Export("/srv/x", "127.0.0.1", ("async", "rw"))
        assert _differences(check.compare((turned,))) == {"data nfs export commits": ("sync", "async")}
        everybody = Export("/srv/x", "*", ("sync", "rw"))
        assert _differences(check.compare((everybody,))) == {"data nfs export client": ("127.0.0.1", "*")}
        assert _differences(check.compare(())) == {"data nfs export client": ("127.0.0.1", "not exported")}

    @pytest.mark.parametrize(
        ("target", "fs"),
        [
            ("/mnt/n4", Nfs(rsize="64k", wsize="64k", nconnect=4, noatime=True)),
            ("/mnt/n3", Nfs(version="3", hard=False)),
        ],
    )
    def test_mount_options_in_effect(self, target: str, fs: Nfs) -> None:
        mounts = parse_mountinfo(_text("mountinfo-6.1-nfs.txt"))
        options = next(m.options for m in mounts if m.target == target)
        expected = [option.expected for option in mount_options(fs) if option.expected is not None]
        assert {e.what: e.actual(options) for e in expected} == {e.what: e.wanted for e in expected}


PLACE = Place("t1", "data", "", "", 1)
IDS = ("/dev/disk/by-id/nvme-a", "/dev/disk/by-id/nvme-b")


@pytest.mark.parametrize(
    ("volume", "undo"),
    [
        (
            {"layers": [{"kind": "lvm"}], "fs": {"kind": "xfs"}},
            RemoveVg(vg="pgstrata-t1-data", devices=IDS, pv_uuids=(pv_uuid(PLACE, 0), pv_uuid(PLACE, 1))),
        ),
        (
            {"layers": [{"kind": "md", "level": "raid1"}], "fs": {"kind": "xfs"}},
            StopMd(array=f"/dev/md/{array_name(Place('t1', 'data', '', '', 1))}", devices=IDS),
        ),
        (
            {"layers": [{"kind": "luks"}], "fs": {"kind": "btrfs"}},
            CloseLuks(mapping="pgstrata-t1-data-luks1", devices=IDS[1:], uuid=header_uuid(PLACE, 1)),
        ),
        (
            {"layers": [{"kind": "zvol", "vdev": "mirror"}], "fs": {"kind": "xfs"}},
            DestroyPool(pool="pgstrata-t1-data", devices=IDS),
        ),
        ({"fs": {"kind": "zfs"}}, DestroyPool(pool="pgstrata-t1-data", devices=IDS)),
    ],
)
def test_real_devices_are_named_to_the_undo(volume: dict[str, object], undo: object) -> None:
    device = {"kind": "disk", "ids": IDS}
    stack = Stack.model_validate({"name": "s", "data": {"device": device, **volume}})
    plan = plan_stack(stack, PlanContext("t1", "/scratch", 1 << 30))
    assert undo in [u for step in plan.steps for u in step.undo]


class Systemd(FakeHost):
    """A machine on which some units run."""

    def __init__(self, running: tuple[str, ...] = (), files: dict[str, str] | None = None) -> None:
        graces = dict.fromkeys(GRACES, "")
        super().__init__(
            files={"/proc/sys/kernel/random/boot_id": "b\n", **graces, **(files or {})}, answer=self.systemctl
        )
        self.running = set(running)

    def systemctl(self, asked: Command) -> Completed | None:
        if asked.argv[0] != "systemctl":
            return None
        verb, unit = asked.argv[1], asked.argv[-1]
        if verb == "is-active":
            return completed(asked.argv, exit_code=0 if unit in self.running else 3)
        if verb == "start":
            self.running |= {unit, *COMPANIONS}
        else:
            self.running.remove(unit)
        return completed(asked.argv)


def start_server(host: Systemd) -> Journal:
    plan = plan_stack(Stack(name="s", data=Volume(fs=Nfs())), PlanContext("t1", "/s", 1 << 30))
    (step,) = [step for step in plan.steps if step.name == "NFS server"]
    journal = Journal.create(host, "t1")
    StepRunner(host, journal).run(step)
    return journal


@pytest.mark.parametrize("running", [(), ("rpcbind.socket", "rpcbind.service"), (UNIT, *COMPANIONS)])
def test_of_the_units_of_nfs_those_are_stopped_that_were_not_running(running: tuple[str, ...]) -> None:
    host = Systemd(running)
    journal = start_server(host)
    assert host.running == {UNIT, *COMPANIONS}
    assert {host.read_text(grace) for grace in GRACES} == ({""} if UNIT in running else {"Y\n"})
    assert [undone.error for undone in journal.undo_all() if undone.error] == []
    assert host.running == set(running)


def test_a_grace_period_that_has_ended_is_no_error() -> None:
    class Ended(Systemd):
        def write_text(self, path: str, text: str, *, mode: int = 0o644) -> None:
            if path in GRACES and text:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
            super().write_text(path, text, mode=mode)

    host = Ended()
    start_server(host)
    assert UNIT in host.running


def test_after_a_reboot_no_unit_is_ours() -> None:
    host = Systemd((UNIT,))
    assert run_undo(host, StopUnit(unit=UNIT), same_boot=False) == ""
    assert host.running == {UNIT}
    assert run_undo(host, StopUnit(unit=UNIT), same_boot=True) == f"stopped {UNIT}"
    assert run_undo(host, StopUnit(unit=UNIT), same_boot=True) == ""


@pytest.mark.parametrize("path", ["/etc/exports", "/etc/exports.d/more.exports"])
def test_a_stopped_server_with_exports_of_its_own_is_not_started(path: str) -> None:
    exports = {path: "# ours\n\n /srv *(rw)\n"}
    host = Systemd(files=exports)
    with pytest.raises(TrialError, match=f"{path} names folders"):
        start_server(host)
    assert host.running == set()
    assert start_server(Systemd((UNIT,), exports)) is not None
    assert start_server(Systemd(files={path: "# nothing\n\n", "/etc/exports.d/old": "/srv *(rw)"})) is not None


class Array(FakeHost):
    """An array, and what its files say at one wait after another."""

    FOLDER = "/sys/class/block/md127/md"

    def __init__(self, states: list[tuple[str, str, str]]) -> None:
        super().__init__(answer=self.mdadm, files={f"{self.FOLDER}/level": "raid1"})
        self.states = states
        self.pauses = 0

    def mdadm(self, asked: Command) -> Completed | None:
        if asked.argv[0] == "readlink":
            return completed(asked.argv, "/dev/md127\n")
        if asked.argv[:2] != ("mdadm", "--wait"):
            return None
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        for name, text in zip(("sync_action", "resync_start", "degraded"), state, strict=True):
            self.write_text(f"{self.FOLDER}/{name}", f"{text}\n")
        return completed(asked.argv, exit_code=1)

    def pause(self, seconds: float) -> None:
        self.pauses += 1


def test_a_resync_that_has_not_begun_yet_is_waited_for() -> None:
    host = Array([("idle", "0", "1"), ("recover", "0", "1"), ("idle", "none", "1"), ("idle", "none", "0")])
    Settled("/dev/md/a", missing=0).require(host, {})
    assert host.pauses == 3


def test_an_array_that_stays_degraded_is_an_error() -> None:
    host = Array([("idle", "none", "2")])
    with pytest.raises(TrialError, match="2 members missing"):
        Settled("/dev/md/a", missing=1).require(host, {})
    assert host.pauses > 1


def test_a_name_that_somebody_has_is_refused_before_anything_is_journaled() -> None:
    plan = plan_stack(parse_stack("loop/lvm(1)/xfs"), PlanContext("t1", "/s", 1 << 30))
    (step,) = [step for step in plan.steps if step.name.startswith("volume group")]
    host = FakeHost(
        files={"/proc/sys/kernel/random/boot_id": "b\n"}, answer=lambda asked: completed(asked.argv, "there\n")
    )
    journal = Journal.create(host, "t1")
    with pytest.raises(TrialError, match="volume group pgstrata-t1-data is there already"):
        StepRunner(host, journal, bindings={"data.0": "/dev/loop0"}).run(step)
    assert [asked.argv for asked in host.asked] == [("vgs", "pgstrata-t1-data")]
    assert journal.undo_all() == ()


@pytest.mark.parametrize(
    ("volume", "reason"),
    [
        ({"layers": [{"kind": "md", "level": "raid5"}], "fs": {"kind": "xfs"}}, "at least 3 devices"),
        ({"layers": [{"kind": "md", "level": "raid4"}], "fs": {"kind": "xfs"}}, "raid10"),
        ({"layers": [{"kind": "lvm", "stripes": 2}], "fs": {"kind": "xfs"}}, "stripes"),
        ({"layers": [{"kind": "md", "level": "raid1"}], "fs": {"kind": "zfs"}}, "zfs over md"),
        ({"fs": {"kind": "zfs", "vdev": "raidz4"}}, "raidz3"),
        ({"fs": {"kind": "zfs", "compression": "rar"}}, "pattern"),
        ({"fs": {"kind": "zfs", "ashift": 20}}, "16"),
        ({"fs": {"kind": "nfs", "version": "4.9"}}, "4.2"),
        ({"fs": {"kind": "nfs", "server": "h:/x"}, "layers": [{"kind": "lvm"}]}, "existing NFS export"),
    ],
)
def test_what_is_refused(volume: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Volume.model_validate(volume)
