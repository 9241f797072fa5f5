"""What is told to a worker, as JSON, and what it answers."""

from __future__ import annotations

import getpass
import os
import platform
import socket
from typing import TypedDict

from pgstrata import __version__
from pgstrata.host.facts.gather import machine_id
from pgstrata.host.local import LocalHost
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.model import Model


class Described(Model):
    """What a worker is: the machine that it is on, and the programs that it has."""

    hostname: str
    machine: str
    uid: int
    user: str
    pgstrata: str
    python: str


def describe_here() -> Described:
    """This process."""
    host = LocalHost()
    try:
        machine = machine_id(host)
    finally:
        host.close()
    return Described(
        hostname=socket.gethostname(),
        machine=machine,
        uid=os.geteuid(),
        user=getpass.getuser(),
        pgstrata=__version__,
        python=".".join(platform.python_version_tuple()[:2]),
    )


class SessionAsked(Model):
    """A campaign on one machine, for as long as the campaign runs; `token` is that of its directory."""

    token: str
    host: str
    campaign: Campaign
    made_up: bool

    @property
    def key(self) -> tuple[str, str]:
        """Host and campaign."""
        return self.host, self.token


class TrialAsked(Model):
    """One trial within a session."""

    token: str
    host: str
    trial: Trial
    begins_block: bool


class Answer(TypedDict, total=False):
    """What comes back. Exactly one of `stacks`, `archive`, `closed`, `error`, `stopped` and `gone` is there."""

    stacks: list[str]
    """Of a session: what can be built."""
    archive: bytes
    """Of a trial: its files."""
    closed: bool
    error: str
    hint: str
    stopped: str
    """Why a session ends before the trial did."""
    gone: bool
    """There is no such session (any more)."""
    notices: list[str]
    media: list[str]
    """Baselines of the medium, in JSON."""
    left: list[str]
    """What could not be undone."""
    clean: bool
    """A session was opened: nothing that the campaign could not undo there before is left."""
