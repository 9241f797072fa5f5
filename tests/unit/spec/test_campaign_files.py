"""Campaign files: what they mean, and the exact message for each way to get one wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgstrata.errors import ExitCode, UsageError
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.notation.stack import render_stack


def load(folder: Path, text: str) -> Campaign:
    file = folder / "c.yaml"
    file.write_text(text)
    return load_campaign(file)


def shown(campaign: Campaign) -> dict[str, str]:
    return {stack.name: render_stack(stack) for stack in campaign.stacks}


MEANINGS = {
    "a list of short notation": (
        "stacks: [ext4, 'xfs:noatime', tmpfs]",
        {"ext4": "ext4", "xfs:noatime": "xfs:noatime", "tmpfs": "tmpfs"},
    ),
    "an empty value is its own name": ("stacks: {ext4: , fast: tmpfs}", {"ext4": "ext4", "fast": "tmpfs"}),
    "defaults under every stack, no device under tmpfs": (
        "defaults: {device: {loop: 1, size: 3G}, postgresql: {settings: {fsync: off}}}\nstacks: [ext4, tmpfs]",
        {"ext4": "loop(size=3g)/ext4@fsync=off", "tmpfs": "tmpfs@fsync=off"},
    ),
    "a stack overrides its defaults": (
        "defaults: {postgresql: {settings: {fsync: off, jit: off}}}\nstacks: {a: 'ext4@fsync=on'}",
        {"a": "ext4@fsync=on@jit=off"},
    ),
    "inheritance changes one thing, over several levels": (
        "stacks:\n  a: ext4\n  b: {inherits: a, fs: {noatime: true}}\n  c: {inherits: b, fs: {data: writeback}}",
        {"a": "ext4", "b": "ext4:noatime", "c": "ext4:data=writeback,noatime"},
    ),
    "short notation replaces what a mapping changes": (
        "stacks:\n  a: ext4:noatime\n  b: {inherits: a, fs: 'ext4:nodiratime'}",
        {"a": "ext4:noatime", "b": "ext4:nodiratime"},
    ),
    "another kind of filesystem takes nothing over": (
        "stacks:\n  a: ext4:noatime\n  b: {inherits: a, fs: {kind: xfs}}",
        {"a": "ext4:noatime", "b": "xfs"},
    ),
    "null takes a setting back": (
        "templates: {t: {fs: ext4, wal: xfs}}\nstacks: {a: {inherits: t}, b: {inherits: t, wal: null}}",
        {"a": "ext4@wal=xfs", "b": "ext4"},
    ),
    "a mapping can start from short notation": (
        "stacks: {a: {stack: 'zfs:compression=lz4', postgresql: {settings: {full_page_writes: off}}}}",
        {"a": "zfs:compression=lz4@full_page_writes=off"},
    ),
    "devices in every form": (
        "stacks:\n"
        "  a: {device: loop, fs: ext4}\n"
        "  b: {device: {loop: 4}, layers: md(raid10), fs: ext4}\n"
        "  c: {device: {loop: {count: 2, size: 1G}}, layers: [{kind: md, level: raid1}, lvm], fs: ext4}\n"
        "  d: {device: /dev/disk/by-id/x, fs: ext4}\n"
        "  e: {device: {disk: [x, y]}, fs: btrfs(raid1)}\n"
        "  f: {device: {kind: disk, ids: [x]}, fs: ext4}\n",
        {
            "a": "ext4", "b": "md(raid10,4)/ext4", "c": "loop(2,size=1g)/md(raid1)/lvm/ext4",
            "d": "disk(/dev/disk/by-id/x)/ext4", "e": "disk(x,y)/btrfs(raid1)", "f": "disk(x)/ext4",
        },
    ),
    "a layout takes the first of the listed disks": (
        "defaults: {device: {disk: [x, y, z]}}\nstacks: ['md(raid1,2)/ext4', 'btrfs(raid0)']",
        {"md(raid1,2)/ext4": "disk(x,y)/md(raid1)/ext4", "btrfs(raid0)": "disk(x,y,z)/btrfs(raid0)"},
    ),
    "modelled media": (
        "stacks:\n  a: {device: {media: hdd-7200, size: 40G, count: 6}, fs: btrfs}",
        {"a": "media(hdd-7200,6,size=40g)/btrfs"},
    ),
    "wal, tablespaces and vdevs of zfs": (
        "stacks:\n  a:\n    fs: {kind: zfs, log: true, special: {loop: 2}}\n    wal: xfs:noatime\n"
        "    tablespaces: {t: {fs: ext4, device: {loop: {size: 1G}}}}",
        {"a": "zfs+log+special(loop(2))@wal=xfs:noatime@tablespace.t=loop(size=1g)/ext4"},
    ),
    "yaml 1.1 does not guess: on and off stay what the model wants": (
        "stacks: {a: {fs: {kind: zfs, compression: off, atime: off, xattr: on}}, b: {fs: {kind: nfs, version: 4.2}}}",
        {"a": "zfs:compression=off,atime=off,xattr=on", "b": "nfs"},
    ),
    "a matrix": (
        "matrix:\n  name: '{fs}, io {io}'\n  base: {device: {loop: {size: 4G}}}\n  factors:\n"
        "    fs: [ext4, xfs]\n    io: {sync: '@io_method=sync', '': null}\n  exclude: [{fs: xfs, io: sync}]",
        {
            "ext4, io sync": "loop(size=4g)/ext4@io_method=sync", "ext4, io": "loop(size=4g)/ext4",
            "xfs, io": "loop(size=4g)/xfs",
        },
    ),
    "a matrix over majors, based on a stack": (
        "stacks: {a: xfs:noatime}\nmatrix:\n  base: a\n  factors:\n    major: {pg16: '@major=16', pg18: '@major=18'}",
        {"a": "xfs:noatime", "pg16": "xfs:noatime@major=16", "pg18": "xfs:noatime@major=18"},
    ),
    "a check of the method": ("stacks: [ext4, xfs]\nruns: {aa: true}",
                              {"ext4": "ext4", "ext4 (A/A)": "ext4", "xfs": "xfs"}),
}  # fmt: skip


@pytest.mark.parametrize(("text", "stacks"), MEANINGS.values(), ids=list(MEANINGS))
def test_stacks_of_a_file(tmp_path: Path, text: str, stacks: dict[str, str]) -> None:
    assert shown(load(tmp_path, text)) == stacks


def test_the_rest_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.sql").write_text("select 1;\n")
    campaign = load(
        tmp_path,
        "seed: 7\nscratch: /srv/scratch\nstacks: [ext4, xfs]\n"
        "workload: {script: [mine.sql, select-only], scale: 10, clients: [1, 8], duration: 1min30s,"
        " durations: {mine.sql: 20s}}\n"
        "runs: {budget: 2h, load: fresh}\ngoal: {against: ext4, margin: 3%}\n",
    )
    assert campaign.name == "c"
    assert campaign.workload.script == (str(tmp_path / "mine.sql"), "select-only")
    assert [c.id for c in campaign.workload.cells] == [
        "mine-s10-c1", "mine-s10-c8", "select-only-s10-c1", "select-only-s10-c8",
    ]  # fmt: skip
    assert [campaign.workload.cell_duration_s(c) for c in campaign.workload.cells] == [20.0, 20.0, 90.0, 90.0]
    assert campaign.runs.budget == 7200.0
    assert (campaign.goal.kind, campaign.goal.margin) == ("against", 0.03)


def test_files_are_found_beside_the_campaign(tmp_path: Path) -> None:
    (tmp_path / "pg.conf").write_text("fsync = on\n")
    campaign = load(tmp_path, "stacks: {a: {fs: ext4, postgresql: {postgresql_conf: pg.conf}}}")
    assert campaign.stack("a").postgresql.postgresql_conf == str(tmp_path / "pg.conf")


def test_goals_in_short(tmp_path: Path) -> None:
    assert load(tmp_path, "stacks: [ext4, xfs]\ngoal: all-pairs").goal.kind == "all-pairs"
    goal = load(tmp_path, "stacks: [ext4, xfs]\ngoal: {equivalent: [[ext4, xfs, 3%]]}").goal
    assert (goal.kind, goal.equivalent[0].margin) == ("equivalent", 0.03)


BAD = [
    ("", "c.yaml: a campaign is a mapping (key: value), and this file is not", "docs/campaign.md"),
    ("- a\n- b", "c.yaml: a campaign is a mapping (key: value), and this file is not", "docs/campaign.md"),
    ("stacks: [ext4\n", "c.yaml:2: not valid YAML: expected ',' or ']', but got '<stream end>'", ""),
    ("stacks: [ext4]\nstacks: [xfs]", "c.yaml:2: stacks: given twice, first in line 1", ""),
    ("a: &x {b: 1}\nc:\n  <<: *x\n", "c.yaml:3: c: YAML merge keys are not read", "inherits"),
    ("stacks: [!!python/name:os ext4]",
     "c.yaml:1: stacks.0: tag tag:yaml.org,2002:python/name:os is not allowed here", ""),
    ("name: x", "c.yaml:1: stacks: no stack is named", "stacks: [ext4, xfs]"),
    ("stacks: ext4", "c.yaml:1: stacks: is a mapping of names to stacks, or a list of short notation", ""),
    ("stacks: [ext4, ext4]", "c.yaml:1: stacks.1: stack 'ext4' is named twice", ""),
    ("stacks: [{fs: ext4}]",
     "c.yaml:1: stacks.0: a list of stacks holds short notation; give others a name: NAME: {...}", ""),
    ("stackz: [ext4]\nstacks: [ext4]", "c.yaml:1: stackz: unknown key 'stackz'", "did you mean stacks?"),
    ("stacks: [ext5]", "c.yaml:1: stacks.ext5: unknown filesystem 'ext5' in 'ext5'", "did you mean ext4?"),
    ("stacks:\n  a: ext4:noatme", "c.yaml:2: stacks.a: ext4 has no option 'noatme'", "did you mean noatime?"),
    ("stacks:\n  a:\n    fs:\n      kind: ext4\n      noatme: on",
     "c.yaml:5: stacks.a.data.fs.noatme: unknown key 'noatme'",
     "did you mean noatime?"),
    ("stacks:\n  a:\n    fs: ext4\n    kernl: {}",
     "c.yaml:4: stacks.a.kernl: unknown key 'kernl'", "did you mean kernel?"),
    ("stacks:\n  a: {fs: ext4, inherit: b}",
     "c.yaml:2: stacks.a.inherit: unknown key 'inherit'", "did you mean inherits?"),
    ("stacks:\n  a: {wal: xfs}", "c.yaml:2: stacks.a: 'data' is missing", ""),
    ("stacks:\n  a: {fs: {noatime: on}}", "c.yaml:2: stacks.a.data.fs: 'kind' is missing", "one of: ext4, xfs"),
    ("stacks:\n  a: {fs: {kind: zfz}}", "c.yaml:2: stacks.a.data.fs: unknown kind 'zfz'", "did you mean zfs?"),
    ("stacks:\n  a: {fs: ext4, device: {loop: 1, sizes: 3}}",
     "c.yaml:2: stacks.a.data.device.sizes: unknown key 'sizes'",
     "did you mean size?"),
    ("stacks:\n  a: {fs: ext4, device: {loop: 1, size: 3X}}",
     "c.yaml:2: stacks.a.data.device.size: '3X' is not a size", "for example 8k, 512M, 4GiB"),
    ("stacks:\n  a: {fs: ext4, layers: raid10}", "c.yaml:2: stacks.a.layers.0: unknown layer 'raid10'", "md(raid10,4)"),
    ("defaults: {device: {disk: [x, y]}}\nstacks:\n  a: md(raid5,3)/xfs",
     "c.yaml:3: stacks.a.data.device: 3 devices are asked for, and 2 are listed", ""),
    ("stacks:\n  a: md(raid10,3)/ext4", "c.yaml:2: stacks.a.data: md raid10 needs at least 4 devices, not 3", ""),
    ("stacks:\n  a: {fs: ext4, kernel: {sysctl: {net.core.x: 1}}}",
     "c.yaml:2: stacks.a.kernel.sysctl: net.core.x is not a vm., kernel. or fs. setting", ""),
    ("stacks:\n  a: {fs: ext4, kernel: {transparent_hugepage: of}}",
     "c.yaml:2: stacks.a.kernel.transparent_hugepage: 'of' is not valid here", "valid here: always, madvise, never"),
    ("stacks:\n  a: {fs: ext4, postgresql: {major: 12}}",
     "c.yaml:2: stacks.a.postgresql.major: '12' must be at least 13", ""),
    ("stacks:\n  a: {fs: ext4, postgresql: {installation: pgsql}}",
     "c.yaml:2: stacks.a.postgresql.installation: 'pgsql' is no whole path of a folder, such as"
     " /usr/local/pgsql-18.1", ""),
    ("stacks:\n  a: {fs: ext4, postgresql: {installation: /opt/pg/../x}}",
     "c.yaml:2: stacks.a.postgresql.installation: '/opt/pg/../x' is no whole path of a folder, such as"
     " /usr/local/pgsql-18.1", ""),
    ("stacks:\n  a: {fs: ext4, postgresql: {installation: /opt/pg, source: system}}",
     "c.yaml:2: stacks.a.postgresql: installation names the programs: leave source out", ""),
    ("stacks:\n  a: {fs: {kind: imported}}", "c.yaml:2: stacks.a.data.fs: an imported stack cannot be built", ""),
    ("stacks:\n  a: {fs: {kind: zfs, wal_dataset: {}}, wal: xfs}",
     "c.yaml:2: stacks.a: pg_wal is placed twice: by wal and by the wal_dataset of zfs", ""),
    ("stacks:\n  a: {fs: {kind: lvm}, layers: lvm}", "c.yaml:2: stacks.a.data.fs: unknown kind 'lvm'", "valid here"),
    ("stacks:\n  a: {fs: {kind: nfs, server: 'h:/x', export: xfs}}",
     "c.yaml:2: stacks.a.data: an existing NFS export is another machine's: what it exports cannot be chosen here", ""),
    ("stacks:\n  a: {fs: {kind: nfs, server: 'h:/x'}, layers: lvm}",
     "c.yaml:2: stacks.a.data: an existing NFS export takes no device and no block layer: what is below it is the"
     " server's", ""),
    ("stacks:\n  a: {fs: {kind: dir, path: x}}", "c.yaml:2: stacks.a.data.fs.path: 'x' is not an absolute path", ""),
    ("stacks:\n  a: {inherits: b}\n  b: {inherits: c}\n  c: {inherits: b}",
     "3 problems in c.yaml\n"
     "  c.yaml:3: stacks.b.inherits: stacks inherit in a circle: c -> b -> c\n"
     "  c.yaml:4: stacks.c.inherits: stacks inherit in a circle: a -> b -> c -> b\n"
     "  c.yaml:4: stacks.c.inherits: stacks inherit in a circle: b -> c -> b", ""),
    ("stacks:\n  base: ext4\n  a: {inherits: bas}", "c.yaml:3: stacks.a.inherits: there is no stack 'bas'",
     "did you mean base?"),
    ("stacks:\n  a: {fs: ext4, postgresql: {postgresql_conf: no.conf}}",
     "c.yaml:2: stacks.a.postgresql.postgresql_conf: file no.conf does not exist", "looked for"),
    ("stacks:\n  a:\n    fs: ext4\n    postgresql:\n      settings:\n        archive_command: 'x'",
     "c.yaml:6: stacks.a.postgresql.settings.archive_command: setting 'archive_command' is refused: WAL is not"
     " archived",
     "docs/postgresql.md"),
    ("stacks: ['ext4@shared_bufers=1GB']",
     "c.yaml:1: stacks.ext4@shared_bufers=1GB.postgresql.settings.shared_bufers: setting 'shared_bufers' is refused:"
     " it is not among the settings of PostgreSQL 13 to 18 that are taken over", "did you mean shared_buffers?"),
    ('stacks:\n  a: {fs: ext4, postgresql: {settings: {search_path: "a\\nlisten_addresses=0.0.0.0"}}}',
     "c.yaml:2: stacks.a.postgresql.settings.search_path: the value of search_path holds a line break or another"
     " control character: 'a\\nlisten_addresses=0.0.0.0'", "on one line"),
    ("stacks: [ext4]\nworkload: {script: tpcb-lke}",
     "c.yaml:2: workload.script: 'tpcb-lke' is neither a script of pgbench nor a file beside the campaign",
     "did you mean tpcb-like?"),
    ("stacks: [ext4]\nworkload: {sql: dump.sql}", "c.yaml:2: workload.sql: file dump.sql does not exist", "looked for"),
    ("stacks: [ext4]\nworkload: {scale: [1, many]}", "c.yaml:2: workload.scale.1: 'many' is not a whole number", ""),
    ("stacks: [ext4]\nworkload: {duration: fast}",
     "c.yaml:2: workload.duration: 'fast' is not a duration", "for example 90s, 15min, 1h"),
    ("stacks: [ext4]\nworkload: {duration: 1min, transactions: 5}",
     "c.yaml:2: workload: duration and transactions exclude each other", ""),
    ("stacks: [ext4]\nworkload: {durations: {select-only: 5}}",
     "c.yaml:2: workload: durations names 'select-only', which is not among the scripts", ""),
    ("stacks: [ext4]\nworkload: {tablespace: fast}",
     "c.yaml:2: workload.tablespace is 'fast', which no stack has", ""),
    ("stacks: [ext4]\nruns: {loads: copy}", "c.yaml:2: runs.loads: unknown key 'loads'", "did you mean load?"),
    ("stacks: [ext4]\nruns: {blocks: 0}", "c.yaml:2: runs.blocks: '0' must be at least 1", ""),
    ("stacks: ['disk(x)/ext4', 'disk(y,x)/btrfs']\nruns: {load: keep}",
     "c.yaml:2: runs.load is keep, but stacks 'disk(x)/ext4' and 'disk(y,x)/btrfs' share x", "load: copy"),
    ("stacks: ['disk(x)/ext4', 'disk(y)/btrfs']\nruns: {load: keep, aa: true}",
     "c.yaml:2: runs.load is keep and runs.aa runs 'disk(x)/ext4' under two names, but both would share x",
     "load: copy"),
    ("stacks: ['disk(x)/ext4']\nruns: {load: keep}\nworkload: {scale: [1, 5]}",
     "c.yaml:2: runs.load is keep, but stack 'disk(x)/ext4' would be kept at 2 scales on one x", "name one scale"),
    ("stacks: ['media(nvme,timed=runs)/ext4']\nruns: {precondition: steady}",
     "c.yaml:2: runs.precondition is steady, but modelled disks that are timed in runs alone do not see what it writes",
     "timed: always"),
    ("stacks: [ext4]\nruns: {precondition: steady}\nlab: {disks: {log: {media: nvme, timed: runs}}}",
     "c.yaml:2: runs.precondition is steady, but modelled disks that are timed in runs alone do not see what it writes",
     "timed: always"),
    ("stacks: [ext4]\nlab: {disks: {log: {timed: runs}}}",
     "c.yaml:2: lab.disks.log: timed is about the times of a modelled medium, and none is given: media", ""),
    ("stacks: [ext4]\ngoal: {margin: 0}", "c.yaml:2: goal.margin: 0.0 must be more than 0.0", ""),
    ("stacks: [ext4]\ngoal: bst", "c.yaml:2: goal: 'bst' is not valid here", "did you mean best?"),
    ("stacks: [ext4]\ngoal: {against: xfs}",
     "c.yaml:2: the goal names stack 'xfs', which is not there", "valid here: ext4"),
    ("stacks:\n  a: {fs: xfs, layers: true}", "c.yaml:2: stacks.a.data.layers: True is not a list", ""),
    ("stacks: [ext4]\ncrash: {power: true}",
     "c.yaml:2: crash.power is for clusters: a single server is always tested by power loss",
     "'cluster(3,ANY 1)/ext4'"),
    ("stacks: ['cluster(2)/ext4']\ncrash: {power: true, rejoin: rewind}",
     "c.yaml:2: with crash.power all nodes lose power, and the one that reaches furthest goes on: crash.rejoin is for"
     " nodes that are lost while the others run", "crash.gone"),
    ("stacks: [ext4, 'cluster(2)/ext4']\ncrash: {gone: [primary]}",
     "c.yaml:2: of clusters nodes are lost: crash.gone is for power cuts", "crash.power"),
    ("stacks: ['cluster(2)/ext4']\ncrash: {script: tpcb-like}",
     "c.yaml:2: of clusters nodes are lost: crash.script is for power cuts", "crash.power"),
    ("stacks: [ext4]\ncrash: {script: tpcb}", "c.yaml:2: crash.script: 'tpcb' is not valid here",
     "did you mean tpcb-like?"),
    ("stacks: ['cluster(2)/ext4', 'cluster(3)/tmpfs']\ncrash: {power: true, gone: [standby3]}",
     "c.yaml:2: crash.gone: power cannot be cut below cluster(2)/ext4: it has no node 'standby3' (there are: primary,"
        " standby1)",
     "nodes that are there"),
    ("stacks: ['cluster(2)/ext4']\ncrash: {rejoin: rewnd}", "c.yaml:2: crash.rejoin: 'rewnd' is not valid here",
     "did you mean rewind?"),
    ("matrix: {factors: {fs: [ext4, xfs], io: ['@a=1', '@b=1']}, name: '{fs}'}",
     "c.yaml:1: matrix.name: {io} is missing, so that stacks would have the same name", ""),
    ("matrix: {factors: {fs: [ext4]}, name: '{sf}'}", "c.yaml:1: matrix.name: {sf} is not a factor", "valid here: fs"),
    ("matrix: {factors: {fs: [ext4]}, exclude: [{fs: xfs}]}",
     "c.yaml:1: matrix.exclude.0.fs: 'xfs' is not a level", "valid here: ext4"),
    ("matrix: {factors: {fs: []}}", "c.yaml:1: matrix.factors.fs: a factor has levels: a list or a mapping", ""),
    ("stacks: [ext4]\nmatrix: {factors: {fs: [ext4]}}",
     "c.yaml:2: matrix.ext4: two stacks have the same name: 'ext4'", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "hint"), BAD, ids=[str(number) for number in range(len(BAD))])
def test_a_bad_campaign_is_refused_with_this_message(tmp_path: Path, text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    assert caught.value.message == message
    assert hint in caught.value.hint
    assert caught.value.hint
    assert caught.value.exit_code == ExitCode.USAGE


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, "stacks:\n  a: ext5\n  b: {fs: {kind: xfs, logbufs: 9}}\nruns: {aa: perhaps}\n")
    assert caught.value.message.splitlines() == [
        "3 problems in c.yaml",
        "  c.yaml:2: stacks.a: unknown filesystem 'ext5' in 'ext5' (did you mean ext4?)",
        "  c.yaml:3: stacks.b.data.fs.logbufs: '9' must be at most 8",
        "  c.yaml:4: runs.aa: 'perhaps' is not true or false (on, off)",
    ]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        load_campaign(tmp_path / "none.yaml")


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="byte 0 is not UTF-8"):
        load_campaign(tmp_path / "c.yaml")


def test_a_folder_that_is_no_dump_is_named_and_one_that_is_has_a_digest(tmp_path: Path) -> None:
    from pgstrata.trial.survey.preflight import loaded_bytes
    from pgstrata.trial.survey.survey import _digest

    dump, path = tmp_path / "dump", tmp_path / "c.yaml"
    dump.mkdir()
    path.write_text("name: c\nstacks: [tmpfs]\nworkload: {pg_restore: dump, script: [own.sql]}\n")
    (tmp_path / "own.sql").write_text("select 1;\n")
    with pytest.raises(UsageError, match="dump is a folder and no dump"):
        load_campaign(path)
    (dump / "toc.dat").write_bytes(b"PGDMP")
    campaign = load_campaign(path)
    first = _digest(campaign.workload.pg_restore)
    assert loaded_bytes(campaign)
    (dump / "1.dat.gz").write_bytes(b"x")
    assert len(first) == 64
    assert _digest(campaign.workload.pg_restore) != first
    with pytest.raises(UsageError, match="cannot read"):
        _digest(str(tmp_path / "gone"))
