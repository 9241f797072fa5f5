"""Campaigns on a host of their own: `untouched.py FOLDER` hides /tmp, /run, /var/tmp and /var/lib behind folders in
FOLDER, runs, kills and cleans, on this host and over ssh, and prints what is different of the machine's own folders.

To be started in a mount namespace of its own; what other programs do in those folders meanwhile is not seen.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from awaiting import wait_until
from campaigning import SMALL
from loopback_sshd import SEPARATION, LoopbackSshd
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Host
from pgstrata.host.ssh import SshHost
from pgstrata.postgres.user import run_user
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.stack.journal import clean
from pgstrata.trial.events import silent
from pgstrata.trial.executor import KILL_HOOK
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.opening import performance_runner
from pgstrata.trial.scheduler import run_campaign
from pgstrata.trial.scheduling import FixedBlocks

HIDDEN = {"/tmp": 0o1777, "/run": 0o755, "/var/lib": 0o755, "/var/tmp": 0o1777}
"""With their modes; the last one may be what FOLDER is in."""
LOOKED_AT = ("/", "/etc", "/var", *HIDDEN)
WORK = Path("/var/lib/work")
STEPS = (3, 9, 14)
"""After which a campaign is killed: while it builds, loads and measures."""

Seen = dict[str, tuple[int, int, int]]


def hide(folder: Path) -> None:
    """But for the checkout itself, wherever it lies."""
    checkout = Path(__file__).parents[2]
    for path, mode in HIDDEN.items():
        behind = folder / path.strip("/").replace("/", "-")
        behind.mkdir()
        behind.chmod(mode)
        if checkout.is_relative_to(path):
            again = behind / checkout.relative_to(path)
            again.mkdir(parents=True)
            subprocess.run(["mount", "--bind", str(checkout), str(again)], check=True, timeout=60)
        subprocess.run(["mount", "--rbind", str(behind), path], check=True, timeout=60)


def look() -> Seen:
    """Mode and owner of each folder and of everything right in it."""
    paths = [Path(folder) for folder in LOOKED_AT]
    paths += [child for folder in paths for child in folder.iterdir()]
    found = {str(path): path.lstat() for path in paths}
    return {path: (status.st_mode, status.st_uid, status.st_gid) for path, status in found.items()}


def run(host: Host, file: Path, out: Path) -> None:
    """One block of the campaign."""
    asked = load_campaign(file)
    interruption, told = Interruption(), silent
    with (
        CampaignDirectory.create_or_open(out, asked) as directory,
        performance_runner(host, asked, directory, told, interruption) as (runner, stacks),
    ):
        policy = FixedBlocks(stacks, 1)
        done = run_campaign(asked, directory, runner, policy, told, observe=lambda _: (), interruption=interruption)
    host.close()
    assert done.counts == {"ok": 1}


def run_in_child(connect: Callable[[], Host], file: Path, out: Path, **env: str) -> int:
    """The exit code, or minus the signal that ended it; a child counts its own steps."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        os.environ.update(env)
        run(connect(), file, out)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(70)


def _all_is_given_back(host: Host) -> bool:
    return not any("left alone" in line for line in clean(host).lines)


def attack(connect: Callable[[], Host], file: Path, out: Path) -> dict[str, list[str]]:
    """What is different after each kill with its `clean`, and after a whole campaign."""
    before, changed = look(), {}
    for step in STEPS:
        assert run_in_child(connect, file, out, **{KILL_HOOK: str(step)}) == -signal.SIGKILL
        host = connect()
        # the far end of a connection that broke notices it a moment later, and holds its lock until then
        wait_until(partial(_all_is_given_back, host), "the locks")
        host.close()
        changed[f"killed after step {step}"] = differences(before)
    assert run_in_child(connect, file, out) == 0
    changed["ended"] = differences(before)
    return {what: lines for what, lines in changed.items() if lines}


def differences(before: Seen) -> list[str]:
    after = look()
    both = ((path, before.get(path), after.get(path)) for path in sorted(before.keys() | after.keys()))
    return [f"{path}: {was} -> {now}" for path, was, now in both if was != now]


def main() -> None:
    run_user(LocalHost())  # an OS user that is made once stays, as any package's does
    hide(Path(sys.argv[1]))
    WORK.mkdir()
    Path("/var/lib/pgstrata").mkdir()
    SEPARATION.mkdir(mode=0o755)
    file = WORK / "small.yaml"
    file.write_text(SMALL.format(stacks='"ext4"', blocks=1, load="copy"), encoding="utf-8")
    found = {"local": attack(LocalHost, file, WORK / "local")}
    sshd = LoopbackSshd(WORK / "sshd")
    try:
        found["ssh"] = attack(lambda: SshHost(sshd.target, options=sshd.options), file, WORK / "far")
    finally:
        sshd.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
