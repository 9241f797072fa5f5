"""The state of the device and filesystem before anything is loaded; recorded as steps of the trial."""

from __future__ import annotations

import random
from collections.abc import Iterator

from pgstrata.errors import TrialError
from pgstrata.host.protocol import CommandFailed, command
from pgstrata.stack.plan import StackPlan
from pgstrata.stack.sizing import AGED_SHARE
from pgstrata.trial.bench import Bench

FILL_TIMEOUT_S = 24 * 3600.0
STEADY_ROUNDS = 2
"""SNIA PTS: write the whole capacity twice before measuring."""

AGED_FILES = 200
AGED_CHURN_ROUNDS = 3
MIB = 2**20

CANNOT_TRIM = ("not supported", "Inappropriate ioctl")
"""What fstrim says where the filesystem (zfs, NFS) or the device takes no discards; that is recorded, no failure."""


def run_precondition(bench: Bench) -> None:
    """Trims, fills to a steady state or ages the filesystems, as the campaign asks; nothing where data is kept."""
    runs = bench.site.campaign.runs
    if bench.loaded:
        return
    if runs.precondition == "trim":
        with bench.steps.step("trim"):
            _trim(bench)
    elif runs.precondition == "steady":
        with bench.steps.step("write the device full twice"):
            _steady(bench)
    if runs.aged:
        with bench.steps.step("age the filesystem"):
            _age(bench)


def own_places(plan: StackPlan) -> Iterator[str]:
    """Mount points that are ours alone: to fill somebody's directory, another machine's export or memory does harm."""
    for volume in plan.volumes:
        if volume.volume.needs_device:
            yield volume.mount_point


def _trim(bench: Bench) -> None:
    for place in own_places(bench.plan):
        done = bench.host.run(command("fstrim", "--verbose", place, timeout_s=FILL_TIMEOUT_S), check=False)
        if done.exit_code != 0 and not any(said in done.stderr for said in CANNOT_TRIM):
            raise CommandFailed(bench.host.name, done)
        bench.recorder.write_text(f"raw/trim-{place.rsplit('/', 1)[-1]}.txt", done.stdout + done.stderr)


def _steady(bench: Bench) -> None:
    """Random bytes, so that compression or deduplication below cannot swallow them; dd ends when the disk is full."""
    for place in own_places(bench.plan):
        for _ in range(STEADY_ROUNDS):
            filler = f"{place}/pgstrata-filler"
            fill = command("dd", "if=/dev/urandom", f"of={filler}", "bs=4M", "conv=fsync", timeout_s=FILL_TIMEOUT_S)
            done = bench.host.run(fill, check=False)
            if "No space left" not in done.stderr:
                raise CommandFailed(bench.host.name, done)
            bench.host.remove(filler)
            bench.host.run(command("sync", "--file-system", place, timeout_s=FILL_TIMEOUT_S))


def _age(bench: Bench) -> None:
    """Fills to 80 % with files of random sizes, then deletes and rewrites half of them, several times.

    The same seed for all stacks of a block, so that every filesystem sees the same sequence of operations.
    """
    for place in own_places(bench.plan):
        space = bench.host.space(place)
        mean_bytes = int(space.total_bytes * AGED_SHARE - (space.total_bytes - space.free_bytes)) // AGED_FILES
        if mean_bytes < MIB:
            raise TrialError(f"{place} is too small to be aged: {space.total_bytes} bytes")
        luck = random.Random(bench.trial.workload_seed)
        folder = f"{place}/pgstrata-aged"
        bench.host.make_directory(folder)
        for number in range(AGED_FILES):
            _write_file(bench, f"{folder}/{number}", mean_bytes, luck)
        for _ in range(AGED_CHURN_ROUNDS):
            victims = luck.sample(range(AGED_FILES), AGED_FILES // 2)
            for number in victims:
                bench.host.remove(f"{folder}/{number}")
            for number in victims:
                _write_file(bench, f"{folder}/{number}", mean_bytes, luck)
        bench.host.run(command("sync", "--file-system", place, timeout_s=FILL_TIMEOUT_S))


def _write_file(bench: Bench, path: str, mean_bytes: int, luck: random.Random) -> None:
    """Half to one and a half times the mean in size; the mean of all keeps to the share."""
    blocks = max(1, round(mean_bytes * luck.uniform(0.5, 1.5) / MIB))
    argv = ("dd", "if=/dev/urandom", f"of={path}", "bs=1M", f"count={blocks}", "status=none")
    bench.host.run(command(argv, timeout_s=FILL_TIMEOUT_S))
