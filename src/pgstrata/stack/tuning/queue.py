"""Settings of block queues (/sys/block/X/queue) of the very devices of a stack."""

from __future__ import annotations

from pgstrata.spec.stack import Queue
from pgstrata.stack.step import Argument, Ref, Setting
from pgstrata.stack.tuning.setting import SettingCheck, Tuning


def queue_values(queue: Queue) -> dict[str, str | None]:
    """File below `queue/` -> value (None where the stack says nothing), in the order of writing.

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
