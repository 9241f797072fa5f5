"""The rates of a medium as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pgstrata.record.schema import MediumRecord
from pgstrata.report.sentences.figures import render_number


class Rates(Protocol):
    """Interface of a baseline, recorded or just measured."""

    @property
    def flushes_per_s(self) -> float | None: ...
    @property
    def flushes_by(self) -> str: ...
    @property
    def random_reads_per_s(self) -> float | None: ...
    @property
    def random_writes_per_s(self) -> float | None: ...
    @property
    def sequential_read_bytes_per_s(self) -> float | None: ...
    @property
    def sequential_write_bytes_per_s(self) -> float | None: ...


def rates(found: Rates) -> tuple[tuple[str, str], ...]:
    """Return name and value of the measured rates, the flushes first."""
    shown = (
        ("flushes", found.flushes_per_s, 1.0, f"a second at QD1 ({found.flushes_by})"),
        ("random reads", found.random_reads_per_s, 1.0, "a second at QD32 (8 KiB)"),
        ("random writes", found.random_writes_per_s, 1.0, "a second at QD32 (8 KiB)"),
        ("sequential reads", found.sequential_read_bytes_per_s, 1e6, "MB/s"),
        ("sequential writes", found.sequential_write_bytes_per_s, 1e6, "MB/s"),
    )
    return tuple((what, f"{render_number(rate / unit)} {tail}") for what, rate, unit, tail in shown if rate is not None)


def medium_line(media: Sequence[MediumRecord]) -> str:
    """Describe the last baseline in one line of a report's head; empty if none was measured."""
    found = rates(media[-1]) if media else ()
    return "; ".join(f"{what} {rate}" for what, rate in found)
