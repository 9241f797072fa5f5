"""The kernel settings of a stack: transparent huge pages, queues of its devices, and what is below /proc/sys."""

from __future__ import annotations

from collections.abc import Mapping

from pgstrata.spec.stack import Kernel, Queue
from pgstrata.stack.kind import Check
from pgstrata.stack.step import Argument, Ref, Setting, Step
from pgstrata.stack.tuning.setting import OVERCOMMIT_MEMORY, SettingCheck, Tuning, parse_setting

TRANSPARENT_HUGEPAGE = "/sys/kernel/mm/transparent_hugepage/enabled"


def plan_kernel(kernel: Kernel, media: tuple[Argument, ...]) -> tuple[tuple[Step, ...], tuple[Check, ...]]:
    """Sets what the stack asks for on the host, and on the queue of every device in `media`."""
    parts = (
        *plan_sysctl(kernel.sysctl),
        plan_transparent_hugepage(kernel.transparent_hugepage),
        plan_queue(kernel.queue, media),
    )
    steps = tuple(
        Step(name=part.name, commands=(), settings=part.settings, host_wide=part.host_wide)
        for part in parts
        if part.settings
    )
    return steps, tuple(check for part in parts for check in part.checks)


def plan_transparent_hugepage(mode: str | None) -> Tuning:
    """Sets `always`, `madvise` or `never`. (Explicit huge pages are the sysctl vm.nr_hugepages.)"""
    if mode is None:
        return Tuning("transparent huge pages")
    check = SettingCheck("transparent_hugepage", TRANSPARENT_HUGEPAGE, mode)
    return Tuning("transparent huge pages", (Setting(TRANSPARENT_HUGEPAGE, mode),), (check,))


def queue_values(queue: Queue) -> dict[str, str | None]:
    """File below /sys/block/X/queue -> value (None where the stack says nothing), in the order of writing.

    A scheduler resets nr_requests, and on recent kernels (seen on 6.18) writing rotational resets read_ahead_kb.
    """
    values: dict[str, object] = {
        "scheduler": queue.scheduler,
        "rotational": None if queue.rotational is None else int(queue.rotational),
        "write_cache": queue.write_cache,
        "nr_requests": queue.nr_requests,
        "read_ahead_kb": queue.read_ahead_kb,
    }
    return {name: None if value is None else str(value) for name, value in values.items()}


def queue_path(node: Argument, name: str) -> Argument:
    """The file of a setting of a device node."""
    directory, after = "/sys/class/block/", f"/queue/{name}"
    if isinstance(node, Ref):
        return Ref(node.name, before=directory, after=after, base=True)
    return f"{directory}{node.rsplit('/', 1)[-1]}{after}"


def plan_queue(queue: Queue, media: tuple[Argument, ...]) -> Tuning:
    """Sets the queue of every device in `media`; what is not set is told by the checks."""
    settings: list[Setting] = []
    checks: list[SettingCheck] = []
    for node in media:
        shown = node.name if isinstance(node, Ref) else node
        for name, value in queue_values(queue).items():
            path = queue_path(node, name)
            if value is not None:
                settings.append(Setting(path, value))
            checks.append(SettingCheck(f"queue {shown} {name}", path, value))
    return Tuning("block queue settings", tuple(settings), tuple(checks), host_wide=False)


def sysctl_path(name: str) -> str:
    """`vm.dirty_ratio` -> `/proc/sys/vm/dirty_ratio`."""
    return "/proc/sys/" + name.replace(".", "/")


def plan_sysctl(values: Mapping[str, str]) -> tuple[Tuning, ...]:
    """Writes each value; huge pages are attested by the same read, as the kernel may give fewer than asked for.

    Strict overcommit comes last and is restored first, so that it holds with the ratio it was checked with.
    """
    strict = {name: value for name, value in values.items() if sysctl_path(name) == OVERCOMMIT_MEMORY}
    others = {name: value for name, value in values.items() if name not in strict}
    return (_tuning("sysctl settings", others), _tuning("sysctl vm.overcommit_memory", strict))


def _tuning(title: str, values: Mapping[str, str]) -> Tuning:
    settings = tuple(Setting(sysctl_path(name), value) for name, value in values.items())
    checks = tuple(
        SettingCheck(f"sysctl {name}", sysctl_path(name), parse_setting(value)) for name, value in values.items()
    )
    return Tuning(title, settings, checks)
