"""What pgstrata may have left behind in a folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from pgstrata.stack.block.loop import parse_losetup
from pgstrata.stack.mounts import parse_mountinfo


def leftovers(folder: Path) -> list[str]:
    """Loop devices on files of a folder, mounts of such devices or in it, processes that work in it."""
    listing = ["losetup", "--json", "--list", "--output", "NAME,BACK-FILE,DIO,LOG-SEC"]
    loops = parse_losetup(subprocess.run(listing, check=True, capture_output=True, text=True, timeout=60).stdout)
    ours = [loop for loop in loops if loop.backing_file.startswith(f"{folder}/")]
    nodes = {loop.node for loop in ours}
    found = [f"loop device {loop.node} on {loop.backing_file}" for loop in ours]
    for mount in parse_mountinfo(Path("/proc/self/mountinfo").read_text()):
        if mount.source in nodes or mount.target.startswith(f"{folder}/"):
            found.append(f"mount of {mount.source} at {mount.target}")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text() + os.readlink(process / "cwd")
        except OSError:
            continue
        if f"{folder}/" in words and int(process.name) != os.getpid():
            found.append(f"process {process.name}: {words!r}")
    return found
