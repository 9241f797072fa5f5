"""Requests to a worker, as JSON, and its answers."""

from __future__ import annotations

import getpass
import os
import platform
import socket
from typing import Annotated

from pydantic import Field, StringConstraints

from pgstrata import __version__
from pgstrata.host.agent_schema import parsed
from pgstrata.host.facts.gather import machine_id
from pgstrata.host.local import LocalHost
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.model import Model

Line = Annotated[str, StringConstraints(max_length=64 << 10)]
Lines = Annotated[tuple[Line, ...], Field(max_length=10_000)]
Word = Annotated[str, StringConstraints(max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")]


class Described(Model):
    """Description of a worker: its machine, and the versions of its programs."""

    hostname: Word
    machine: Word
    uid: int
    user: Word
    pgstrata: Word
    python: Word


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
    fake: bool

    @property
    def key(self) -> tuple[str, str]:
        """Host and campaign."""
        return self.host, self.token


class TrialAsked(Model):
    """One trial within the session of a host and campaign."""

    key: tuple[str, str]
    trial: Trial
    begins_block: bool


class SessionAnswer(Model):
    """The answer of a session. The files of a trial follow it."""

    stacks: Lines = ()
    """Stacks that can be built here, once the session is open."""
    notices: Lines = ()
    media: Lines = ()
    """Baselines of the medium, in JSON."""
    left: Lines = ()
    """Undo errors."""
    clean: bool = False
    """A session was opened: nothing that the campaign could not undo there before is left."""
    error: Line = ""
    hint: Line = ""


def render_answer(answer: SessionAnswer, archive: bytes = b"") -> bytes:
    """Return a line of JSON, followed by the files."""
    return answer.model_dump_json().encode() + b"\n" + archive


def parse_answer(content: object, who: str) -> tuple[SessionAnswer, bytes]:
    """Parse an answer; PreflightError that names the worker's machine for anything else."""
    head, _, archive = content.partition(b"\n") if isinstance(content, bytes) else (content, b"", b"")
    return parsed(SessionAnswer, head, who), archive
