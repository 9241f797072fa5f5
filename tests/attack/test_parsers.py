"""A hundred thousand inputs for every parser of text from users, programs and files: our own errors alone, and soon."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mutations import mutate

from attacking import scaled
from pgstrata.analyze.campaign.gate import parse_condition
from pgstrata.cli.output import parse_margin
from pgstrata.errors import PgstrataError
from pgstrata.host.facts.block import parse_findmnt, parse_lsblk
from pgstrata.importers.csv_runs import import_csv
from pgstrata.importers.pgbench_text import read_pgbench_text
from pgstrata.postgres.fetch import parse_links
from pgstrata.postgres.settings import parse_conf, take_over
from pgstrata.spec.durability import parse_configuration
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.hosts.inventory import group_addresses, parse_inventory
from pgstrata.spec.hosts.targets import parse_target
from pgstrata.spec.notation.stack import parse_stack, render_stack
from pgstrata.spec.units import parse_duration_s, parse_fraction, parse_size_bytes
from pgstrata.stack.block.loop import parse_losetup
from pgstrata.stack.block.lvm import parse_lvs, parse_pvs
from pgstrata.stack.fs.zfs_status import parse_zpool_status
from pgstrata.stack.mounts import parse_mountinfo
from pgstrata.stack.safety import parse_blkid, parse_device_id, parse_wipefs
from pgstrata.workload.medium import parse_fio, parse_pg_test_fsync
from pgstrata.workload.pgbench_logs import summarise_logs
from pgstrata.workload.pgbench_output import parse_init, parse_progress, parse_result

INPUTS = 100_000
LONGEST_S = 30.0
"""Of one input: far above what any takes on a busy machine, far below what one that grows without bound takes."""

FIXTURES = Path(__file__).parents[1] / "fixtures"
CAMPAIGNS = Path(__file__).parents[2] / "campaigns"

STACKS = (
    "ext4:noatime,data=writeback", "md(raid10,4)/ext4", 
    "zfs:compression=lz4,recordsize=16k+log(mirror)@wal=xfs@fsync=off",
    "loop(4,size=2G)/lvm(striped)/xfs:su=64k", "nfs(xfs:noatime):vers=3", "btrfs(raid10):compress=zstd:3,nodatasum",
    "disk(/dev/disk/by-id/a,PARTUUID=b)/md(raid1)/ext4", 'dir:"/mnt/a b"', "tmpfs:size=1g@vm.swappiness=1@thp=never",
    "xfs@queue.scheduler=none@tablespace.fast=tmpfs@initdb=--wal-segsize=64@search_path=a",
)  # fmt: skip
CSV = "stack,block,scale,tps,latency_p99_ms\nxfs,1,10,100.5,3\next4,1,10,90,4\nxfs,2,10,101,3\next4,2,10,91,4\n"
CONF = (
    "shared_buffers = 1GB\nwork_mem '4MB' # x\nsearch_path = 'it''s \\101'\nshared_preload_libraries='auto_explain,x'\n"
)
LOG = "".join(f"{n % 4} {n} {500 + n} 0 {1_700_000_000 + n // 9} {n}\n" for n in range(60))
INVENTORIES = [
    "a:22\n[db]\ndb[01:20] ansible_user=root\n[up:children]\ndb\n[db:vars]\nansible_host='x'\n",
    "all:\n  children:\n    db:\n      hosts: {'db[1:9:2]:22': {ansible_port: 2200}}\n      vars: {ansible_user: r}\n",
    '{"_meta": {"hostvars": {"a": {"ansible_host": "b"}}}, "all": {"children": ["db"]}, "db": {"hosts": ["a"]}}',
]
LINKS = '[{"source": "native/lib/libpq.so.5.1", "target": "native/lib/libpq.so.5"}]'


def _fixtures(pattern: str) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted(FIXTURES.glob(pattern))]


def _stack(text: str) -> object:
    stack = parse_stack(text)
    rendered = render_stack(stack)
    assert len(rendered) > 1000 or parse_stack(rendered).model_copy(update={"name": stack.name}) == stack
    return stack


Parser = Callable[[str], object]
OF_TEXT: dict[str, tuple[Parser, list[str]]] = {
    "stack": (_stack, list(STACKS)),
    "size": (parse_size_bytes, ["4GiB", "8k", "1.5 MB"]),
    "duration": (parse_duration_s, ["1h30min", "90s", "5"]),
    "share": (parse_fraction, ["2%", "0.02"]),
    "margin": (parse_margin, ["2%", "0.05"]),
    "condition": (parse_condition, ["tps(xfs) < 0.95*tps(ext4)", "latency_p99_ms(a b) > 20"]),
    "ssh": (parse_target, ["ssh://root@db1:2222", "ssh://[fe80::1%eth0]:22"]),
    "inventory": (lambda text: group_addresses(parse_inventory(text, "hosts"), "all"), INVENTORIES),
    "device id": (parse_device_id, ["/dev/vdb+10737418240+254:16", "PARTUUID=0fc63daf", "/dev/disk/by-id/x"]),
    "postgresql.conf": (parse_conf, [CONF]),
    "given postgresql.conf": (take_over, [CONF]),
    "configuration": (parse_configuration, [CONF]),
    "pgbench result": (parse_result, _fixtures("pgbench/*.out")),
    "pgbench progress": (parse_progress, _fixtures("pgbench/*-progress.err")),
    "pgbench output": (read_pgbench_text, _fixtures("pgbench/*-tpcb-progress.out")),
    "pgbench init": (parse_init, _fixtures("pgbench/*-init*.err")),
    "pg_test_fsync": (parse_pg_test_fsync, _fixtures("pg_test_fsync/*.txt")),
    "fio": (parse_fio, _fixtures("fio/*.json")),
    "lsblk": (parse_lsblk, _fixtures("host/lsblk-*.json")),
    "findmnt": (parse_findmnt, _fixtures("host/findmnt-*.json")),
    "mountinfo": (parse_mountinfo, _fixtures("stack/mountinfo-*.txt")),
    "zpool status": (parse_zpool_status, _fixtures("stack/zpool-*.txt")),
    "losetup": (parse_losetup, _fixtures("stack/losetup-*.json")),
    "lvs": (parse_lvs, _fixtures("stack/lvs-*.json")),
    "pvs": (parse_pvs, _fixtures("stack/pvs-*.json")),
    "wipefs": (parse_wipefs, _fixtures("stack/wipefs-*.json")),
    "blkid": (parse_blkid, _fixtures("stack/blkid-*.txt")),
    "links of a package": (parse_links, [LINKS]),
}
"""Name to parser and texts that it reads."""

VALUE_ERROR = ("size", "duration", "share", "device id")
"""Values of one field: their parsers raise ValueError, which the loader puts into words."""

OF_FILE: dict[str, tuple[Callable[[Path, Path], object], list[str], float]] = {
    "campaign": (lambda path, _: load_campaign(path), [p.read_text() for p in sorted(CAMPAIGNS.glob("*.yaml"))], 0.02),
    "table": (lambda path, out: import_csv(path, out), [CSV], 0.005),
    "log": (lambda path, _: summarise_logs([path]), [LOG], 0.02),
}
"""Name to parser of a file, texts that it reads, and its share of the inputs: files take longer."""


def _inputs(seeds: list[str], count: int, rng: random.Random) -> Iterator[bytes]:
    contents = [seed.encode() for seed in seeds]
    others = [*contents, CONF.encode(), STACKS[2].encode()]
    for number in range(count):
        content = contents[number % len(contents)]
        for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
            content = mutate(content, others, rng)
        yield content


def _try(parse: Callable[[Any], object], given: Any, allowed: tuple[type[Exception], ...], shown: bytes) -> str:
    began_s = time.process_time()  # of this process alone: what else the machine does is no matter
    try:
        parse(given)
        outcome = "read"
    except allowed:
        outcome = "refused"
    except Exception as error:
        error.add_note(f"input: {shown[:1500]!r}")
        raise
    assert time.process_time() - began_s < LONGEST_S, shown[:1500]
    return outcome


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", sorted(OF_TEXT))
def test_texts(name: str) -> None:
    parse, seeds = OF_TEXT[name]
    assert seeds
    count = max(20, scaled(round(INPUTS * (1 - sum(share for _, _, share in OF_FILE.values())) / len(OF_TEXT))))
    allowed = (PgstrataError, ValueError) if name in VALUE_ERROR else (PgstrataError,)
    rng = random.Random(name)
    outcomes = Counter(
        _try(parse, content.decode(errors="replace"), allowed, content) for content in _inputs(seeds, count, rng)
    )
    assert outcomes.total() == count
    assert outcomes["read"] > count / 20  # what was not changed at all is among them


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", sorted(OF_FILE))
def test_files(name: str, memory: Path) -> None:
    parse, seeds, share = OF_FILE[name]
    count = max(20, scaled(round(INPUTS * share)))
    outcomes: Counter[str] = Counter()
    path = memory / name
    for number, content in enumerate(_inputs(seeds, count, random.Random(name))):
        path.write_bytes(content)
        out = memory / f"out{number}"
        outcomes[_try(lambda given: parse(given, out), path, (PgstrataError,), content)] += 1  # noqa: B023
    assert outcomes["read"] > count / 20
    assert outcomes["refused"] > count / 20
