"""Time that a packet takes to other nodes and back. Run on a node of a cluster; standard library only.

A connection to a port on which nobody listens is refused as soon as the other node has answered the first packet. The
shortest of some is told for each address, in milliseconds, or null where none was answered.
"""

from __future__ import annotations

import json
import socket
import sys
import time

CLOSED_PORT = 9
"""Port of the discard service, which no node has."""
TRIES = 3


def round_trip_ms(address: str, patience_s: float) -> float | None:
    """None where nobody answered."""
    began_s = time.monotonic()
    try:
        socket.create_connection((address, CLOSED_PORT), patience_s).close()
    except ConnectionRefusedError:
        return 1000 * (time.monotonic() - began_s)
    except OSError:
        return None
    return None


def main(arguments: list[str]) -> int:
    patience_s, addresses = float(arguments[0]), arguments[1:]
    told: dict[str, float | None] = {}
    for address in addresses:
        found = [ms for _ in range(TRIES) if (ms := round_trip_ms(address, patience_s)) is not None]
        told[address] = round(min(found), 3) if found else None
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
