"""A stack that is not what its label says fails its attestation, with the difference named."""

from __future__ import annotations

from bench import context, slow_resync, stack_of

from built import differences, standing
from pgstrata.host.protocol import Host, command
from pgstrata.stack.build import attest
from pgstrata.stack.fs.nfs import CACHES, Unexport
from pgstrata.stack.plan import plan_stack
from pgstrata.stack.undoing import run_undo


def _md(level: str) -> dict[str, object]:
    layer = {"kind": "md", "level": level, "assume_clean": True}
    return {"device": {"kind": "loop", "count": 4}, "layers": [layer], "fs": {"kind": "ext4"}}


def test_md_at_another_level_and_still_resyncing(host: Host) -> None:
    built_plan = plan_stack(stack_of(_md("raid10")), context())
    labelled = plan_stack(stack_of(_md("raid6")), context())
    with standing(host, built_plan) as built:
        assert differences(attest(host, built_plan, built)) == {}
        assert differences(attest(host, labelled, built))["data md level"] == ("raid6", "raid10")
        folder = f"/sys/class/block/{built.bindings['data.md'].rsplit('/', 1)[-1]}/md"
        host.write_text(f"{folder}/sync_speed_max", "1000")
        host.write_text(f"{folder}/sync_action", "check")
        assert differences(attest(host, built_plan, built)) == {"data md sync_action": ("idle", "check")}
        host.write_text(f"{folder}/sync_action", "idle")
        member = built.bindings["data.3"]
        host.run(command("mdadm", "--manage", built.bindings["data.md"], ["--fail", member]))
        assert differences(attest(host, built_plan, built))["data md degraded"] == ("0", "1")


def test_a_declared_rebuild_that_has_ended(host: Host) -> None:
    layer = {"kind": "md", "level": "raid1", "assume_clean": True, "state": "rebuilding"}
    volume = {"device": {"kind": "loop", "count": 2}, "layers": [layer], "fs": {"kind": "xfs"}}
    plan = plan_stack(stack_of(volume), context())
    with slow_resync(host, 2000), standing(host, plan) as built:
        assert differences(attest(host, plan, built)) == {}
        with slow_resync(host, 1_000_000):
            host.run(command("mdadm", "--wait", built.bindings["data.md"], timeout_s=600))
        assert differences(attest(host, plan, built)) == {
            "data md degraded": ("1", "0"),
            "data md sync_action": ("recover", "idle"),
        }


def test_zfs_recordsize_and_module_parameter_changed(host: Host) -> None:
    fs = {"kind": "zfs", "recordsize": "16k", "module": {"zfs_txg_timeout": 2, "zfs_arc_max": 1 << 30}}
    plan = plan_stack(stack_of({"fs": fs}), context())
    parameters = "/sys/module/zfs/parameters"
    with standing(host, plan) as built:
        assert differences(attest(host, plan, built)) == {}
        host.run(command("zfs", "set", "recordsize=128k", "pgstrata-t1-data/data"))
        host.write_text(f"{parameters}/zfs_txg_timeout", "5")
        host.write_text(f"{parameters}/zfs_arc_max", str(512 << 20))
        assert differences(attest(host, plan, built)) == {
            "data zfs data recordsize": ("16384", "131072"),
            "zfs module zfs_txg_timeout": ("2", "5"),
            "zfs module zfs_arc_max": (str(1 << 30), str(512 << 20)),
            "zfs arc c_max": (str(1 << 30), str(512 << 20)),
        }
    assert host.read_text(f"{parameters}/zfs_txg_timeout").strip() == "5"


def test_a_volume_striped_otherwise(host: Host) -> None:
    def volume(**layer: object) -> dict[str, object]:
        layers = [{"kind": "lvm", **layer}]
        return {"device": {"kind": "loop", "count": 2}, "layers": layers, "fs": {"kind": "ext4"}}

    plan = plan_stack(stack_of(volume()), context())
    striped = plan_stack(stack_of(volume(layout="striped", stripe_size="64k")), context())
    with standing(host, plan) as built:
        assert differences(attest(host, plan, built)) == {}
        found = differences(attest(host, striped, built))
        assert found["data lvm layout"] == ("striped", "linear")
        assert found["data lvm stripes"] == ("2", "1")


def test_a_cache_in_another_mode_and_then_gone(host: Host) -> None:
    layer = {"kind": "lvm", "cache": {"kind": "loop"}, "cache_mode": "writeback"}
    plan = plan_stack(stack_of({"layers": [layer], "fs": {"kind": "ext4"}}), context())
    with standing(host, plan) as built:
        assert differences(attest(host, plan, built)) == {}
        volume = "pgstrata-t1-data/volume"
        host.run(command("lvchange", "--yes", ["--cachemode", "writethrough"], volume, timeout_s=300))
        assert differences(attest(host, plan, built)) == {"data lvm cache mode": ("writeback", "writethrough")}
        host.run(command("lvconvert", "--yes", "--uncache", volume, timeout_s=300))
        assert differences(attest(host, plan, built))["data lvm cached by"] == ("cache", "linear")


def test_a_mapping_that_passes_no_discards(host: Host) -> None:
    plan = plan_stack(stack_of({"layers": [{"kind": "luks", "discards": True}], "fs": {"kind": "ext4"}}), context())
    key, folder = (f"/var/tmp/scratch/pgstrata-t1/data.luks.key{end}" for end in ("/key", ""))
    with standing(host, plan) as built:
        assert differences(attest(host, plan, built)) == {}
        said = host.run(command("stat", "--format=%a %U %s", key)).stdout
        assert said.split() == ["600", "root", "32"]
        assert host.run(command("stat", "--file-system", "--format=%T", folder)).stdout.strip() == "ramfs"
        host.run(command("cryptsetup", "refresh", ["--key-file", key], "pgstrata-t1-data-luks0"))
        assert differences(attest(host, plan, built)) == {"data luks discards": ("on", "off")}
    assert host.status(folder) is None


def test_a_zvol_with_another_sync(host: Host) -> None:
    layer = {"kind": "zvol", "sync": "always", "volblocksize": "16k"}
    plan = plan_stack(stack_of({"layers": [layer], "fs": {"kind": "ext4"}}), context())
    with standing(host, plan) as built:
        assert differences(attest(host, plan, built)) == {}
        host.run(command("zfs", "set", "sync=disabled", "pgstrata-t1-data/volume"))
        assert differences(attest(host, plan, built)) == {"data zfs volume sync": ("always", "disabled")}


def test_an_nfs_export_turned_async(host: Host) -> None:
    plan = plan_stack(stack_of({"fs": {"kind": "nfs", "export": {"kind": "ext4"}}}), context())
    with standing(host, plan) as built:
        assert differences(attest(host, plan, built)) == {}
        export = "127.0.0.1:/mnt/pgstrata-t1/data.export"
        host.run(command("exportfs", ["-o", "rw,async,no_subtree_check,no_root_squash"], export))
        assert differences(attest(host, plan, built)) == {"data nfs export commits": ("sync", "async")}


def test_an_export_whose_caches_were_flushed_a_moment_before(host: Host) -> None:
    """The kernel puts a second flush within one second off, and holds the filesystem until then."""
    plan = plan_stack(stack_of({"fs": {"kind": "nfs", "export": {"kind": "ext4"}}}), context())
    path = "/mnt/pgstrata-t1/data.export"
    with standing(host, plan):
        assert any(path in host.read_text(cache) for cache in CACHES)
        host.run(command("umount", "/mnt/pgstrata-t1/data"))
        for _ in range(3):
            host.run(command("exportfs", "-f"))
        withdrawn = run_undo(host, Unexport(client="127.0.0.1", path=path), same_boot=True)
        assert withdrawn == f"withdrew the export of {path}"
        assert not any(path in host.read_text(cache) for cache in CACHES)
        host.run(command("umount", path))
