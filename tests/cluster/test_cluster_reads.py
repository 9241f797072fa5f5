"""Reads on standbys right after a commit: never stale where the commit waited for them, and stale without replay."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

from campaigning import nothing_left, run, write_campaign
from following import not_followed
from pgstrata.probe import acknowledged
from pgstrata.record.reader import read
from pgstrata.spec.workload import Cell
from pgstrata.trial.context import TrialContext
from pgstrata.trial.steps import acknowledgements

WAITING = "cluster(2,ANY 1,remote_apply,stale_reads=1s)/tmpfs"
RESTING = "cluster(2,stale_reads=1s)/tmpfs"
look = acknowledgements._read


def look_at_rest(context: TrialContext, *, cell: Cell) -> None:
    """Where no commit waits for it, the standby applies nothing meanwhile."""
    cluster, standby = context.plan.stack.topology, context.setup.standbys["standby1"]
    assert cluster is not None
    if cluster.quorum is None:
        with context.host.looking():
            standby.execute("SELECT pg_wal_replay_pause()")
    look(context, cell=cell)


def test_reads_are_stale_where_nobody_waits_for_the_standby(place: Path) -> None:
    file = write_campaign(place, WAITING, RESTING)
    around = mock.patch.multiple(acknowledgements, _read=look_at_rest)
    with mock.patch.object(acknowledged, "PATIENCE_S", 0.2):
        assert run(file, place, around=around) == 0, (place / "log.txt").read_text()
    nodes = {cell.stack: cell.result.nodes for cell in read(place / "out").cells()}
    assert nodes.keys() == {WAITING, RESTING}
    for primary, standby in nodes.values():
        assert primary.checked_reads is None
        assert standby.checked_reads
    waiting, resting = nodes[WAITING][1], nodes[RESTING][1]
    assert waiting.stale_reads == 0
    assert waiting.stale_max_ms is None
    assert resting.stale_reads == resting.checked_reads
    assert resting.stale_max_ms is not None
    assert resting.stale_max_ms >= 200
    for trial in (place / "out" / "trials").iterdir():
        assert not_followed(trial) == []
    nothing_left(place)
