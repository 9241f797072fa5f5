"""The state of the device and filesystem before anything is loaded; recorded as steps of the trial."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial

from pgstrata.errors import TrialError
from pgstrata.host.protocol import CommandFailed, Completed, Host, command
from pgstrata.stack.mounts import mount_at
from pgstrata.stack.plan import StackPlan
from pgstrata.stack.safety import write_refused
from pgstrata.stack.sizing import AGED_SHARE
from pgstrata.stack.step import PlannedCommand, Step, planned
from pgstrata.trial.context import TrialContext, TrialSetup
from pgstrata.trial.steps.load import Present

FILL_TIMEOUT_S = 24 * 3600.0
STEADY_ROUNDS = 2
"""SNIA PTS: write the whole capacity twice before measuring."""

FILL, AGE = "write the device full twice", "age the filesystem"

AGED_FILES = 200
AGED_CHURN_ROUNDS = 3
MIB = 2**20

WRITE_FILES = command(
    ("xargs", "--null", "--max-args", "2"),
    ("dd", "if=/dev/urandom", "bs=1M", "status=none"),
    timeout_s=FILL_TIMEOUT_S,
)
"""One dd after the other; names and sizes come by standard input."""

CANNOT_TRIM = ("not supported", "Inappropriate ioctl")
"""Words of fstrim where the filesystem (zfs, NFS) or the device takes no discards; that is recorded, no failure."""


def precondition_steps(setup: TrialSetup, present: Present) -> tuple[Step, ...]:
    """Trim, fill to a steady state or age the filesystems, as the campaign asks; nothing where data is kept."""
    runs, places = setup.site.campaign.runs, tuple(own_places(setup.plan))
    if present.kept or not places:
        return ()
    steps = []
    if runs.precondition == "trim":
        trims = tuple(planned("fstrim", "--verbose", place, timeout_s=FILL_TIMEOUT_S) for place in places)
        steps.append(Step("trim", trims, act=partial(_trim, places=places)))
    elif runs.precondition == "steady":
        fills = tuple(c for place in places for _ in range(STEADY_ROUNDS) for c in (_plan_fill(place), _sync(place)))
        tells = tuple(f"remove {_filler(place)} after each round" for place in places)
        steps.append(Step(FILL, fills, act=partial(_steady, places=places), tells=tells))
    if runs.aged:
        written = [PlannedCommand.of(WRITE_FILES)] * (1 + AGED_CHURN_ROUNDS)
        aged = tuple(c for place in places for c in (*written, _sync(place)))
        tells = tuple(
            f"fill {place} to {AGED_SHARE:.0%} with {AGED_FILES} files of random sizes, "
            f"then remove half of them and write them anew, {AGED_CHURN_ROUNDS} times"
            for place in places
        )
        steps.append(Step(AGE, aged, act=partial(_age, places=places), tells=tells))
    return tuple(steps)


def own_places(plan: StackPlan) -> Iterator[str]:
    """Mount points that are ours alone: to fill somebody's directory, another machine's export or memory does harm."""
    for volume in plan.volumes:
        if volume.volume.needs_device:
            yield volume.mount_point


def _sync(place: str) -> PlannedCommand:
    return planned("sync", "--file-system", place, timeout_s=FILL_TIMEOUT_S)


def _filler(place: str) -> str:
    return f"{place}/pgstrata-filler"


def _plan_fill(place: str) -> PlannedCommand:
    """Random bytes, so that compression or deduplication below cannot swallow them; dd ends when the disk is full."""
    return planned("dd", "if=/dev/urandom", f"of={_filler(place)}", "bs=4M", "conv=fsync", timeout_s=FILL_TIMEOUT_S)


def _trim(context: TrialContext, *, places: tuple[str, ...]) -> None:
    for place in places:
        done = context.executor.run_next(check=False)
        if done.exit_code != 0 and not any(said in done.stderr for said in CANNOT_TRIM):
            raise CommandFailed(context.host.name, done)
        context.recorder.write_text(f"raw/trim-{place.rsplit('/', 1)[-1]}.txt", done.stdout + done.stderr)


def _steady(context: TrialContext, *, places: tuple[str, ...]) -> None:
    for place in places:
        for _ in range(STEADY_ROUNDS):
            done = context.executor.run_next(check=False)
            if "No space left" not in done.stderr:
                raise _refused(context.host, place, FILL, done)
            context.host.remove(_filler(place))
            _write_next(context, place, FILL)  # fails where it was the device below that had no space left


def _write_next(context: TrialContext, place: str, step: str, stdin: str | None = None) -> None:
    """Runs the step's next command, which writes to `place`. TrialError when the device refuses it."""
    done = context.executor.run_next(stdin=stdin, check=False)
    if done.exit_code != 0:
        raise _refused(context.host, place, step, done)


def _refused(host: Host, place: str, step: str, done: Completed) -> TrialError:
    """With what the program said, without dd's counts."""
    mount = mount_at(host, place)
    node = mount.source if mount else place
    said = [line for line in done.stderr.splitlines() if ": " in line]
    why = "; ".join(said) or f"{done.argv[0]} ended with exit code {done.exit_code}"
    return write_refused(host, node, node, f"filled in step {step!r}", why)


def _age(context: TrialContext, *, places: tuple[str, ...]) -> None:
    """Fills to 80 % with files of random sizes, then deletes and rewrites half of them, several times.

    The same seed for all stacks of a block, so that every filesystem sees the same sequence of operations.
    """
    for place in places:
        space = context.host.space(place)
        mean_bytes = int(space.total_bytes * AGED_SHARE - (space.total_bytes - space.free_bytes)) // AGED_FILES
        if mean_bytes < MIB:
            raise TrialError(f"{place} is too small to be aged: {space.total_bytes} bytes")
        rng = random.Random(context.trial.workload_seed)
        folder = f"{place}/pgstrata-aged"
        context.host.make_directory(folder)
        files = [f"{folder}/{number}" for number in range(AGED_FILES)]
        _write_files(context, place, files, mean_bytes, rng)
        for _ in range(AGED_CHURN_ROUNDS):
            victims = rng.sample(files, AGED_FILES // 2)
            for path in victims:
                context.host.remove(path)
            _write_files(context, place, victims, mean_bytes, rng)
        _write_next(context, place, AGE)


def _write_files(context: TrialContext, place: str, paths: Sequence[str], mean_bytes: int, rng: random.Random) -> None:
    """Half to one and a half times the mean in size; the mean of all keeps to the share."""
    blocks = [max(1, round(mean_bytes * rng.uniform(0.5, 1.5) / MIB)) for _ in paths]
    words = "".join(f"of={path}\0count={count}\0" for path, count in zip(paths, blocks, strict=True))
    _write_next(context, place, AGE, words)
