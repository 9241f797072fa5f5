"""Replies of standbys to the primary about the WAL that they have, as they arrive, and the commits of that time. Run as
root on the node of the primary; standard library only.

A standby's reply is a CopyData message `r` of the streaming replication protocol, which says how far it has written,
flushed and applied. Packets from the standbys to the server's port are read as the kernel hands them out, with the
kernel's time. Then the program becomes the servers' user and has pg_waldump tell the commits between the first reply
and the last. A line tells of each reply, then of each commit; times are microseconds since 1970.

Reference: PostgreSQL documentation, "Streaming Replication Protocol", Standby status update.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import pwd
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime

ETH_P_IP = 0x0800
IPPROTO_TCP = 6
SO_ATTACH_FILTER = 26
SO_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
"""Socket option that gives as many bytes as are asked for: SO_RCVBUF gives no more than net.core.rmem_max."""
SOL_PACKET, PACKET_STATISTICS = 263, 6
LONGEST_PACKET = 1 << 16
RECEIVE_BUFFER_BYTES = 32 << 20

COPY_DATA, REPLY = b"d", b"r"
REPLY_BYTES = 34
"""Length of a reply: its kind, three positions, the standby's clock, and whether it wants an answer."""
LONGEST_MESSAGE = 1000
"""Other messages of a standby are as short."""

COMMIT = re.compile(
    r"lsn: ([0-9A-F]+)/([0-9A-F]+), .*desc: COMMIT(?:_PREPARED \d+:)? ([-0-9]+ [0-9:]+(?:\.[0-9]+)?) UTC"
)
SEGMENT = re.compile(r"[0-9A-F]{24}")
LENGTH = re.compile(r"len \(rec/tot\):\s*\d+/\s*(\d+),")
WALDUMP_TIMEOUT_S = 120.0

LOAD, SAME, RETURN = 0x20, 0x15, 0x06
"""Instructions of the kernel's packet filter: load a word, jump where it is equal, and the end."""
SOURCE_AT = 12
"""Offset of the sender's address in an IP header."""


def packet_filter(addresses: list[str]) -> bytes:
    """Packets from one of the addresses, and nothing else: what pgbench and the server send is left to them."""
    rows = [(LOAD, 0, 0, SOURCE_AT)]
    for number, address in enumerate(addresses):
        (value,) = struct.unpack("!I", socket.inet_aton(address))
        rows.append((SAME, len(addresses) - number, 0, value))
    rows += [(RETURN, 0, 0, 0), (RETURN, 0, 0, LONGEST_PACKET)]
    return b"".join(struct.pack("HBBI", *row) for row in rows)


def open_socket(interface: str, addresses: list[str]) -> socket.socket:
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    program = packet_filter(addresses)
    held = ctypes.create_string_buffer(program)
    packets.setsockopt(
        socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(program) // 8, ctypes.addressof(held))
    )
    packets.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    packets.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    packets.bind((interface, ETH_P_IP))
    return packets


def dropped(packets: socket.socket) -> int:
    """Packets that the kernel had no room for; of one who is asked a second time, those since."""
    return int(struct.unpack("II", packets.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1])


def tcp_payload(packet: bytes, port: int) -> tuple[str, bytes]:
    """The sender's address and what it sent to the port; nothing of other packets."""
    header, protocol = 4 * (packet[0] & 15), packet[9]
    total = struct.unpack("!H", packet[2:4])[0] or len(packet)  # 0: longer than the field can say, as the kernel may do
    if protocol != IPPROTO_TCP or struct.unpack("!H", packet[header + 2 : header + 4])[0] != port:
        return "", b""
    begins = header + 4 * (packet[header + 12] >> 4)
    return socket.inet_ntoa(packet[12:16]), packet[begins:total]


def parse_replies(stream: bytes) -> tuple[list[tuple[int, int, int]], bytes]:
    """Return the positions that each reply says are written, flushed and applied, and the rest, which has no end yet.

    Where a message begins is known because each is sent by itself; what cannot be one is left out.
    """
    found: list[tuple[int, int, int]] = []
    at = 0
    while len(stream) - at >= 5:
        length = struct.unpack("!I", stream[at + 1 : at + 5])[0]
        if stream[at : at + 1] != COPY_DATA or not 5 <= length <= LONGEST_MESSAGE:
            return found, b""
        if len(stream) - at < 1 + length:
            break
        body = stream[at + 5 : at + 1 + length]
        if body[:1] == REPLY and len(body) == REPLY_BYTES:
            written, flushed, applied = struct.unpack("!QQQ", body[1:25])
            found.append((written, flushed, applied))
        at += 1 + length
    return found, stream[at:]


def received_us(ancillary: list[tuple[int, int, bytes]]) -> int:
    """By the kernel's clock where it says so."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(data) >= 16:
            seconds, nanoseconds = struct.unpack("qq", data[:16])
            return int(seconds) * 1_000_000 + int(nanoseconds) // 1000
    return time.time_ns() // 1000


def watch(packets: socket.socket, port: int, standbys: dict[str, str], seconds: float) -> Iterator[dict[str, object]]:
    """`standbys` are names by address."""
    end_s, rests = time.monotonic() + seconds, dict.fromkeys(standbys, b"")
    while (left_s := end_s - time.monotonic()) > 0:
        packets.settimeout(left_s)
        try:
            packet, ancillary, _, _ = packets.recvmsg(LONGEST_PACKET, 1024)
        except TimeoutError:
            return
        address, payload = tcp_payload(packet, port)
        if address not in standbys or not payload:
            continue
        replies, rests[address] = parse_replies(rests[address] + payload)
        at_us = received_us(ancillary)
        for written, flushed, applied in replies:
            yield {"standby": standbys[address], "us": at_us, "write": written, "flush": flushed, "apply": applied}


def become(name: str) -> None:
    """The servers' user, for good."""
    user = pwd.getpwnam(name)
    os.setgroups([user.pw_gid])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


def shown(position: int) -> str:
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def first_kept(wal: str) -> int:
    """Return the start of the oldest segment still there: checkpoints remove what they made needless meanwhile."""
    name = min(name for name in os.listdir(wal) if SEGMENT.fullmatch(name))
    return (int(name[8:16], 16) << 32) + int(name[16:], 16) * os.stat(os.path.join(wal, name)).st_size


def parse_commits(printed: str) -> Iterator[dict[str, object]]:
    """Yield the end of each commit's record, and when it was made."""
    for line in printed.splitlines():
        record, length = COMMIT.search(line), LENGTH.search(line)
        if record is None or length is None:
            continue
        began = (int(record[1], 16) << 32) + int(record[2], 16)
        made = datetime.fromisoformat(f"{record[3]}+00:00")
        yield {"commit": began + int(length[1]), "us": round(made.timestamp() * 1_000_000)}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    for name in ("interface", "user", "pg-waldump", "wal"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--standby", action="append", required=True, metavar="NAME=ADDRESS")
    given = parser.parse_args(arguments)
    standbys = {address: name for name, _, address in (word.partition("=") for word in given.standby)}
    packets = open_socket(given.interface, list(standbys))
    become(given.user)
    replies = list(watch(packets, given.port, standbys, given.seconds))
    if lost := dropped(packets):
        print(f"{lost} packets of standbys could not be read in time: who let commits go is not known", file=sys.stderr)
        return 1
    for reply in replies:
        print(json.dumps(reply))
    written = [int(str(reply["write"])) for reply in replies if reply["write"]]
    if not written or min(written) == max(written):
        return 0
    begins = max(min(written), first_kept(given.wal))
    if begins >= max(written):
        print("the WAL of that time was removed by checkpoints: max_wal_size is too small for it", file=sys.stderr)
        return 1
    span = ["--start", shown(begins), "--end", shown(max(written))]
    done = subprocess.run(
        [given.pg_waldump, "--path", given.wal, *span, "--rmgr", "Transaction"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=WALDUMP_TIMEOUT_S,
        check=False, env={"LC_ALL": "C", "TZ": "UTC", "PATH": os.environ.get("PATH", "")},
    )  # fmt: skip
    if done.returncode != 0:
        print(done.stderr.strip(), file=sys.stderr)
        return 1
    for commit in parse_commits(done.stdout):
        print(json.dumps(commit))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
