"""Small campaigns on real filesystems, run in a process of their own that may be killed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

STATE = "PGSTRATA_STATE_DIRECTORY"

SMALL = """\
name: small
stacks: [{stacks}]
workload: {{scale: 1, clients: 2, duration: 1, warmup: 0}}
runs: {{blocks: {blocks}, fresh_blocks: 1, load: {load}}}
defaults:
  device: {{loop: 1, size: 2560M}}
  postgresql: {{initdb: [--no-sync], settings: {{fsync: "off", max_wal_size: 64MB}}}}
"""


def write_campaign(folder: Path, *stacks: str, blocks: int = 1, load: str = "copy") -> Path:
    """The smallest campaign that goes through every step."""
    file = folder / "small.yaml"
    shown = ", ".join(f'"{stack}"' for stack in stacks)
    file.write_text(SMALL.format(stacks=shown, blocks=blocks, load=load), encoding="utf-8")
    return file


def run_in_fork(argv: list[str], env: Mapping[str, str], output: Path) -> int:
    """Runs the command line in a child of this process, which spares it the imports.

    Returns the exit code, or minus the signal that ended it.
    """
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)
    code = 70
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
        os.environ.update(env)
        sys.argv = ["pgstrata", *argv]
        from pgstrata.cli.main import main

        try:
            main()
            code = 0
        except SystemExit as end:
            code = 0 if end.code is None else end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
