"""A switch between the nodes of a cluster that holds packets back, drops some, and lets no more through than a rate.

Run on the host, as root, where the kernel has no netem; standard library only. Every node has a tap device in its own
namespace. What comes out of one is held for the delay, and handed to the node that it is addressed to. It returns when
it has taken hold of all devices, and goes on in the background until it is ended or the devices are gone.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import random
import select
import struct
import sys
import time
from collections import deque

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
CLONE_NEWNET = 0x40000000
LONGEST_FRAME = 1 << 17
MOST_HELD = 1000
"""Frames of a node that are on their way; netem's own limit."""


class Held:
    """Frames that a node has sent and nobody has got yet, in the order in which they are due."""

    def __init__(self, delay_s: float, bytes_per_s: float) -> None:
        self.delay_s, self.bytes_per_s = delay_s, bytes_per_s
        self.free_s = 0.0
        """When the link has sent all that it was given."""
        self.frames: deque[tuple[float, bytes]] = deque()

    def take(self, frame: bytes, now_s: float) -> None:
        """A frame that does not fit is dropped."""
        if len(self.frames) >= MOST_HELD:
            return
        if self.bytes_per_s:
            self.free_s = max(now_s, self.free_s) + len(frame) / self.bytes_per_s
            now_s = self.free_s
        self.frames.append((now_s + self.delay_s, frame))

    def due(self, now_s: float) -> bytes | None:
        """The next frame, if it has been held for long enough."""
        return self.frames.popleft()[1] if self.frames and self.frames[0][0] <= now_s else None


class Switch:
    """Frames of each port go to the port that has sent from their address, and else to all others."""

    def __init__(self) -> None:
        self.ports: dict[bytes, int] = {}

    def targets(self, port: int, frame: bytes, others: list[int]) -> list[int]:
        self.ports[frame[6:12]] = port
        known = self.ports.get(frame[:6])
        return [other for other in others if other != port] if known is None else [known] * (known != port)


def open_tap(namespace: str, device: str) -> int:
    """The tap device of a namespace; this process is in it from then on."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(namespace, "rb") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), namespace)
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def relay(taps: list[int], given: argparse.Namespace) -> None:
    """Until a device is gone."""
    switch, lot = Switch(), random.Random(given.seed)
    held = {tap: Held(given.delay_ms / 1000, given.bytes_per_s) for tap in taps}
    while True:
        next_s = min((one.frames[0][0] for one in held.values() if one.frames), default=None)
        wait_s = None if next_s is None else max(0.0, next_s - time.monotonic())
        readable, _, _ = select.select(taps, (), (), wait_s)
        now_s = time.monotonic()
        for tap in readable:
            while (frame := read_frame(tap)) is not None:
                if not (given.loss and lot.random() < given.loss):
                    held[tap].take(frame, now_s)
        for tap, one in held.items():
            while (frame := one.due(now_s)) is not None:
                for target in switch.targets(tap, frame, taps):
                    write_frame(target, frame)


def read_frame(tap: int) -> bytes | None:
    """None where there is none now; OSError where the device is gone."""
    try:
        return os.read(tap, LONGEST_FRAME)
    except BlockingIOError:
        return None


def write_frame(tap: int, frame: bytes) -> None:
    """A node that is cut off, or has no room, gets nothing."""
    try:
        os.write(tap, frame)
    except OSError:
        return


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    for name in ("delay-ms", "loss", "bytes-per-s"):
        parser.add_argument(f"--{name}", type=float, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", required=True)
    parser.add_argument("--pid-file", required=True)
    parser.add_argument("namespaces", nargs="+")
    given = parser.parse_args(arguments)
    taps = [open_tap(namespace, given.device) for namespace in given.namespaces]
    pid = os.fork()
    if pid:
        with open(given.pid_file, "x", encoding="utf-8") as file:
            file.write(str(pid))
        return 0
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    try:
        relay(taps, given)
    except OSError:
        os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
