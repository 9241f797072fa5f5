"""Documented options of layers that short notation takes: built on a real kernel, attested, undone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from bench import context

from built import differences, standing
from documented import ACCEPTED, notation
from pgstrata.errors import UsageError
from pgstrata.host.protocol import Host, command
from pgstrata.spec.layers.zfs import Zfs
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.stack.build import attest
from pgstrata.stack.fs.zfs import version_problem
from pgstrata.stack.plan import plan_stack

LAYERS = [layer for layer in dict(ACCEPTED) if layer.startswith(("zfs", "zvol", "nfs", "md", "lvm", "luks"))]
SMALLER = {"rsize=1m": "rsize=256k", "wsize=1m": "wsize=256k"}
"""The kernel's server bounds both by the memory of the machine."""

ALONE = ("compatibility=legacy",)
"""A pool without features refuses most of what the others set."""


def together(layer: str, options: list[str]) -> list[str]:
    """The options in as few lists as can stand together: each of them costs seconds there."""
    lists: list[str] = []
    for option in (SMALLER.get(option, option) for option in options if option not in ALONE):
        at = next((n for n, before in enumerate(lists) if parses(layer, f"{before},{option}")), len(lists))
        lists[at : at + 1] = [f"{lists[at]},{option}" if at < len(lists) else option]
    return [*lists, *(option for option in options if option in ALONE)]


def parses(layer: str, options: str) -> bool:
    try:
        parse_stack(notation(layer, options))
    except UsageError:
        return False
    return True


def lacking(host: Host, layer: str, option: str) -> bool:
    """True if the machine's OpenZFS is older than the option: a campaign is told so beforehand."""
    fs = parse_stack(notation(layer, option)).data.fs
    return isinstance(fs, Zfs) and version_problem(host, fs) != ""


@contextmanager
def serving(host: Host, layer: str) -> Iterator[None]:
    """Keep the server of NFS up: to start and stop it for each list of options is half of the time."""
    if not layer.startswith("nfs"):
        yield
        return
    host.run(command("systemctl", "start", "nfs-server", timeout_s=180))
    try:
        yield
    finally:
        host.run(command("systemctl", "stop", "nfs-server", timeout_s=180))


@pytest.mark.parametrize("layer", LAYERS)
def test_what_is_accepted_stands_as_written(host: Host, layer: str) -> None:
    options = [option for name, option in ACCEPTED if name == layer and not lacking(host, layer, option)]
    assert options
    with serving(host, layer):
        for number, written in enumerate(together(layer, options)):
            plan = plan_stack(parse_stack(notation(layer, written)), context(f"t{number}"))
            with standing(host, plan) as built:
                assert differences(attest(host, plan, built)) == {}, written
