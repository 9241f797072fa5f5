"""One made-up cell as the recorder gets it from a real run: result, what pgbench printed, series."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pgstrata.record.recorder import TrialRecorder
from pgstrata.record.schema import CellResult

Rows = Iterable[Mapping[str, Any] | Sequence[Any]]


def write_cell(
    recorder: TrialRecorder, result: CellResult, seconds_tps: Sequence[float], series: Mapping[str, Rows]
) -> None:
    """`seconds_tps` is what pgbench says of each second, `series` the rows of each by its name."""
    cell_id = result.cell.id
    folder = f"cells/{cell_id}"
    recorder.write(f"{folder}/result.json", result)
    latency = f"lat {result.latency_avg_ms:.3f} ms stddev {result.latency_stddev_ms:.3f}"
    lines = [f"progress: {t}.0 s, {tps:.1f} tps, {latency}, 0 failed\n" for t, tps in enumerate(seconds_tps, 1)]
    recorder.write_text(f"{folder}/raw/pgbench.err", "".join(lines))
    recorder.write_text(f"{folder}/raw/pgbench.out", f"tps = {result.tps:.6f} (without initial connection time)\n")
    for name, rows in series.items():
        recorder.series(cell_id, name, rows)
