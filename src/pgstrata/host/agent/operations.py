"""Every operation, by plain values: what goes over the wire."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

from pgstrata.host.agent.commands import Commands, Waiting
from pgstrata.host.agent.devices import Devices
from pgstrata.host.agent.files import Files
from pgstrata.host.agent.locks import Locks
from pgstrata.host.agent.processes import send_signal, start_time, wait_pid


class Agent(Commands, Files, Devices, Locks):
    """All operations together. `state_directory` is where locks live, by default where pgstrata keeps its journal."""

    def __init__(self, state_directory: str | None = None, waiting: Waiting = contextlib.nullcontext) -> None:
        Devices.__init__(self)
        Locks.__init__(self, state_directory)
        Commands.__init__(self, self.state_directory(), waiting)

    def hello(self) -> dict[str, Any]:
        """Identity of this agent: a connection that comes back can tell if the old agent or boot is still there."""
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return {"pid": os.getpid(), "started": start_time(os.getpid()), "boot": boot, "uid": os.geteuid()}

    def supersede(self, pid: int, started: int, boot: str) -> None:
        """Kills an agent that outlived its connection, so that its locks come free."""
        here = self.hello()
        if boot == here["boot"] and pid != here["pid"] and start_time(pid) == started:
            send_signal(pid, signal.SIGTERM)
            if not wait_pid(pid, 5.0):
                send_signal(pid, signal.SIGKILL)
                wait_pid(pid, 5.0)

    def close(self) -> None:
        """Releases locks and devices and kills foreground commands; background programs go on."""
        self.cancel()
        for handle in list(self._devices):
            self.close_device(handle)
        for name in list(self._locks):
            self.unlock(name)


OPERATIONS = frozenset(name for name in dir(Agent) if not name.startswith("_"))
