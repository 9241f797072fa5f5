"""lvm, md, zfs and nfs: parsers against recorded output of the real tools, and asked set beside found."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from fake_host import FakeHost, completed
from pgstrata.host.protocol import Command, Completed
from pgstrata.spec.layers.lvm import Lvm
from pgstrata.spec.layers.md import Md
from pgstrata.spec.layers.nfs import Nfs
from pgstrata.spec.layers.zfs import Zfs
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack.block.lvm import LogicalVolume, LvmCheck, RemoveVg, parse_lvs, parse_pvs, pv_uuid
from pgstrata.stack.block.md import ArrayState, MdCheck, StopMd, array_name, parse_array, parse_array_name
from pgstrata.stack.fs.nfs import COMPANIONS, UNIT, Export, ExportCheck, StopUnit, expectations, parse_exports
from pgstrata.stack.fs.zfs import DatasetCheck, PoolCheck, normalised, properties
from pgstrata.stack.fs.zfs_labels import DestroyPool
from pgstrata.stack.fs.zfs_status import (
    Vdev,
    parse_iostat,
    parse_kstat,
    parse_properties,
    parse_zpool_status,
    render_layout,
)
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
        assert {e.what: e.actual(options) for e in expectations(fs)} == {e.what: e.wanted for e in expectations(fs)}


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
        ({"fs": {"kind": "zfs"}}, DestroyPool(pool="pgstrata-t1-data", devices=IDS)),
    ],
)
def test_real_devices_are_named_to_the_undo(volume: dict[str, object], undo: object) -> None:
    device = {"kind": "disk", "ids": IDS}
    stack = Stack.model_validate({"name": "s", "data": {"device": device, **volume}})
    plan = plan_stack(stack, PlanContext("t1", "/scratch", 1 << 30))
    assert undo in [u for step in plan.steps for u in step.undo]


def test_the_nfs_server_is_stopped_only_where_we_started_it() -> None:
    plan = plan_stack(
        Stack(name="s", data=Volume(fs=Nfs()), wal=Volume(fs=Nfs())), PlanContext("t1", "/scratch", 1 << 30)
    )
    undos = [u for step in plan.steps for u in step.undo if isinstance(u, StopUnit)]
    servers = [u.marker_file for u in undos if u.unit == UNIT]
    assert servers == ["/run/pgstrata-t1-data.nfs-server", "/run/pgstrata-t1-wal.nfs-server"]
    first = [(u.unit, u.marker_file) for u in undos if "-data." in u.marker_file]
    assert first == [
        *((unit, f"/run/pgstrata-t1-data.nfs-server.{unit}") for unit in COMPANIONS),
        (UNIT, "/run/pgstrata-t1-data.nfs-server"),
    ]


@pytest.mark.parametrize("running", [(), ("rpcbind.socket", "rpcbind.service")])
def test_what_comes_up_with_the_nfs_server_is_noted_unless_it_ran_before(
    tmp_path: Path, running: tuple[str, ...]
) -> None:
    """The program itself, with a systemctl that notes what it is asked and another folder of exports."""
    systemctl = tmp_path / "systemctl"
    cases = "".join(f'*" {unit}") exit 0;; ' for unit in running)
    systemctl.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\ncase "$*" in {cases}start*) exit 0;; esac\nexit 3\n'
    )
    systemctl.chmod(0o755)
    (step,) = [
        step
        for step in plan_stack(Stack(name="s", data=Volume(fs=Nfs())), PlanContext("t1", "/s", 1 << 30)).steps
        if step.name == "NFS server"
    ]
    shell, option, script, zero, unit, _, *companions = step.commands[0].resolve({}).argv
    script = script.replace("/etc/exports", f"{tmp_path}/exports").replace("/proc/fs", f"{tmp_path}/proc")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    argv = [shell, option, script, zero, unit, f"{tmp_path}/marker", *companions]
    subprocess.run(argv, check=True, env=environment, timeout=60)
    noted = sorted(path.name for path in tmp_path.glob("marker*"))
    assert noted == sorted(["marker", *(f"marker.{c}" for c in COMPANIONS if c not in running)])
    assert (tmp_path / "asked").read_text().splitlines()[-1] == f"start {UNIT}"


def test_a_unit_that_the_host_does_not_have_is_not_stopped() -> None:
    def systemctl(asked: Command) -> Completed:
        known = asked.argv[-1] != "rpc-statd.service"
        return completed(asked.argv, "loaded\n" if known else "not-found\n")

    host = FakeHost(files={"/run/a": "", "/run/b": ""}, answer=systemctl)
    assert run_undo(host, StopUnit(unit="rpc-statd.service", marker_file="/run/a"), same_boot=True) == ""
    assert run_undo(host, StopUnit(unit=UNIT, marker_file="/run/b"), same_boot=True) == f"stopped {UNIT}"
    assert [c.argv for c in host.asked if c.argv[1] == "stop"] == [("systemctl", "stop", UNIT)]
    assert host.list_directory("/run") == ()


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
