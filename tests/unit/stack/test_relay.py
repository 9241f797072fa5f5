"""The relay between nodes: what is held for how long, what is dropped, and who gets it; and what is read back of it."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fake_host import FakeHost
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.spec.stack import Network
from pgstrata.stack import relay as program_of_relay
from pgstrata.stack.network import Link, RelayCheck, RoundTripCheck, plan_network
from pgstrata.stack.relay import MOST_HELD, Held, Switch

EVERYBODY, FIRST, SECOND = b"\xff" * 6, b"\0\0\0\0\0\1", b"\0\0\0\0\0\2"
DELAYED = "cluster(2,delay_ms=1,bandwidth_mbit=10,loss=1%)/tmpfs"


def test_a_frame_is_held_for_the_delay() -> None:
    held = Held(0.005, 0.0)
    held.take(b"frame", 1.0)
    assert held.due(1.004) is None
    assert held.due(1.005) == b"frame"
    assert held.due(9.0) is None


def test_frames_are_sent_one_after_the_other_at_the_rate() -> None:
    held = Held(0.0, 1000.0)
    for _ in range(2):
        held.take(bytes(100), 1.0)
    assert held.due(1.09) is None
    assert held.due(1.11)
    assert held.due(1.19) is None
    assert held.due(1.21)


@pytest.mark.parametrize(("mbit", "delivered"), [(10, 500), (5, 250), (1, 50)])
def test_of_what_is_offered_too_fast_the_rate_gets_through(mbit: int, delivered: int) -> None:
    """Frames of 1250 bytes are 10,000 bits: at 10 Mbit/s 1,000 a second. Offered are twice as many, for half a second
    by a clock of its own."""
    held, count = Held(0.0, mbit * 1e6 / 8), 0
    for tick in range(1, 1001):
        now_s = tick / 2000
        held.take(bytes(1250), now_s)
        while held.due(now_s) is not None:
            count += 1
    assert count == pytest.approx(delivered, abs=1)


def test_so_many_frames_are_lost_as_the_lot_decides_and_no_others() -> None:
    """A relay of its own between two ports. Each frame that is to arrive is waited for, so no queue is ever full."""
    share, seed, frames = 0.25, 7, 400
    near, far = (socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
    taps = [near[1].fileno(), far[1].fileno()]
    for tap in (near[1], far[1]):
        tap.setblocking(False)
    program = (
        f"import sys; sys.path.insert(0, {str(Path(program_of_relay.__file__).parent)!r}); import argparse, relay; "
        f"relay.relay({taps}, argparse.Namespace(delay_ms=0.0, bytes_per_s=0.0, loss={share}, seed={seed}))"
    )
    lot, lost = random.Random(seed), 0
    with near[0], near[1], far[0], far[1]:
        far[0].settimeout(60.0)
        with subprocess.Popen([sys.executable, "-I", "-S", "-c", program], pass_fds=taps) as process:
            try:
                for number in range(frames):
                    frame = EVERYBODY + FIRST + number.to_bytes(4, "big")
                    near[0].send(frame)
                    if lot.random() < share:
                        lost += 1
                    else:
                        assert far[0].recv(100) == frame, "what arrives is the next one that is not lost"
            finally:
                process.kill()
        assert lost == pytest.approx(share * frames, abs=20)


def test_what_does_not_fit_is_dropped() -> None:
    held = Held(1.0, 0.0)
    for _ in range(MOST_HELD + 5):
        held.take(b"frame", 0.0)
    assert len(held.frames) == MOST_HELD


def test_frames_go_where_their_address_was_heard_and_else_to_all_others() -> None:
    switch, ports = Switch(), [3, 4, 5]
    assert switch.targets(3, EVERYBODY + FIRST, ports) == [4, 5]
    assert switch.targets(4, FIRST + SECOND, ports) == [3]
    assert switch.targets(3, SECOND + FIRST, ports) == [4]
    assert switch.targets(4, SECOND + SECOND, ports) == []


def test_without_netem_the_relay_joins_the_nodes_and_cuts_them_off() -> None:
    network = plan_network(parse_stack(DELAYED), "/run/t1", relayed=True)
    assert network is not None
    commands = [command for step in network.steps for command in step.commands]
    (relay,) = [command for command in commands if command.argv[0] == "python3"]
    files = tuple(f"/run/t1/net.{name}" for name in ("driver", "primary", "standby1"))
    assert relay.argv[-3:] == files
    assert {"--delay-ms", "1", "--loss", "0.01", "--bytes-per-s", "1250000"} <= set(relay.argv)
    assert not any("bridge" in command.shown or "netem" in command.shown for command in commands)
    assert network.set_link("standby1", up=False).shown == "nsenter --net=/run/t1/net.standby1 ip link set eth0 down"


def test_only_delay_and_loss_are_relayed() -> None:
    for text in ("cluster(2)/tmpfs", "cluster(2,bandwidth_mbit=10)/tmpfs"):
        assert plan_network(parse_stack(text), "/run", relayed=True) == plan_network(parse_stack(text), "/run")


class Told(FakeHost):
    """A host with some files."""

    def __init__(self, files: dict[str, str]) -> None:
        super().__init__()
        self.texts = files

    def read_text(self, path: str, **_: Any) -> str:
        if path not in self.texts:
            raise FileNotFoundError(path)
        return self.texts[path]


RUNNING = "python3\0-I\0-\0--delay-ms\0{}\0--loss\0000\0--bytes-per-s\0000\0--device\0eth0\0"


@pytest.mark.parametrize(
    ("files", "holds"),
    [
        ({"/run/pid": "7", "/proc/7/cmdline": RUNNING.format(1)}, True),
        ({"/run/pid": "7", "/proc/7/cmdline": RUNNING.format(2)}, False),
        ({"/run/pid": "7", "/proc/7/cmdline": "sleep\0009\0"}, False),
        ({"/run/pid": "7"}, False),
        ({}, False),
    ],
)
def test_the_relay_is_read_back(files: dict[str, str], holds: bool) -> None:
    (row,) = RelayCheck("/run/pid", Network(delay_ms=1)).attest(Told(files), {})
    assert row.holds is holds


@pytest.mark.parametrize(("ms", "holds"), [(2.0, True), (2.4, True), (1.9, False), (None, False)])
def test_a_round_trip_shorter_than_the_delays_does_not_hold(ms: float | None, holds: bool) -> None:
    first, second = Link("driver", "/n/driver", "198.18.0.1"), Link("primary", "/n/primary", "198.18.0.2")
    check = RoundTripCheck((first, second), 1.0)
    asked, measured = check.rows("primary", ms)
    assert (asked.expected, asked.holds, measured.holds) == ("at least 2 ms", holds, True)
    assert measured.actual == ("not answered" if ms is None else f"{ms:g} ms")
