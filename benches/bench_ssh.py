"""What a command costs over ssh, on loopback, against a local one: prints medians and the difference.

Bound: 5 ms over a local command (medians of 300 in turn). Exit code 1 where it does not hold.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from loopback_sshd import LoopbackSshd
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Host, command

ROUNDS = 300
BOUND_MS = 5.0


def run_rounds(hosts: dict[str, Host]) -> dict[str, list[float]]:
    """Milliseconds a command, the hosts in turn so that both see the same load."""
    took: dict[str, list[float]] = {name: [] for name in hosts}
    for _ in range(ROUNDS):
        for name, host in hosts.items():
            began = time.perf_counter()
            host.run(command("true"))
            took[name].append((time.perf_counter() - began) * 1000)
    return took


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        server = LoopbackSshd(Path(directory))
        try:
            began = time.perf_counter()
            far = server.connect()
            connected_ms = (time.perf_counter() - began) * 1000
            near = LocalHost()
            try:
                took = run_rounds({"local": near, "ssh": far})
            finally:
                far.close()
                near.close()
        finally:
            server.stop()
    local_ms, ssh_ms = (statistics.median(took[name]) for name in ("local", "ssh"))
    p95_ms = {name: statistics.quantiles(values, n=20)[-1] for name, values in took.items()}
    print(f"connecting           {connected_ms:8.1f} ms")
    print(f"local command        {local_ms:8.2f} ms median, {p95_ms['local']:.2f} ms p95")
    print(f"command over ssh     {ssh_ms:8.2f} ms median, {p95_ms['ssh']:.2f} ms p95")
    more_ms = ssh_ms - local_ms
    holds = more_ms <= BOUND_MS
    print(
        f"over ssh, in addition{more_ms:8.2f} ms, ratio {ssh_ms / local_ms:.2f} "
        f"(<= {BOUND_MS:.0f} ms: {'holds' if holds else 'DOES NOT HOLD'})"
    )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
