"""Building stacks in tests: up, and down again whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgstrata.host.local import LocalHost
from pgstrata.spec.stack import Kernel, LoopDevice, Stack, Volume
from pgstrata.stack.attest import attest
from pgstrata.stack.build import Built, build, failures
from pgstrata.stack.journal import Journal
from pgstrata.stack.plan import PlanContext, StackPlan, plan_stack
from pgstrata.stack.step import Attested

LOOP_BYTES = 512 * 2**20


def context_in(folder: Path, trial_id: str = "t1", **changes: object) -> PlanContext:
    """A context whose files all lie in a test's folder."""
    return PlanContext(trial_id, str(folder), LOOP_BYTES, **changes)  # type: ignore[arg-type]


def loop_stack(fs: object, *, count: int = 1, **kernel: object) -> Stack:
    """A stack of one filesystem over loop devices."""
    volume = Volume(device=LoopDevice(count=count), fs=fs)  # type: ignore[arg-type]
    return Stack(name="under test", data=volume, kernel=Kernel(**kernel))  # type: ignore[arg-type]


@contextmanager
def standing(host: LocalHost, plan: StackPlan) -> Iterator[Built]:
    """A built stack; taken down at the end, which must succeed completely."""
    journal = Journal.create(host, plan.context.trial_id)
    built = build(host, plan, journal)
    try:
        yield built
    finally:
        assert failures(journal.undo_all()) == ()


def differences(attested: tuple[Attested, ...]) -> dict[str, tuple[str, str]]:
    """What does not hold: what -> (expected, actual)."""
    return {row.what: (row.expected, row.actual) for row in attested if not row.holds}


def up_attest_write_down(host: LocalHost, folder: Path, stack: Stack) -> tuple[Attested, ...]:
    """The life of a stack: everything attested holds, files can be written, nothing is left."""
    plan = plan_stack(stack, context_in(folder))
    with standing(host, plan) as built:
        attested = attest(host, plan, built)
        assert differences(attested) == {}
        directories = [plan.data_directory, *plan.tablespace_directories.values()]
        for directory in [*directories, *([plan.wal_directory] if plan.wal_directory else [])]:
            file = Path(directory) / "file"
            file.write_bytes(b"x" * 2**20)
            assert file.stat().st_size == 2**20
    assert not (folder / "pgstrata-t1").exists()
    return attested
