"""Short notation: every form of the contract, a round trip of any stack, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stack_strategies import stacks

from pgstrata.errors import UsageError
from pgstrata.spec.layers.btrfs import Btrfs
from pgstrata.spec.layers.devices import DiskDevice, LoopDevice
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.luks import Luks
from pgstrata.spec.layers.lvm import Lvm
from pgstrata.spec.layers.md import Md
from pgstrata.spec.layers.media import MediaDevice
from pgstrata.spec.layers.nfs import Nfs
from pgstrata.spec.layers.not_built import Existing
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.spec.layers.xfs import Xfs
from pgstrata.spec.layers.zfs import Zfs, Zvol
from pgstrata.spec.notation.stack import parse_stack, render_stack
from pgstrata.spec.stack import Stack, Volume

KIB = 1024

VOLUMES = [
    ("ext4", Volume(fs=Ext4())),
    ("xfs:noatime", Volume(fs=Xfs(noatime=True))),
    ("ext4:noatime,nodiratime,data=writeback", Volume(fs=Ext4(noatime=True, nodiratime=True, data="writeback"))),
    ("ext4:nobarrier", Volume(fs=Ext4(barrier=False))),
    ("ext4:barrier=0", Volume(fs=Ext4(barrier=False))),
    ("ext4:commit=30,bigalloc=64k", Volume(fs=Ext4(commit_s=30, bigalloc_cluster=64 * KIB))),
    ("xfs:reflink=off,su=64k,sw=4", Volume(fs=Xfs(reflink=False, su=64 * KIB, sw=4))),
    ("btrfs:nodatacow", Volume(fs=Btrfs(nodatacow=True))),
    ("btrfs:datacow=off", Volume(fs=Btrfs(nodatacow=True))),
    (
        "btrfs(raid1c3)",
        Volume(device=LoopDevice(count=3), fs=Btrfs(data="raid1c3", metadata="raid1c3")),
    ),
    (
        "btrfs(raid10,4):compress=zstd",
        Volume(device=LoopDevice(count=4), fs=Btrfs(data="raid10", metadata="raid10", compress="zstd")),
    ),
    ("btrfs(raid0,raid1,4)", Volume(device=LoopDevice(count=4), fs=Btrfs(data="raid0", metadata="raid1"))),
    ("zfs:recordsize=16k,compression=lz4+log",
     Volume(fs=Zfs(recordsize=16 * KIB, compression="lz4", log=LoopDevice()))),
    ("xfs:noatime+log", Volume(fs=Xfs(noatime=True, log=LoopDevice()))),
    ("md(raid1,2)/ext4+log(media(nvme))",
     Volume(device=LoopDevice(count=2), layers=(Md(level="raid1"),), fs=Ext4(log=MediaDevice(model="nvme")))),
    ("lvm:cachemode=writeback,chunksize=128+cache(media(nvme))/xfs",
     Volume(layers=(Lvm(cache=MediaDevice(model="nvme"), cache_mode="writeback", cache_chunk=128 * KIB),), fs=Xfs())),
    ("lvm(striped,2):cache_settings.high_watermark=60+writecache(2G)/ext4",
     Volume(device=LoopDevice(count=2), fs=Ext4(),
            layers=(Lvm(layout="striped", writecache=LoopDevice(size=2 * KIB**3),
                        cache_settings={"high_watermark": 60}),))),
    ("luks/xfs", Volume(layers=(Luks(),), fs=Xfs())),
    ("luks(luks1):--allow-discards,-s 256/ext4",
     Volume(layers=(Luks(format="luks1", discards=True, key_size=256),), fs=Ext4())),
    ("luks/zfs(mirror)", Volume(device=LoopDevice(count=2), layers=(Luks(),), fs=Zfs(vdev="mirror"))),
    ("luks/md(raid1)/ext4", Volume(device=LoopDevice(count=2), layers=(Luks(), Md(level="raid1")), fs=Ext4())),
    ("zvol(mirror):volblocksize=16k,sync=always+log/ext4+log(2G)",
     Volume(device=LoopDevice(count=2), fs=Ext4(log=LoopDevice(size=2 * KIB**3)),
            layers=(Zvol(vdev="mirror", volblocksize=16 * KIB, sync="always", log=LoopDevice()),))),
    ("zfs:encryption=on", Volume(fs=Zfs(encryption="on"))),
    ("zfs(raidz1,5)", Volume(device=LoopDevice(count=5), fs=Zfs(vdev="raidz1"))),
    ("zfs(mirror)", Volume(device=LoopDevice(count=2), fs=Zfs(vdev="mirror"))),
    ("zfs+log(mirror)+cache(2G)",
     Volume(fs=Zfs(log=LoopDevice(count=2), log_mirror=True, cache=LoopDevice(size=2 * KIB**3)))),
    ("zfs:module.zfs_txg_timeout=1,atime=off", Volume(fs=Zfs(module={"zfs_txg_timeout": 1}, atime=False))),
    ("lvm(25)/xfs", Volume(device=LoopDevice(count=25), layers=(Lvm(),), fs=Xfs())),
    ("lvm(striped,4)/xfs", Volume(device=LoopDevice(count=4), layers=(Lvm(layout="striped"),), fs=Xfs())),
    ("md(raid10,4)/ext4", Volume(device=LoopDevice(count=4), layers=(Md(level="raid10"),), fs=Ext4())),
    ("md(raid10)/ext4", Volume(device=LoopDevice(count=4), layers=(Md(level="raid10"),), fs=Ext4())),
    (
        "md(raid5,3):chunk=64k,state=degraded/lvm/xfs",
        Volume(
            device=LoopDevice(count=3), layers=(Md(level="raid5", chunk=64 * KIB, state="degraded"), Lvm()), fs=Xfs()
        ),
    ),
    ("media(hdd-7200,6)/md(raid5)/xfs",
     Volume(device=MediaDevice(model="hdd-7200", count=6), layers=(Md(level="raid5"),), fs=Xfs())),
    ("media(sata-ssd,size=2g,stretch=1.5)/ext4",
     Volume(device=MediaDevice(model="sata-ssd", size=2 * KIB**3, stretch=1.5), fs=Ext4())),
    ("media(hdd-7200,timed=runs)/ext4", Volume(device=MediaDevice(model="hdd-7200", timed="runs"), fs=Ext4())),
    ("tmpfs", Volume(fs=Tmpfs())),
    ("dir:/mnt/x", Volume(fs=Existing(path="/mnt/x"))),
    ('dir:"/mnt/a b@c"', Volume(fs=Existing(path="/mnt/a b@c"))),
    ("nfs", Volume(fs=Nfs())),
    ("nfs(xfs:noatime):async,vers=3", Volume(fs=Nfs(export=Xfs(noatime=True), export_sync=False, version="3"))),
    ("nfs:server=store:/srv/pg", Volume(fs=Nfs(server="store:/srv/pg"))),
    ("loop(4,size=2G)/btrfs(raid0)",
     Volume(device=LoopDevice(count=4, size=2 * KIB**3), fs=Btrfs(data="raid0", metadata="raid0"))),
    ("disk(/dev/disk/by-id/a,/dev/disk/by-id/b)/md(raid1)/ext4",
     Volume(device=DiskDevice(ids=("/dev/disk/by-id/a", "/dev/disk/by-id/b")), layers=(Md(level="raid1"),), fs=Ext4())),
]  # fmt: skip


@pytest.mark.parametrize(("text", "volume"), VOLUMES, ids=[text for text, _ in VOLUMES])
def test_a_notation_means_this_volume(text: str, volume: Volume) -> None:
    stack = parse_stack(text)
    assert stack.data == volume
    assert stack.name == text
    assert parse_stack(render_stack(stack)).data == volume


def test_settings_and_places_follow_an_at_sign() -> None:
    stack = parse_stack("ext4@wal=xfs:noatime@tablespace.fast=tmpfs@fsync=off@vm.swappiness=0@thp=never@major=16")
    assert stack.wal == Volume(fs=Xfs(noatime=True))
    assert stack.tablespaces == {"fast": Volume(fs=Tmpfs())}
    assert stack.postgresql.settings == {"fsync": "off"}
    assert stack.postgresql.major == 16
    assert stack.kernel.sysctl == {"vm.swappiness": "0"}
    assert stack.kernel.transparent_hugepage == "never"


CANONICAL = [
    ("ext4:nodiratime,noatime", "ext4:noatime,nodiratime"),
    ("md(4,raid10)/ext4", "md(raid10,4)/ext4"),
    ("nfs:async", "nfs:async"),
    ("zfs:recordsize=16384+log", "zfs:recordsize=16k+log"),
    ("zfs+log(mirror,2)", "zfs+log(mirror)"),
    ("loop(1)/xfs", "xfs"),
    ("ext4+log(size=2G)", "ext4+log(loop(size=2g))"),
    ("ext4+log(2G)", "ext4+log(loop(size=2g))"),
    ("zfs(mirror,recordsize=16k,special(mirror))", "zfs(mirror,2):recordsize=16k+special(mirror)"),
    ("zfs:copies=2,acltype=posixacl+special(mirror,4)", "zfs:copies=2,acltype=posixacl+special(mirror,loop(4))"),
    ("ext4:-O ^has_journal,-I 512,-E stride=16", "ext4:stride=16,nojournal,inode_size=512"),
    ("ext4:defaults,rw,relatime,lazy_itable_init=0", "ext4"),
    ("xfs:-m reflink=0,-d agcount=8,-l size=64m", "xfs:log_size=64m,agcount=8,reflink=off"),
    ("btrfs:-O no-holes,--csum xxhash,discard", "btrfs:discard=sync,csum=xxhash,no_holes=on"),
    ("ext4:-O bigalloc -C 65536 -J size=128 -o noatime,discard", "ext4:journal_size=128m,bigalloc=64k,noatime,discard"),
    ("md(raid0,2):--chunk=64/ext4", "md(raid0,2):chunk=64k/ext4"),
    ("lvm(striped,2):-I 64/ext4", "lvm(striped,2):stripe_size=64k/ext4"),
    ("btrfs:ssd,ssd_spread", "btrfs:ssd=on,ssd_spread"),
    ("nfs:nfsvers=3,nolock,noac", "nfs:vers=3,noac,nolock"),
    ("loop(4)/md(raid0)/xfs", "md(raid0,4)/xfs"),
]


@pytest.mark.parametrize(("text", "canonical"), CANONICAL)
def test_rendering_is_canonical(text: str, canonical: str) -> None:
    assert render_stack(parse_stack(text)) == canonical


@given(stacks)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_any_stack_survives_a_round_trip(stack: Stack) -> None:
    again = parse_stack(render_stack(stack))
    assert again.model_copy(update={"name": stack.name}) == stack


REFUSED = [
    ("xsf", "unknown filesystem 'xsf'", "did you mean xfs?"),
    ("dm-crypt/ext4", "unknown filesystem 'dm-crypt'", "write luks/ext4"),
    ("writecache/ext4", "unknown filesystem 'writecache'", "write lvm+writecache/ext4"),
    ("lvm+cache+writecache/xfs", "cache and writecache exclude each other", ""),
    ("lvm(thin)+cache/xfs", "cache goes with a linear or striped volume, not with a thin volume", ""),
    ("lvm:snapshots=1+writecache/xfs", "not with a volume with snapshots", ""),
    ("lvm:chunksize=64k/xfs", "cache_mode and cache_chunk are of a dm-cache: add +cache", ""),
    ("lvm:cache_chunk=48k+cache/xfs", "cache_chunk 49152 is not a multiple of 32k up to 1g", ""),
    ("lvm:cache_settings.high_watermark=9+cache/xfs", "high_watermark is no setting of this volume's cache", ""),
    (
        "lvm+log/xfs",
        "+log in 'lvm+log' is not taken: lvm has one device of its own, +cache or +writecache",
        "lvm:OPTION",
    ),
    ("lvm(cache)/xfs", "lvm option cache is not taken: the device of a cache follows a plus", "lvm+writecache(2G)/xfs"),
    ("loop(2)/luks/ext4", "ext4 sits on one device, and 2 are given", ""),
    ("luks/luks/ext4", "two layers of luks on top of each other", ""),
    ("luks(luks1):sector_size=4k/ext4", "luks1 has sectors of 512 bytes", ""),
    ("luks:sector_size=3k/ext4", "sector_size 3072 is none of 512", ""),
    (
        "luks:key-file=/etc/keys/db/ext4",
        "luks option key-file is not taken: the key is made for the trial",
        "leave it out",
    ),
    ("bcache/ext4", "unknown filesystem 'bcache'", "mount it yourself and give dir:/mnt/x"),
    ("stratis/ext4", "unknown filesystem 'stratis'", "mount it yourself and give dir:/mnt/x"),
    ("vdo/ext4", "unknown filesystem 'vdo'", "mount it yourself and give dir:/mnt/x"),
    ("dm-integrity/ext4", "unknown filesystem 'dm-integrity'", "mount it yourself and give dir:/mnt/x"),
    ("lvm/zvol/ext4", "zvol over lvm doubles the pooling", ""),
    ("zvol/zfs", "zfs over zvol puts a pool on a pool", ""),
    (
        "zvol:recordsize=8k/ext4",
        "zvol option recordsize is not taken: it is of a dataset",
        "zvol:volblocksize=16k/ext4",
    ),
    ("zvol:volblocksize=3k/ext4", "volblocksize 3072 is not a power of two", ""),
    ("jfs", "unknown filesystem 'jfs'", "pgstrata does not build jfs: mount it yourself"),
    ("ntfs", "unknown filesystem 'ntfs'", "pgstrata does not build ntfs: mount it yourself"),
    ("f2fs", "unknown filesystem 'f2fs'", "pgstrata does not build f2fs: mount it yourself"),
    ("bcachefs", "unknown filesystem 'bcachefs'", "pgstrata does not build bcachefs: mount it yourself"),
    ("nfs:sec=krb5", "nfs option sec is not taken: Kerberos needs keys", "dir:/mnt/x"),
    ("nfs:vers=4", "nfs option vers=4 is not taken: the version is attested with its minor number", "vers=4.2"),
    ("nfs:noac,actimeo=3", "noac caches no attributes, and actimeo says how long", ""),
    ("nfs:nolock", "nolock and noacl are of NFS 3", ""),
    ("nfs:nosoft2", "nfs has no option 'nosoft2'", "docs/reference/campaign.md lists the options of nfs"),
    ("ext4:journal_async_commit", "ext4 option journal_async_commit is not taken: the kernel refuses it", "dir:/mnt/x"),
    ("ext4:lazy_itable_init=1", "ext4 option lazy_itable_init is not taken: a kernel thread would", "dir:/mnt/x"),
    ("ext4:errors=panic", "ext4 option errors=panic is not taken: an error", "remount-ro"),
    ("ext4:extent=off", "without extents there is no 64bit", ""),
    (
        "ext4:-J device=/dev/sdb",
        "ext4 option -J device is not taken: an external journal takes a device",
        "ext4+log(DEVICE)",
    ),
    ("ext4+cache", "+cache in 'ext4+cache' is not taken: ext4 has one device of its own, +log", "ext4:OPTION+log"),
    ("xfs+log:noatime", "+log:noatime in 'xfs+log:noatime' is not taken", "options stand before it"),
    ("xfs+log(2)", "the log of xfs takes one device, and 2 are given", ""),
    ("ext4:journal_size=64m+log", "a journal on a device of its own takes the whole device", ""),
    ("ext4:nojournal+log", "a journal on a device of its own", ""),
    ("nfs(ext4+log)", "the ext4 below an export has no log on a device of its own", ""),
    ("xfs:agcount=4,agsize=1g", "agsize and agcount say the same", ""),
    ("btrfs:thread_pool=8", "btrfs option thread_pool is not taken: the kernel shows it only where", "dir:/mnt/x"),
    ("btrfs:nodatacow,compress-force=zstd", "compress_force excludes compress and nodatacow", ""),
    ("zfs:encryption=aes-256-gcm,keylocation=prompt", "zfs option keylocation is not taken: the key is made", "write"),
    ("zfs:feature@async_destroy=enabled", "zfs option feature is not taken", "compatibility="),
    ("zfs:quota.x=1", "zfs option quota is not taken", "dir:/mnt/x"),
    ("zfs:special=mirror", "zfs option special is not taken: further vdevs follow a plus sign", "+special(mirror)"),
    ("zfs:special(mirror)", "zfs option special(mirror) is not taken: further vdevs", "+special(mirror)"),
    ("zfs+special:special_small_blocks=16k", "properties stand before the first +", "zfs:special_small_blocks=16k+"),
    ("zfs:dedup=edonr", "zfs option dedup=edonr is not taken", "edonr,verify"),
    ("md(raid4,4)/xfs", "md option raid4 is not taken: it is no level that pgstrata builds", "dir:/mnt/x"),
    ("md(raid10,f2,4)/xfs", "md option f2 is not taken: mdadm's own layout is built", "dir:/mnt/x"),
    ("md(raid0,2):chunk=64/xfs", "chunk 64 is not a multiple of 4k", "64k"),
    ("lvm(raid1,2)/xfs", "lvm option raid1 is not taken: redundancy is built by md", "md(raid1,2)"),
    ("lvm(striped,2):stripe_size=64/xfs", "stripe_size 64 is not a power of two from 4k", "64k"),
    ("ext4:journal_size=128", "journal_size 128 is below 1 MiB", "1g"),
    ("tmpfs:size=50%", "size 50% depends on the memory of the host: write bytes", "size=8g"),
    ("zfs+dedup", "+dedup in 'zfs+dedup' is not taken", "dir:/mnt/x"),
    ("zfs+cache(mirror)", "mirror in +cache(mirror) is not taken", "+special(mirror)"),
    ("zfs+special(mirror,1)", "a mirrored special vdev needs 2 devices", ""),
    ("zfs:special_small_blocks=16k", "special_small_blocks needs a special vdev: add +special", ""),
    ("md(raid10,4):layout=f2/ext4", "md option layout is not taken: mdadm's own layout is built", "dir:/mnt/x"),
    ("lvm(striped,2,mirrors=1)/ext4", "lvm option mirrors is not taken: redundancy is built by md", "md(raid1,2)"),
    ("", "the stack is empty", "xfs:noatime"),
    ("ext4@wal=", "@wal= in 'ext4@wal=' names no filesystem", "@wal=xfs:noatime"),
    ("zfs/ext4", "nothing stands on zfs", "the filesystem last"),
    ("ext4(", "a parenthesis is not closed", "md(raid10,4)/ext4"),
    ("nfs:server=db2", "'db2' is no export of a server", "server=db2:/srv/postgres"),
    ("btrfs:compress=zst", "'zst' is not valid here", "zstd, lzo, zlib"),
    ("ext4:noatme", "ext4 has no option 'noatme'", "did you mean noatime?"),
    ("btrfs:nodatacw", "btrfs has no option 'nodatacw'", "did you mean nodatacow?"),
    ("zfs:modul.x=1", "zfs has no option modul.x", "did you mean module?"),
    ("ext4:commit", "ext4 option commit needs a value", "commit=VALUE"),
    ("ext4:commit=abc", "'abc' is not a whole number", ""),
    ("ext4:noatime,noatime", "noatime is given twice", ""),
    ("ext4:data=fast", "'fast' is not valid here", "journal, ordered, writeback"),
    ("ext4(noatime)", "ext4 takes no 'noatime' in parentheses", "ext4:noatime"),
    ("ext4 noatime", "'noatime' in 'ext4 noatime' is not understood", "ext4:OPTION"),
    ("btrfs(raid7)", "'raid7' is not valid here", "did you mean raid6?"),
    ("md(raid10,3)/ext4", "md raid10 needs at least 4 devices, not 3", ""),
    ("md(raid6,3)/ext4", "md raid6 needs at least 4 devices, not 3", ""),
    ("btrfs(raid6,2)", "btrfs raid6 needs at least 3 devices, not 2", ""),
    ("btrfs(raid1c3,2)", "btrfs raid1c3 needs at least 3 devices, not 2 (data profile)", ""),
    ("loop(3)/btrfs(raid1,raid1c4)", "btrfs raid1c4 needs at least 4 devices, not 3 (metadata profile)", ""),
    ("md(raid10,4)/zfs", "zfs over md hides the disks", ""),
    ("lvm/tmpfs", "tmpfs takes no device and no block layer", ""),
    ("lvm(striped,1)/xfs", "lvm striped needs at least 2 devices", ""),
    ("lvm/md(raid1)/xfs", "md over lvm", ""),
    ("ext4(3)", "ext4 sits on one device, and 3 are given", ""),
    ("ext4:bigalloc=1k", "bigalloc_cluster is a power of two above the block size", ""),
    ("btrfs:nodatacow,compress=zstd", "nodatacow turns compression off", ""),
    ("md/ext4", "'level' is missing", ""),
    ("lvm(25)", "'lvm(25)' ends without a filesystem", "lvm(25)/xfs"),
    ("disk()/xfs", "names no disk", ""),
    ("disk(a,a)/md(raid1)/xfs", "a device is named twice", ""),
    ("disk(a,b)/md(raid1,3)/xfs", "3 devices are asked for, and 2 are listed", ""),
    ("disk(a)/xfs@wal=disk(a)/xfs", "a is used by data and wal", ""),
    ("lvm/loop(2)/xfs", "is a device: it comes first", ""),
    ("dir", "names no directory", "dir:/path"),
    ("zfs+lug", "+lug in 'zfs+lug' is not a vdev of zfs", "did you mean log?"),
    ("zfs(raid10,5)", "needs an even number of devices", ""),
    ("ext4@wla=tmpfs", "@wla in 'ext4@wla=tmpfs' is neither a place nor", "did you mean wal?"),
    ("ext4@quue.scheduler=none", "@quue.scheduler in", "did you mean queue.scheduler?"),
    ("ext4@fsync", "sets nothing", "@SETTING=VALUE"),
    ("ext4@fs.x=1@vm.swappiness", "sets nothing", ""),
    ("btrfs(raid10", "a parenthesis is not closed", ""),
    ('dir:"/mnt', "a quote is not closed", ""),
]


@pytest.mark.parametrize(("text", "message", "hint"), REFUSED, ids=[text or "empty" for text, _, _ in REFUSED])
def test_nonsense_is_refused_with_the_reason(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_stack(text)
    assert message in caught.value.message
    assert hint in caught.value.hint


WORDS = ["ext4", "zfs", "md", "lvm", "nfs", "dir", "loop", "disk", "raid10", "4", "noatime", "size=2G", "wal", "log"]


@given(st.lists(st.sampled_from([*WORDS, *'(),:/@+=" .', "x", "é"]), max_size=12).map("".join))
@settings(deadline=None, max_examples=300)
def test_any_text_is_a_stack_or_a_usage_error(text: str) -> None:
    try:
        stack = parse_stack(text)
    except UsageError:
        return
    assert parse_stack(render_stack(stack)).data == stack.data


OTHER_NAMES = {
    "raid10/xfs": "md(raid10)/xfs",
    "raid10(6)/xfs": "md(raid10,6)/xfs",
    "raid1(2,bitmap=internal)/xfs": "md(raid1,2,bitmap=internal)/xfs",
    "raid5": "md(raid5)/ext4",
    "mdadm(raid10)/xfs:noatime": "md(raid10)/xfs:noatime",
    "striped(4)/xfs": "lvm(striped,4)/xfs",
    "lvm-thin/xfs": "lvm(thin)/xfs",
    "lvmcache/xfs": "lvm+cache/xfs",
    "vg/xfs": "lvm/xfs",
    "luks2/btrfs": "luks/btrfs",
    "nvme/ext4": "media(nvme)/ext4",
    "ssd(2)/md(raid1)/xfs": "media(sata-ssd,2)/md(raid1)/xfs",
    "gp3/xfs": "media(cloud-volume)/xfs",
    "mirror": "zfs(mirror)",
    "raidz/zfs": "zfs(raidz1)",
    "raidz2(6):compression=lz4": "zfs(raidz2,6):compression=lz4",
    "ramdisk:size=4g": "tmpfs:size=4g",
    "ext4@wal=ssd": "media(sata-ssd)/ext4",
    "ext4@wal=/mnt/log": "dir:/mnt/log",
    "btrfs:raid1": "btrfs(raid1)",
    "zfs:mirror": "zfs(mirror)",
    "ext4:writeback": "ext4:data=writeback",
}


@pytest.mark.parametrize("text", OTHER_NAMES)
def test_another_name_is_told_as_it_is_written_here(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_stack(text)
    written = caught.value.hint.removeprefix("write ").partition(" ")[0]
    assert written == OTHER_NAMES[text]
    assert parse_stack(written)


@pytest.mark.parametrize("name", ["sda", "/dev/nvme0n1p2", "vdb1", "md0", "dm-3"])
def test_a_disk_is_taken_by_its_id(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_stack(f"{name}/xfs")
    assert caught.value.hint == f"write disk(ID)/xfs: pgstrata doctor lists the id of {name}"


@pytest.mark.parametrize(
    ("text", "written"), [("zfs+l2arc", "+cache"), ("zfs+slog", "+log"), ("zfs+metadata", "+special")]
)
def test_vdevs_have_other_names_too(text: str, written: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_stack(text)
    assert caught.value.hint == f"write {written}"
    assert parse_stack(f"zfs{written}")
