"""From the host that a campaign names to a host that is there, and gone again afterwards where we started it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager

from pgstrata.errors import PreflightError, UsageError
from pgstrata.host.protocol import Host, Waiting
from pgstrata.host.ssh import connect
from pgstrata.spec.campaign import Campaign, far_hosts
from pgstrata.spec.hosts.lab import LAB, RUNNING_LAB
from pgstrata.trial.events import Notice, Tell

CONNECTED_AT_ONCE = 32
"""Each host is a process of ssh that shakes hands; one that does not answer is given up after a minute."""


@contextmanager
def campaign_host(campaign: Campaign, tell: Tell, waiting: Waiting) -> Iterator[Host]:
    """The host of a campaign, connected; a lab machine is started for it and ends with the block.

    A machine boots inside `waiting()`, so that a signal can end it.
    """
    if campaign.host == LAB:
        from pgstrata.lab.machines import lab_host

        with lab_host(campaign, say=lambda text: tell(Notice(text)), waiting=waiting) as machine:
            yield machine
        return
    with named_host(campaign.host) as host:
        yield host


@contextmanager
def campaign_hosts(campaign: Campaign, tell: Tell, waiting: Waiting) -> Iterator[tuple[Host, ...]]:
    """Every host of a campaign on several, connected; those that cannot be reached are told and left out.

    They are connected at once, inside `waiting()`. PreflightError where none can be reached. What a lost host left is
    undone when it is reached again.
    """
    with ExitStack() as connected:
        with ThreadPoolExecutor(min(len(campaign.hosts), CONNECTED_AT_ONCE), "pgstrata connecting") as executor:
            opened = [executor.submit(_closed_by, connected, name) for name in campaign.hosts]
            try:
                with waiting():
                    wait(opened)
            except BaseException:
                executor.shutdown(wait=False, cancel_futures=True)
                raise
        hosts, away = [], []
        for connecting in opened:
            match connecting.exception():
                case None:
                    hosts.append(connecting.result())
                case PreflightError() as error:
                    away.append(error)
                    tell(Notice(f"left out: {error.message}"))
                case error:
                    raise error
        if not hosts:
            raise away[0]
        yield tuple(hosts)


def _closed_by(connected: ExitStack, name: str) -> Host:
    host = connect_any(name)
    connected.callback(host.close)
    return host


@contextmanager
def connected_far(campaign: Campaign) -> Iterator[Mapping[str, Host]]:
    """Every other host of the nodes of a campaign's clusters, by name."""
    with ExitStack() as connected:
        yield {name: connected.enter_context(named_host(name)) for name in far_hosts(campaign)}


@contextmanager
def inspection_host(campaign: Campaign) -> Iterator[Host]:
    """The host of a campaign before it is run. A lab machine is not started for a look: it is as if it were here."""
    with named_host("local" if campaign.host == LAB else campaign.host) as host:
        yield host


def connect_any(text: str) -> Host:
    """`local`, `ssh://[user@]host[:port]` or `lab/NAME`; the caller closes it."""
    if text.startswith(RUNNING_LAB):
        from pgstrata.lab.machines import running_host

        return running_host(text.removeprefix(RUNNING_LAB))
    if text == LAB:
        raise UsageError(
            "host lab is a machine that a campaign starts and removes", hint="pgstrata lab up, then --host lab/NAME"
        )
    return connect(text)


@contextmanager
def named_host(text: str) -> Iterator[Host]:
    """The same, connected for as long as the block lasts."""
    host = connect_any(text)
    try:
        yield host
    finally:
        host.close()
