"""A delay between nodes, by netem or by the relay: no round trip is shorter, and a commit waits for its own."""

from __future__ import annotations

import json
from pathlib import Path

from campaigning import nothing_left, run, write_campaign
from following import not_followed
from pgstrata.record.reader import read

DELAY_MS = 2
ROUND_TRIPS = 8
"""Of tpcb-like: seven statements, and the commit's way to the standby."""


def test_a_delay_is_there_and_attested(place: Path) -> None:
    file = write_campaign(place, f"cluster(2,ANY 1,remote_apply,delay_ms={DELAY_MS})/tmpfs")
    assert run(file, place) == 0, (place / "log.txt").read_text()
    (trial,) = (place / "out" / "trials").iterdir()
    assert not_followed(trial) == []
    attested = json.loads((trial / "attested.json").read_text())
    for moment in ("before cell", "after cell"):
        found = {row["what"]: row["actual"] for row in attested if row["moment"] == moment}
        assert found["network standby1 round trip"] == f"at least {2 * DELAY_MS} ms"
        assert float(found["network standby1 measured round trip"].removesuffix(" ms")) >= 0.99 * 2 * DELAY_MS
    (cell,) = read(place / "out").cells()
    assert cell.result.latency_avg_ms is not None
    assert cell.result.latency_avg_ms >= 0.99 * ROUND_TRIPS * 2 * DELAY_MS
    nothing_left(place)
