"""Which standby let commits go: told by what arrives at the primary, of clusters in which it is known beforehand."""

from __future__ import annotations

from pathlib import Path

from campaigning import nothing_left, run, write_campaign
from following import not_followed
from pgstrata.record.reader import read

FIRST = "cluster(3,FIRST 1 (standby2, standby1),remote_apply,acknowledgements=1s)/tmpfs"
BOTH = "cluster(3,ANY 2,acknowledgements=1s)/tmpfs"
ONE = "cluster(3,ANY 1 (standby1),remote_write,acknowledgements=1s)/tmpfs"


def test_commits_are_let_go_by_whom_they_wait_for(place: Path) -> None:
    file = write_campaign(place, FIRST, BOTH, ONE)
    assert run(file, place) == 0, (place / "log.txt").read_text()
    nodes = {cell.stack: cell.result.nodes for cell in read(place / "out").cells()}
    for primary, first, _ in nodes.values():
        assert primary.watched_commits is None
        assert first.watched_commits
    _, later, named = nodes[FIRST]
    assert (later.released_commits, named.released_commits) == (0, named.watched_commits)
    _, *both = nodes[BOTH]
    assert sum(standby.released_commits or 0 for standby in both) == both[0].watched_commits
    _, alone, other = nodes[ONE]
    assert alone.released_commits == alone.watched_commits
    assert other.watched_commits is None
    for standby in (named, alone):
        assert standby.release_median_ms is not None
        assert standby.release_p99_ms is not None
        assert 0 < standby.release_median_ms <= standby.release_p99_ms
    for trial in (place / "out" / "trials").iterdir():
        assert not_followed(trial) == []
    nothing_left(place)
