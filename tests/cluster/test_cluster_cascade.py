"""A standby that follows a standby: copied from it, attested where it is connected, and read like any other."""

from __future__ import annotations

import json
from pathlib import Path

from campaigning import nothing_left, run, write_campaign
from following import not_followed
from pgstrata.record.reader import read


def test_a_standby_follows_a_standby(place: Path) -> None:
    file = write_campaign(place, "cluster(3,ANY 1,stale_reads=1s)/tmpfs@standby2.upstream=standby1")
    assert run(file, place) == 0, (place / "log.txt").read_text()
    (trial,) = (place / "out" / "trials").iterdir()
    assert not_followed(trial) == []
    attested = json.loads((trial / "attested.json").read_text())
    for moment in ("before cell", "after cell"):
        found = {row["what"]: row["actual"] for row in attested if row["moment"] == moment}
        assert (found["cluster standby1 sync_state"], found["cluster standby2 sync_state"]) == ("quorum", "async")
        assert found["cluster standby2 state"] == "streaming"
        assert found["PostgreSQL synchronous_standby_names"] == "ANY 1 (*)"
    (cell,) = read(place / "out").cells()
    primary, first, second = cell.result.nodes
    assert primary.sent_bytes is not None
    assert first.sent_bytes is not None
    assert second.received_bytes is not None
    assert cell.result.wal_bytes is not None
    assert second.received_bytes > cell.result.wal_bytes, "all WAL got there"
    assert first.sent_bytes > cell.result.wal_bytes, "by way of the first"
    assert second.checked_reads
    nothing_left(place)
