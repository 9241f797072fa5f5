"""A disk in a file whose writer and daemon have too little memory together, where root may keep it out of reclaim."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from awaiting import wait_until
from pgstrata.host.delivery import deliver, program_call
from pgstrata.host.protocol import Host, command

GROUP = "/sys/fs/cgroup/pgstrata-test-media"
LIMIT_BYTES = 96 << 20
FOLDER = "/var/tmp/pgstrata-test-media"
MOUNT = f"{FOLDER}.mount"
BLOCK = "/run/pgstrata-test-block"
BLOCKS = 24
"""Of 8 MiB: twice what the group may have."""
PATIENCE_S = 600.0
DETACH = (
    f"losetup --associated {FOLDER}/disks/disk --noheadings --output NAME | xargs --no-run-if-empty losetup --detach"
)
JOIN = f'echo $$ > {GROUP}/cgroup.procs; exec "$@"'


@pytest.fixture
def group(host: Host) -> Iterator[None]:
    deliver(host)
    host.run(command("mkdir", GROUP))
    host.write_text(f"{GROUP}/memory.max", str(LIMIT_BYTES))
    yield
    host.run(command("umount", MOUNT), check=False)
    host.run(command("sh", "-euc", DETACH))
    host.run(program_call("stop", FOLDER))
    host.run(command("rm", "--recursive", "--force", FOLDER, f"{FOLDER}.image", MOUNT, BLOCK))
    wait_until(lambda: host.run(command("rmdir", GROUP), check=False).exit_code == 0, "the control group is empty")


@pytest.mark.usefixtures("group")
def test_a_filesystem_that_is_written_beyond_free_memory_does_not_hang(host: Host) -> None:
    serve = program_call("serve", FOLDER, "--background")
    host.run(replace(serve, argv=("sh", "-euc", JOIN, "sh", *serve.argv)))
    options = ("--size", str(512 << 20), "--media", "sata-ssd-plp", "--file", f"{FOLDER}.image")
    host.run(program_call("add", FOLDER, "disk", *options))
    attached = command("losetup", "--find", "--show", "--direct-io=on", f"{FOLDER}/disks/disk")
    node = host.run(attached).stdout.strip()
    host.run(command("mkfs.ext4", "-q", node))
    host.make_directory(MOUNT)
    host.run(command("mount", node, MOUNT))
    host.run(command("dd", "if=/dev/urandom", f"of={BLOCK}", "bs=1M", "count=8"))
    repeated = f"cat {' '.join([BLOCK] * BLOCKS)}"
    write = f"{repeated} > {MOUNT}/file; sync {MOUNT}/file"
    host.run(command("sh", "-euc", f"echo $$ > {GROUP}/cgroup.procs; {write}", timeout_s=PATIENCE_S))
    assert "max 0\n" not in host.read_text(f"{GROUP}/memory.events")
    host.run(command("sh", "-euc", f"{repeated} | cmp - {MOUNT}/file", timeout_s=PATIENCE_S))
