"""`apart.py PROGRAM ARGUMENT...`: a program in a mount namespace of its own.

Not by unshare(1): it takes along what other tests have mounted, whose devices stay in use until the program has ended.
"""

from __future__ import annotations

import os
import sys
import tempfile

from pgstrata.crash.state_worker import own_mounts


def apart(*argv: object) -> list[str]:
    return [sys.executable, __file__, *map(str, argv)]


def mount_apart() -> None:
    """What this process mounts from here on, nobody else sees; nor does it see other tests' mounts."""
    own_mounts([os.getcwd(), sys.executable, tempfile.gettempdir()])


if __name__ == "__main__":
    mount_apart()
    os.execvp(sys.argv[1], sys.argv[1:])
