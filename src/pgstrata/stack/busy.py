"""Commands that fail because another program, such as a scan for btrfs, has a device open for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable

from pgstrata.host.protocol import Command, Completed, Host

BUSY_ATTEMPTS = 60
BUSY_PAUSE_S = 0.5

_SAYS_BUSY = ("busy", "in use by the system", "exclusively")
"""mount, umount, mdadm and most mkfs print the text of EBUSY; mke2fs and pvcreate have words of their own."""


def again_while_busy(ended: Completed, again: Callable[[], Completed]) -> Completed:
    """Try a command again while it says that something is busy, for half a minute at most; return how it ends."""
    for _ in range(BUSY_ATTEMPTS - 1):
        if ended.exit_code == 0 or not any(words in ended.stderr for words in _SAYS_BUSY):
            break
        time.sleep(BUSY_PAUSE_S)
        ended = again()
    return ended


def run_while_busy(host: Host, command: Command) -> Completed:
    """Run a command, again while it says that something is busy; return how it ends. The record has its first run."""

    def again() -> Completed:
        with host.looking():
            return host.run(command, check=False)

    return again_while_busy(host.run(command, check=False), again)
