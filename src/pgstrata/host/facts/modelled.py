"""Disks of a host that the machine running it models: told by a file over there, as machines of the lab have it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pgstrata.errors import parser_of
from pgstrata.host.protocol import Command, Host, command
from pgstrata.spec.layers.media import Timed, describe_modelled

PATH = "/etc/pgstrata/media.json"
ADDRESS, PORT = "10.0.2.100", 7070
"""Place where such a host reads what its disks did: a connection gets what `strata-disk stats` says, and is ended."""
SWITCH_PORTS = {"on": 7071, "off": 7072}
"""Ports where it switches the timing of disks that are timed in runs alone."""


@dataclass(frozen=True)
class ModelledDisk:
    """A disk by the name that the daemon has for it, and what it was asked to be."""

    name: str
    model: str
    stretch: float
    timed: Timed = "always"
    parameters: Mapping[str, float] | None = None
    """Parameters of a model that strata-disk does not come with."""

    @property
    def lies_on(self) -> str:
        """Words of a table about what lies on it."""
        return describe_modelled(self.model, self.stretch, self.timed)


def read_modelled(host: Host) -> Mapping[str, ModelledDisk]:
    """By stable id; empty on a host that nobody models disks for."""
    return parse_modelled(host.read_text(PATH)) if host.status(PATH) is not None else {}


@parser_of(PATH)
def parse_modelled(text: str) -> Mapping[str, ModelledDisk]:
    return {
        str(id_): ModelledDisk(
            str(disk["name"]), str(disk["model"]), float(disk["stretch"]), disk["timed"], _parameters(disk)
        )
        for id_, disk in json.loads(text).items()
    }


def _parameters(disk: Mapping[str, Any]) -> Mapping[str, float] | None:
    own = disk.get("parameters")
    return None if own is None else {str(name): float(value) for name, value in own.items()}


def render_modelled(disks: Mapping[str, ModelledDisk]) -> str:
    """The file's text."""
    return json.dumps({id_: asdict(disk) for id_, disk in disks.items()})


def ask_modelled() -> Command:
    """Prints the accounts of the host's modelled disks."""
    return command("busybox", "nc", ADDRESS, str(PORT))


def switch_modelled(to: str) -> Command:
    """Switches the timing of those that are timed in runs alone `on` or `off`."""
    return command("busybox", "nc", ADDRESS, str(SWITCH_PORTS[to]))
