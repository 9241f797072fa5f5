"""The controls of crash trials: stacks that must lose and stacks that must hold, each for itself; as root.

Prints a line for each control and ends with 1 when one does otherwise. A control that must lose proves that losses are
found, one that must hold that none are made up.
Example: .venv/bin/python benches/crash_controls.py --scratch /var/tmp --lose 60 --hold 1000
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = Path(sys.executable).parent / "pgstrata"


@dataclass(frozen=True)
class Control:
    stack: str
    loses: bool
    words: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return " ".join((self.stack, *self.words))


CONTROLS = (
    Control("ext4@fsync=off", loses=True),
    Control("ext4@synchronous_commit=off", loses=True),
    Control("ext4:nobarrier", loses=True),
    Control("ext4@full_page_writes=off", loses=True),
    Control("xfs@full_page_writes=off", loses=True),
    Control("ext4", loses=True, words=("--ignore-flushes", "3")),
    Control("xfs", loses=True, words=("--ignore-flushes", "all")),
    Control("ext4", loses=False),
    Control("xfs", loses=False),
    Control("btrfs", loses=False),
)


def verdict(control: Control, states: int, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The durability that `pgstrata crash` prints."""
    asked = ["--states", str(states), "--seed", str(arguments.seed), "--transactions", str(arguments.transactions)]
    places = ["--out", str(folder / "out"), "--scratch", str(arguments.scratch / folder.name)]
    argv = [str(PROGRAM), "crash", control.stack, *control.words, *asked, *places, "--json", "--quiet"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)["stacks"][0]["durability"]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lose", type=int, default=60, help="states of each control that must lose")
    parser.add_argument("--hold", type=int, default=1000, help="states of each control that must hold")
    parser.add_argument("--transactions", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scratch", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--only", default="", help="controls whose name has this in it")
    arguments = parser.parse_args()
    wrong = 0
    for control in (one for one in CONTROLS if arguments.only in one.name):
        with tempfile.TemporaryDirectory(prefix="crash-control-") as folder:
            began_s = time.monotonic()
            found = verdict(control, arguments.lose if control.loses else arguments.hold, Path(folder), arguments)
        as_wanted = found["verdict"] in (("lost", "corrupt") if control.loses else ("held",))
        wrong += not as_wanted
        counts = ", ".join(f"{word} {found[word]}" for word in ("states", "lost", "corrupt", "unknown"))
        spent_s = time.monotonic() - began_s
        print(f"{'ok  ' if as_wanted else 'FAIL'} {control.name}: {found['verdict']} ({counts}) in {spent_s:.0f} s")
        sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
