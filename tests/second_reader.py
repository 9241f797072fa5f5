"""A second reader of event logs and of the states that a power cut could have left, written from docs/media.md alone.

It is slow and simple: the content of each block is that of the last request which is durable or kept.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ADDED, WRITE, ZEROES, DISCARD, FLUSH, COMPLETED, MARK = range(1, 8)
FUA, FAILED, KEEPS_CACHE = 1, 2, 4
CHANGES = (WRITE, ZEROES, DISCARD)
EVERY = 2**32 - 1
_HEAD = struct.Struct("<IBBHIIQQQI")


@dataclass(frozen=True)
class Event:
    """One record of an event log."""

    seq: int
    kind: int
    disk: int = EVERY
    flags: int = 0
    place: int = 0
    length: int = 0
    payload: bytes = b""


def render_log(events: Sequence[Event]) -> bytes:
    start = b"STRATALG" + struct.pack("<I", 2)
    return start + struct.pack("<I", zlib.crc32(start)) + b"".join(map(_render, events))


def _render(event: Event) -> bytes:
    fields = (event.kind, event.flags, 0, event.disk, len(event.payload), event.seq, event.place, event.length)
    head = _HEAD.pack(0, *fields, zlib.crc32(event.payload))[4:]
    return struct.pack("<I", zlib.crc32(head)) + head + event.payload


def parse_log(log: bytes) -> Iterator[Event]:
    assert log[:12] == b"STRATALG" + struct.pack("<I", 2)
    assert struct.unpack_from("<I", log, 12) == (zlib.crc32(log[:12]),)
    at = 16
    while at < len(log):
        head, kind, flags, _, disk, size, seq, place, length, payload = _HEAD.unpack_from(log, at)
        data = log[at + _HEAD.size : at + _HEAD.size + size]
        assert (head, payload) == (zlib.crc32(log[at + 4 : at + _HEAD.size]), zlib.crc32(data))
        yield Event(seq, kind, disk, flags, place, length, data)
        at += _HEAD.size + size


class CutLog:
    """The disks of a log when power is lost in a state."""

    def __init__(self, events: Sequence[Event], state: Mapping[str, Any]) -> None:
        self.state = state
        past = [event for event in events if event.seq <= state["cut"]]
        self.disks = {event.disk: event for event in past if event.kind == ADDED}
        self.changes = [event for event in past if event.kind in CHANGES]
        self.done = {event.place: event.seq for event in past if event.kind == COMPLETED and not event.flags & FAILED}
        self.flushes = {
            disk: self._counting([e for e in past if e.kind == FLUSH and e.disk == disk]) for disk in self.disks
        }

    def _counting(self, flushes: Sequence[Event]) -> list[int]:
        """The flushes of a disk that made something durable."""
        done = sorted((self.done[flush.seq], flush.seq) for flush in flushes if flush.seq in self.done)
        lying = self.state.get("lying", {"from": 0, "flushes": "none"})
        if lying["flushes"] == "none":
            return [seq for _, seq in done]
        held = len(done) if lying["flushes"] == "all" else lying["flushes"]["last"]
        lied = [seq for at, seq in done if at > lying["from"]][-held:] if held else []
        return [seq for _, seq in done if seq not in lied]

    def is_durable(self, change: Event) -> bool:
        done = self.done.get(change.seq)
        if done is None:
            return False
        kept = change.flags & FUA if change.kind == WRITE else 0
        return bool(
            kept or self.disks[change.disk].flags & KEEPS_CACHE or any(done < seq for seq in self.flushes[change.disk])
        )

    def kept(self, change: Event) -> list[tuple[int, int]]:
        """Ranges of bytes that the state has of a change."""
        whole = (change.place, change.place + change.length)
        if self.is_durable(change):
            return [whole]
        block = self.disks[change.disk].place % 2**32
        chosen = self.state["chosen"]
        for torn in chosen.get("torn", []):
            if torn["seq"] == change.seq:
                parts = ((max(whole[0], a * block), min(whole[1], b * block)) for a, b in torn["blocks"])
                return [(a, b) for a, b in parts if a < b]
        match chosen["whole"]:
            case "nothing":
                return []
            case "everything":
                return [whole]
            case {"only": seqs}:
                return [whole] if change.seq in seqs else []
            case {"but": seqs}:
                return [] if change.seq in seqs else [whole]
        raise AssertionError(chosen)

    def content(self, name: str) -> bytes:
        """All bytes of a disk."""
        disk = next(event for event in self.disks.values() if event.payload.decode() == name)
        content = bytearray(disk.length)
        for change in self.changes:
            for start, end in self.kept(change) if change.disk == disk.disk else ():
                data = change.payload[start - change.place : end - change.place]
                content[start:end] = data if change.kind == WRITE else bytes(end - start)
        return bytes(content)

    def counts(self) -> tuple[int, int]:
        """Volatile requests that would show on some block, and those of them that the state has."""
        volatile = [change for change in self.changes if not self.is_durable(change) and self._shows(change)]
        return len(volatile), sum(bool(self._seen(change)) for change in volatile)

    def _shows(self, change: Event) -> set[int]:
        """The bytes, in steps of 512, on which no later request is durable."""
        later = [
            one for one in self.changes if one.seq > change.seq and one.disk == change.disk and self.is_durable(one)
        ]
        hidden = {at for one in later for at in range(one.place, one.place + one.length, 512)}
        return set(range(change.place, change.place + change.length, 512)) - hidden

    def _seen(self, change: Event) -> set[int]:
        return self._shows(change) & {at for start, end in self.kept(change) for at in range(start, end, 512)}
