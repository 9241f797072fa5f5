"""Shared memory that a server has left behind."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

GONE_WITHIN_S = 30.0


@dataclass(frozen=True)
class Segment:
    """A System V segment, as /proc/sysvipc/shm has it."""

    number: int
    creator: int
    attached: int
    made: float


def segments_left(since: float) -> list[str]:
    """Segments and files of /dev/shm made since then whose server is gone; others' own are gone a moment later."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while (found := _orphans(since)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return [f"System V segment {number}" for number in found]


def _orphans(since: float) -> list[int]:
    return [
        s.number for s in segments() if s.made >= since and not s.attached and not Path(f"/proc/{s.creator}").exists()
    ]


def segments() -> list[Segment]:
    lines = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()]
    heads = {name: column for column, name in enumerate(lines[0])}
    return [
        Segment(
            int(line[heads["shmid"]]), int(line[heads["cpid"]]), int(line[heads["nattch"]]), float(line[heads["ctime"]])
        )
        for line in lines[1:]
    ]
