"""Building stacks in tests: up, and down again whatever happens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from built import differences, standing
from pgstrata.host.local import LocalHost
from pgstrata.spec.layers.devices import LoopDevice
from pgstrata.spec.stack import Kernel, Stack, Volume
from pgstrata.stack.build import attest
from pgstrata.stack.plan import PlanContext, plan_stack
from pgstrata.stack.step import Attested

LOOP_BYTES = 512 * 2**20


def context_in(folder: Path, trial_id: str = "t1", **changes: object) -> PlanContext:
    """A context whose files all lie in a test's folder."""
    return PlanContext(trial_id, str(folder), LOOP_BYTES, **changes)  # type: ignore[arg-type]


def loop_stack(fs: object, *, count: int = 1, **kernel: object) -> Stack:
    """A stack of one filesystem over loop devices."""
    volume = Volume(device=LoopDevice(count=count), fs=fs)
    return Stack(name="under test", data=volume, kernel=Kernel(**kernel))


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


def filesystem(attested: Sequence[Attested], role: str = "data") -> str:
    """The kind that the kernel says is mounted for a role."""
    (actual,) = (row.actual for row in attested if row.what == f"{role} mount fstype")
    return actual
