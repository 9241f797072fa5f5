"""States of random histories as strata-disk makes them, and as a reader written from the docs does."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from second_reader import (
    ADDED,
    COMPLETED,
    DISCARD,
    FAILED,
    FLUSH,
    FUA,
    KEEPS_CACHE,
    MARK,
    WRITE,
    ZEROES,
    CutLog,
    Event,
    parse_log,
    render_log,
)  # fmt: skip

DISK = Path(sys.executable).parent / "strata-disk"
pytestmark = pytest.mark.skipif(not DISK.exists(), reason="strata-disk is not built: cargo is missing")
SIZE = 1 << 16
SECTOR = 512


def history(seed: int) -> list[Event]:
    """Two disks with overlapping requests, some of which fail or never complete, and flushes that overtake them."""
    lot = random.Random(seed)
    block = lot.choice([512, 4096])
    kind = block + (max(block, lot.choice([512, 4096, 16384])) << 32)
    events = [
        Event(1 + disk, ADDED, disk, lot.choice([0, 0, KEEPS_CACHE]), kind, SIZE, f"d{disk}".encode())
        for disk in range(2)
    ]
    open_: list[Event] = []
    for seq in range(3, 90):
        if open_ and lot.random() < 0.45:
            done = open_.pop(lot.randrange(len(open_)))
            events.append(Event(seq, COMPLETED, done.disk, FAILED * (lot.random() < 0.05), done.seq))
            continue
        what = lot.choice([WRITE, WRITE, WRITE, FLUSH, ZEROES, DISCARD, MARK])
        if what == MARK:
            events.append(Event(seq, MARK, payload=f"mark {seq}".encode()))
            continue
        first, disk = lot.randrange(SIZE // block - 4), lot.randrange(2)
        count = lot.randint(1, 4) * block
        asked = Event(seq, what, disk, 0, first * block, count)
        if what == WRITE:
            asked = replace(asked, flags=FUA * (lot.random() < 0.1), payload=bytes([seq]) * count)
        if what == FLUSH:
            asked = Event(seq, FLUSH, disk)
        open_.append(asked)
        events.append(asked)
    return events


def told(*argv: str | Path, given: str = "") -> list[dict[str, Any]]:
    done = subprocess.run([DISK, *argv], input=given, capture_output=True, text=True, check=True, timeout=60)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def exported(log: Path, disk: str, state: dict[str, Any]) -> bytes:
    """A disk in a state, replayed from the export in the format of dm-log-writes."""
    out = log.with_name("exported")
    subprocess.run(
        [DISK, "export-state", log, disk, out],
        input=json.dumps(state),
        text=True,
        capture_output=True,
        check=True,
        timeout=60,
    )
    data, content = out.read_bytes(), bytearray(SIZE)
    _, _, entries, sector = struct.unpack_from("<QQQL", data)
    at = sector
    for _ in range(entries):
        first, count, flags, _ = struct.unpack_from("<QQQQ", data, at)
        at += sector
        if count and not flags & 8:
            content[first * sector : (first + count) * sector] = data[at : at + count * sector]
            at += count * sector
    return bytes(content)


@pytest.mark.parametrize(("seed", "lie"), [(1, "0"), (2, "0"), (3, "0"), (4, "all"), (5, "2")])
def test_two_readers_make_the_same_disks(seed: int, lie: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(render_log(history(seed)))
    events = list(parse_log(log.read_bytes()))
    assert events == history(seed)
    states = told("states", log, "--states", "12", "--seed", str(seed), "--ignore-flushes", lie)
    assert len(states) == 12
    contents = set()
    for state in states:
        cut = CutLog(events, state)
        assert cut.counts() == (state["volatile"], state["kept"])
        both = tuple(cut.content(disk) for disk in ("d0", "d1"))
        assert exported(log, "d0", state) == both[0]
        assert exported(log, "d1", state) == both[1]
        contents.add(both)
    assert len(contents) == len(states), "states of one pass have different content"


def test_the_comparison_notices_one_write_too_many(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(render_log(history(1)))
    states = told("states", log, "--states", "20", "--seed", "1")
    state = next(one for one in states if 0 < one["kept"] < one["volatile"])
    other = state | {"chosen": {"whole": "everything"}}
    cut = CutLog(list(parse_log(log.read_bytes())), other)
    assert (cut.content("d0"), cut.content("d1")) != (exported(log, "d0", state), exported(log, "d1", state))
    (measured,) = told("measure", log, given=json.dumps(other) + "\n")
    assert measured["digest"] != state["digest"]
